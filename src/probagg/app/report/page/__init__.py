"""The page report.html: everything a run found, in one file that needs only a browser."""

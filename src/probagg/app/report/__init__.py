"""What a person sees of a run: the page report.html, and the page on which to review it."""

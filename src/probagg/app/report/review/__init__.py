"""The review page, served on this computer, and the session behind it."""

"""A run: what a clustering leaves in a folder, and everything that opens it."""

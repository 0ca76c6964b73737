"""Nearest rows, and what is computed from them: agreement of labels, smoothing, spaces of rows."""

"""DPAC: train a network that clusters images, end to end (section 3.5 of the paper)."""

"""PAC: cluster a matrix (section 3.3 of the paper)."""

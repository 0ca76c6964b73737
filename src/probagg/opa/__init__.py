"""OPA: cluster a batch inside a training loop (section 3.4 of the paper)."""

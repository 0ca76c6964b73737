"""What a user brings: `opening` opens any source; `benchmarks` has public data sets by name."""

"""What a user brings: sets of images (`images`), and public data sets by name (`benchmarks`)."""

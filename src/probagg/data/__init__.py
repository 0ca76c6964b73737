"""What a user brings: sets of images (`images`), and public data sets by name (`benchmarks`)."""


class NoData(ValueError):
    """A source that holds nothing to cluster; the message says what to do."""

"""What a person changed in a run: names, merges, splits, moves, discarded samples."""

from probagg.review.review import FORMAT, MAX_CREATED, Review
from probagg.review.split import MAX_PARTS, Split
from probagg.review.values import MAX_NAME, ReviewError

__all__ = ["FORMAT", "MAX_CREATED", "MAX_NAME", "MAX_PARTS", "Review", "ReviewError", "Split"]

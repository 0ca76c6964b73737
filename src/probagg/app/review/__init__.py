"""What a person changed in a run: names, merges, splits, moves, discarded samples."""

from probagg.app.review.review import FORMAT, MAX_CREATED, Review
from probagg.app.review.split import MAX_PARTS, Split
from probagg.app.review.values import MAX_NAME, ReviewError

__all__ = ["FORMAT", "MAX_CREATED", "MAX_NAME", "MAX_PARTS", "Review", "ReviewError", "Split"]

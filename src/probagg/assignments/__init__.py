"""The table of a run, its one reader and its one writer."""

from probagg.assignments.table import Assignments, overlaps, parts_of
from probagg.assignments.text import BORDERLINE, COLUMNS, DISCARDED, OUTLIER

__all__ = [
    "BORDERLINE",
    "COLUMNS",
    "DISCARDED",
    "OUTLIER",
    "Assignments",
    "overlaps",
    "parts_of",
]

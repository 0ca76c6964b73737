"""The table of a run, its one reader and its one writer."""

from probagg.app.assignments.table import Assignments, overlaps, parts_of
from probagg.app.assignments.text import BORDERLINE, COLUMNS, DISCARDED, OUTLIER

__all__ = [
    "BORDERLINE",
    "COLUMNS",
    "DISCARDED",
    "OUTLIER",
    "Assignments",
    "overlaps",
    "parts_of",
]

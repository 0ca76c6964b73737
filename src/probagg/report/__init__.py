"""One offline HTML page from a run folder, and a local page on which a person reviews it."""

from __future__ import annotations

from probagg.report.atlas import positions
from probagg.report.page import write_report

__all__ = ["positions", "write_report"]

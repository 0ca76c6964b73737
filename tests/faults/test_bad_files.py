"""How many files of a folder may be bad."""

import numpy as np
import pytest
from commands import cluster
from PIL import Image

import probagg
from probagg.errors import InputError


@pytest.fixture
def photos(tmp_path):
    """Thirty photos, three of which cannot be read."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(30):
        pixels = rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    for number in (3, 8, 21):
        (folder / f"{number:02}.png").write_bytes(b"no image")
    return folder


@pytest.mark.parametrize("method", ["pac", "dpac"])
def test_more_bad_files_than_allowed_are_an_error_that_names_them(photos, tmp_path, method):
    out = tmp_path / "run"
    options = {"backbone": "efficientnet-lite0"} if method == "pac" else {}
    with pytest.raises(InputError, match=r"3 files or rows .* the 2 allowed: .*03\.png .*max_bad"):
        probagg.cluster(photos, 2, method=method, out=out, max_bad=2, **options)
    assert not out.exists()


def test_as_many_as_allowed_are_skipped(photos, tmp_path):
    run = probagg.cluster(
        photos, 2, backbone="efficientnet-lite0", out=tmp_path / "run", max_bad=3, report=False
    )
    assert run.result["n_skipped"] == 3


def test_rows_of_a_table_count_too(tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("a,b\n" + "".join(f"{i},{i % 3}\n" for i in range(40)) + ",\n,\n")
    failed = cluster(table, "-k", 2, "--out", tmp_path / "run", "--max-bad", 1)
    assert failed.exit_code == 2
    assert "2 files or rows" in failed.stderr

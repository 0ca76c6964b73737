"""Result files (benchmarks/record.py): their format, and how rows are added."""

import json
import os

import pytest

from benchmarks import record
from benchmarks.__main__ import scripts
from benchmarks.record import RESULTS, Cell, Results

FILES = sorted(RESULTS.glob("*/*.json"))
FIELDS = ["script", "size", "settings", "notes", "environments", "rows"]
ROW = ["data", "method", "setting", "seed", "seconds", "values", "settings", "environment"]


def row(seed, acc, data="digits", **more):
    return Cell(data, "pac", seed=seed).row({"acc": acc, **more})


def test_a_row_replaces_that_of_the_same_cell_only(tmp_path):
    results = Results.open("table2", folder=tmp_path / "new")
    for seed, acc in ((0, 0.1), (1, 0.2), (0, 0.3)):
        results.put(row(seed, acc))
    read = Results.open("table2", folder=tmp_path / "new")
    assert [(each.seed, each["acc"]) for each in read.rows] == [(1, 0.2), (0, 0.3)]
    assert len(read.environments) == 1
    assert read.row(data="digits", seed=1)["acc"] == 0.2
    assert read.of(setting="1.1") == []


def test_a_row_has_its_seconds_and_settings_apart_from_its_values(tmp_path):
    results = Results.open("table2", folder=tmp_path)
    results.put(row(0, 0.5, seconds=2.0, settings={"rows": 3}))
    (found,) = Results.open("table2", folder=tmp_path).rows
    assert (found.seconds, found.values, found.settings) == (2.0, {"acc": 0.5}, {"rows": 3})


def test_a_result_file_has_a_line_for_each_row(tmp_path):
    results = Results.open("table2", folder=tmp_path)
    results.put(*(row(seed, 0.1) for seed in range(3)))
    lines = results.path.read_text().splitlines()
    assert [json.loads(line.rstrip(","))["seed"] for line in lines if '"acc"' in line] == [0, 1, 2]


def test_a_row_of_another_machine_keeps_its_environment(tmp_path, monkeypatch):
    Results.open("table2", folder=tmp_path).put(row(0, 0.1))
    monkeypatch.setattr(record, "commit", lambda: "another")
    Results.open("table2", folder=tmp_path).put(row(1, 0.2))
    found = Results.open("table2", folder=tmp_path)
    assert [each.environment for each in found.rows] == [0, 1]
    assert found.environments[1]["commit"] == "another"


def test_results_replace_the_file_of_those_before_as_a_whole(tmp_path):
    """Scripts that go on where they were read the file: half of one would cost all runs."""
    before = tmp_path / "speed" / "full.json"
    results = Results("speed", folder=tmp_path)
    results.put(row(0, 0.1))
    os.link(before, tmp_path / "before.json")
    results.put(row(0, 0.2))
    assert json.loads(before.read_text())["rows"][0]["values"] == {"acc": 0.2}
    assert json.loads((tmp_path / "before.json").read_text())["rows"][0]["values"] == {"acc": 0.1}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_result_file_has_the_format(path):
    content = json.loads(path.read_text())
    assert list(content) == FIELDS
    assert (content["script"], content["size"]) == (path.parent.name, path.stem)
    results = Results.open(path.parent.name, path.stem)
    assert results.text() == path.read_text()
    cells = [each.cell for each in results.rows]
    assert cells
    assert len(set(cells)) == len(cells)
    for each in content["rows"]:
        assert list(each) == ROW
        assert {"commit", "python", "machine", "cpus", "packages"} <= set(
            results.environments[each["environment"]]
        )


def test_every_result_file_is_of_a_script():
    assert FILES
    assert {path.parent.name for path in FILES} <= set(scripts())

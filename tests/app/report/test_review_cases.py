"""One rule for applying a review, in Python and in the review page's JavaScript."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from probagg.app.assignments import Assignments
from probagg.app.report.rendering import SHARED
from probagg.app.review import FORMAT, Review
from probagg.app.run.session import columns

CASES = json.loads((Path(__file__).parent / "fixtures" / "review_cases.json").read_text())
MODEL = SHARED / "review" / "model.js"
SCRIPT = """
import { readFileSync } from 'node:fs';
import * as model from './model.mjs';

const columns = ['cluster', 'probability', 'second_cluster', 'second_probability', 'distance',
  'flag'];
console.log(JSON.stringify(JSON.parse(readFileSync('cases.json')).map((one) => {
  const run = model.createRun({ n_clusters: one.n_clusters, samples: one.table });
  const empty = { names: {}, merged: {}, moved: {}, created: [], splits: [], discarded: [] };
  const view = model.look(run, model.fromJson({ ...empty, ...one.review }));
  const rows = one.table.name.map((_, row) => model.sampleOf(run, view, row));
  const table = columns.map((column) => [column, rows.map((sample) => sample[column])]);
  return { name: one.table.name, ...Object.fromEntries(table) };
})));
"""


def from_columns(name, cluster, second_cluster, distance, flag, **probabilities):
    return Assignments(
        name,
        np.array(cluster),
        np.array(probabilities["probability"], float),
        np.array([-1 if k is None else k for k in second_cluster]),
        np.array([p or 0.0 for p in probabilities["second_probability"]]),
        np.array(distance, float),
        np.array(flag),
        "path",
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["claim"])
def test_python_applies_a_review_by_the_rule(case):
    review = Review.from_json({"format": FORMAT, **case["review"]}, case["n_clusters"])
    table = columns(review.apply(from_columns(**case["table"])))
    assert {name: table[name] for name in case["expected"]} == case["expected"]
    assert list(table) == ["key", *case["expected"]], "a case has every column"


def test_the_review_page_applies_a_review_by_the_same_rule(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    shutil.copy(MODEL, tmp_path / "model.mjs")
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    (tmp_path / "main.mjs").write_text(SCRIPT)
    done = subprocess.run(
        [node, "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for case, found in zip(CASES, json.loads(done.stdout), strict=True):
        assert found == case["expected"], case["claim"]

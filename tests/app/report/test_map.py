"""The map: positions, and what the page draws."""

import html
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_blobs
from sklearn.neighbors import NearestNeighbors

from probagg.app.review import Review
from probagg.app.run.contents import read_contents, write_review
from probagg.app.run.folder import MAP, add_to_run
from probagg.app.run.pages import positions, write_report
from probagg.arrays import npz_bytes


def dots(run):
    """Return the colour and the text of each sample on the map."""
    page = write_report(run).read_text(encoding="utf-8")
    found = re.findall(r'<circle class="(k\d+)"[^>]*><title>(.*?)</title>', page, re.DOTALL)
    return [(colour, html.unescape(title)) for colour, title in found]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, lambda X: 1e200 * X])
def test_what_lies_close_in_space_lies_close_on_the_map(form):
    X, y = make_blobs(400, 20, centers=5, cluster_std=2.0, random_state=0)
    rows, xy = positions(form(X))
    assert rows.tolist() == list(range(400))
    assert (xy.min(), xy.max()) == (0.0, 1.0)
    nearest = NearestNeighbors(n_neighbors=2).fit(xy).kneighbors(xy)[1][:, 1]
    assert (y == y[nearest]).mean() > 0.97


def test_of_many_rows_some_are_placed_the_same_ones_each_time(monkeypatch, blobs):
    monkeypatch.setattr("probagg.app.run.pages.MOST_ON_MAP", 40)
    (rows, xy), (again, same) = positions(blobs[0]), positions(blobs[0])
    assert len(rows) == len(xy) == 40
    assert rows.max() > 100, "not just the first"
    np.testing.assert_array_equal(rows, again)
    np.testing.assert_array_equal(xy, same)


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11])
@pytest.mark.parametrize("columns", [1, 2, 60])
def test_few_and_equal_rows_get_positions_too(n, columns, rng):
    for X in (rng.normal(size=(n, columns)), np.ones((n, columns))):
        rows, xy = positions(X)
        assert len(rows) == n
        assert np.isfinite(xy).all()


def test_the_page_draws_each_sample_with_its_name_in_the_colour_of_its_cluster(photo_run):
    assert dots(photo_run) == [], "a run without a map has no empty section"
    table = read_contents(photo_run).assigned
    names = table.names
    places = npz_bytes(rows=np.arange(len(names)), xy=np.full((len(names), 2), 0.5))
    add_to_run(photo_run, MAP, places)
    found = dots(photo_run)
    assert [k for k, _ in found] == [f"k{k}" for k in table.cluster]
    shown = [name.encode("utf-8", "replace").decode() for name in names]
    assert all(title.startswith(name) for (_, title), name in zip(found, shown, strict=True))
    write_review(photo_run, Review(discarded=frozenset(names[:1])))
    assert len(dots(photo_run)) == len(names) - 1, "a discarded photo is in no cluster"

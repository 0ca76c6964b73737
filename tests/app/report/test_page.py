"""The content of report.html."""

import base64
import hashlib
import itertools
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from commands import reseal

from probagg.app.assignments import Yardstick
from probagg.app.report.contents import Profiles
from probagg.app.report.groups import Counts, _contrasts, class_scores, select
from probagg.app.report.thumbnails import MAX_PICTURES, picture_counts
from probagg.app.review import Review
from probagg.app.run.contents import read_contents, write_review
from probagg.app.run.folder import RunFolderError
from probagg.app.run.pages import write_report
from probagg.data.opening import open_images
from probagg.metrics import evaluate


class Document(HTMLParser):
    """Elements with their attributes, and texts."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, tag, **wanted):
        return [a for t, a in self.elements
                if t == tag and all(a.get(k) == v for k, v in wanted.items())]  # fmt: skip


def report(run, **options):
    html = write_report(run, **options).read_text(encoding="utf-8")
    return html, Document(html)


def words(document):
    return re.sub(r"\s+([.,:;])", r"\1", document.text)


def test_the_page_is_one_file_that_requests_nothing(photo_run):
    html, document = report(photo_run)
    addresses = [a[name] for _, a in document.elements for name in ("src", "href") if a.get(name)]
    assert addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", html)


def test_the_policy_allows_exactly_the_scripts_and_styles_of_the_page(photo_run):
    html, document = report(photo_run)
    policy = document.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    parts = re.findall(r"<style>(.*?)</style>|<script>(.*?)</script>", html, re.S)
    for text in ("".join(part) for part in parts):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not any("style" in a or any(name.startswith("on") for name in a)
                   for _, a in document.elements)  # fmt: skip


def test_no_picture_is_embedded_twice(photo_run):
    html, document = report(photo_run)
    uris = re.findall(r'src="(data:image/[^"]+)"', html)
    assert len(uris) > 60
    assert len(uris) == len(set(uris))
    rows = [image["data-row"] for image in document.all("img") if "data-row" in image]
    assert len(rows) > len(uris)  # those of overlapping clusters are shown again


def test_more_clusters_have_fewer_pictures_each_and_never_too_many():
    sums = [sum(picture_counts(k)) for k in (1, 65, 66, 200, 400, 600, 2_600, 2_601)]
    assert sums == [40, 40, 20, 12, 4, 4, 1, 0]
    assert all(k * sum(picture_counts(k)) <= MAX_PICTURES for k in range(1, 6_000))


def test_every_picture_has_its_name_cluster_and_probability_as_alt_text(photo_run):
    _, document = report(photo_run)
    shown = [image for image in document.all("img") if "data-row" in image]
    samples = read_contents(photo_run).samples
    for image in shown:
        row = int(image["data-row"])
        assert image["alt"].startswith(samples.names[row])
        assert re.search(r", cluster \d, probability \d\.\d\d$", image["alt"])


def test_the_page_begins_with_a_row_of_typical_images_per_cluster(photo_run):
    html, _ = report(photo_run)
    contents = read_contents(photo_run)
    sheet = re.search(r'<ul class="card sheet">.*?</ul>', html, re.S).group(0)
    assert html.index(sheet) < html.index('<dl class="figures">')
    for k, row in zip(contents.clusters, re.findall(r"<li>.*?</li>", sheet, re.S), strict=True):
        assert f'href="#cluster-{k}"' in row
        assert f'<span class="number muted">{contents.sizes[k]}</span>' in row
        shown = [int(i) for i in re.findall(r'src="data:image/[^"]+" data-copy="(\d+)"', row)]
        assert len(shown) == 16
        assert (contents.samples.cluster[shown] == k).all()
        assert (contents.samples.flag[shown] == "").all()


def test_a_cluster_of_unlike_images_is_loose_and_named_first(photo_run):
    """Of three clusters, two have one direction each, and the third has every direction."""
    contents = read_contents(photo_run)
    assert contents.loose == [], "without features nothing is known"
    rng = np.random.default_rng(0)
    X = rng.normal(0, 0.1, (120, 8)) + np.eye(8)[contents.samples.cluster]
    jumbled = contents.samples.cluster == 1
    X[jumbled] = rng.normal(size=(jumbled.sum(), 8))
    np.save(photo_run / "embeddings.npy", X.astype(np.float32))
    names = "cluster,suggestion,difference\n0,cross,0.5\n1,disc of tin,0.5\n"
    (photo_run / "suggestions.csv").write_text(names)
    reseal(photo_run)
    html, document = report(photo_run)
    assert "cross?" in html
    assert "disc of tin" not in html, "no name fits a jumble"
    assert "Loose, so look here first: cluster 1." in words(document)
    assert re.findall(r'class="tag loose"|class="tag">clear', html).count('class="tag">clear') == 2


def test_separation_is_the_simplified_silhouette(photo_run):
    X = np.load(photo_run / "embeddings.npy").astype(float)
    contents = replace(read_contents(photo_run), features=X)
    U, labels = X / np.linalg.norm(X, axis=1, keepdims=True), contents.samples.cluster
    centers = np.array([U[labels == k].sum(0) for k in range(3)])
    D = 1 - U @ (centers / np.linalg.norm(centers, axis=1, keepdims=True)).T
    for k in range(3):
        a, b = D[labels == k, k], np.delete(D[labels == k], k, axis=1).min(1)
        expected = np.mean((b - a) / np.maximum(a, b))
        assert contents.separation[k] == pytest.approx(expected, abs=1e-6)


def test_pairs_without_borderline_samples_get_no_card(photo_run):
    """A share of probability alone does not put a sample between two clusters."""
    text = "first,second,mean_probability,samples\n0,1,0.2,1\n0,2,0.2,0\n1,2,0.2,0\n"
    (photo_run / "overlaps.csv").write_text(text)
    reseal(photo_run)
    html, _ = report(photo_run)
    section = re.search(r'<section id="overlaps".*?</section>', html, re.S).group(0)
    assert section.count('<li class="card">') == section.count('class="thumbs"') == 1
    assert 'href="#cluster-0"' in section
    assert 'href="#cluster-1"' in section


def test_hostile_names_stay_text(photo_run):
    html, document = report(photo_run)
    assert "onerror=window.__pwned=1&gt;" in html  # it is there, as text
    assert not re.search(r"<img src=x|<script>window|[^=]'\s*onmouseover", html)
    assert not document.all("img", src="x")


def test_the_summary_states_the_results(photo_run):
    _, document = report(photo_run)
    text = words(document)
    contents = read_contents(photo_run)
    assert "120 images were grouped into 3 clusters" in text
    assert f"The largest is cluster {max(contents.sizes, key=contents.sizes.get)}" in text
    scores = evaluate(contents.classes, contents.samples.cluster)
    assert f"ACC {scores['acc']:.3f}, NMI {scores['nmi']:.3f}, ARI {scores['ari']:.3f}" in text
    borderline = int((contents.samples.flag == "borderline").sum())
    assert borderline > 0
    assert f"{borderline} ({100 * borderline / 120:.1f}%) are borderline" in text
    assert "Most easily confused" in text


def test_an_automatic_number_of_clusters_comes_with_its_reason_and_scores(digits_run):
    table = "n_clusters,stability,note,chosen\n10,0.5,x,0\n12,0.9,y,1\n14,0.7,z,0\n"
    (digits_run / "k_selection.csv").write_text(table)
    html, document = report(digits_run)
    assert "chosen automatically: 12 clusters are the most that stay" in words(document)
    section = re.search(r'<section id="selection".*?</section>', html, re.S).group(0)
    rows = re.findall(r"<tr>(.*?)</tr>", section)
    assert len(rows) == 4
    assert [re.findall(r"<td[^>]*>([^<]*)", row)[:3] for row in rows[1:3]] == [
        ["10", "0.5", "x"],
        ["12", "0.9", "y"],
    ]
    assert ["chosen" in row for row in rows[1:]] == [False, True, False]


def test_without_the_source_names_are_shown_and_the_page_says_so(photo_run, tmp_path):
    text = (photo_run / "config.toml").read_text()
    gone = re.sub(r"source = .*", f'source = "{tmp_path / "gone"}"', text)
    (photo_run / "config.toml").write_text(gone)
    _, document = report(photo_run)
    assert not [image for image in document.all("img") if "data-row" in image]
    assert len(document.all("span", **{"class": "placeholder"})) > 60
    assert "The images are not shown, only their names" in words(document)


def test_a_file_that_became_unreadable_is_a_placeholder(photo_run, photos, tmp_path):
    copy = shutil.copytree(photos, tmp_path / "copy")
    contents = read_contents(photo_run)
    row = next(r for r, name in enumerate(contents.samples.names) if "013" in name)
    (copy / contents.samples.names[row]).write_bytes(b"no picture")
    other = next(r for r, name in enumerate(contents.samples.names) if "016" in name)
    (copy / contents.samples.names[other]).unlink()
    _, document = report(photo_run, images=open_images(copy))
    broken = [a["aria-label"] for a in document.all("span", **{"class": "placeholder"})]
    named = {contents.samples.names[row], contents.samples.names[other]}
    assert {label.partition(",")[0] for label in broken} <= named
    assert len([image for image in document.all("img") if "data-row" in image]) > 60


def test_small_grey_images_are_embedded_as_they_are_and_drawn_with_sharp_edges(digits_run):
    html, document = report(digits_run)
    assert "data:image/png" in html
    assert "data:image/jpeg" not in html
    shown = [image for image in document.all("img") if "data-row" in image]
    assert all(image["class"] == "pixelated" for image in shown)
    assert shown[0]["alt"].startswith("row ")


def test_small_images_in_a_folder_get_sharp_edges_too(tmp_path, photo_run):
    from PIL import Image

    names = read_contents(photo_run).samples.names
    for name in names:
        (tmp_path / "small" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), len(name)).save(tmp_path / "small" / name)
    html, document = report(photo_run, images=open_images(tmp_path / "small"))
    assert "data:image/jpeg" not in html
    assert len(document.all("img", **{"class": "pixelated"})) > 60


def test_a_review_is_applied(photo_run):
    before = read_contents(photo_run)
    moved = int(np.flatnonzero(before.samples.cluster == 0)[0])
    review = {"format": "probagg.review/2", "names": {"0": "crosses <b>"}, "merged": {"2": 1},
              "moved": {before.samples.names[moved]: 1}}  # fmt: skip
    (photo_run / "review.json").write_text(json.dumps(review))
    contents = read_contents(photo_run)
    assert contents.clusters == [0, 1]
    assert contents.sizes[0] == before.sizes[0] - 1
    assert contents.sizes[1] == before.sizes[1] + before.sizes[2] + 1
    html, document = report(photo_run)
    assert "crosses &lt;b&gt;" in html
    reviewed = "1 named, 1 merged, 0 split, 1 images moved, 0 discarded."
    assert f"A person reviewed this run: {reviewed}" in words(document)
    assert not document.all("details", id="cluster-2")
    assert "includes the former cluster 2" in words(document)


def test_merged_clusters_add_their_probabilities(photo_run):
    before = read_contents(photo_run).samples
    review = {"format": "probagg.review/2", "names": {}, "merged": {"1": 0}, "moved": {}}
    (photo_run / "review.json").write_text(json.dumps(review))
    after = read_contents(photo_run).samples
    both = np.isin(before.cluster, [0, 1]) & np.isin(before.second_cluster, [0, 1])
    assert both.any()
    sums = before.probability[both] + before.second_probability[both]
    np.testing.assert_allclose(after.probability[both], sums)
    assert (after.second_cluster[both] == -1).all()
    pairs = read_contents(photo_run).pairs
    assert {frozenset((pair.first, pair.second)) for pair in pairs} == {frozenset((0, 2))}


def test_a_moved_sample_has_the_same_numbers_on_the_page_as_in_the_table(photo_run):
    """By Review.apply: probability 1, and the model's cluster second; the page says "moved"."""
    before = read_contents(photo_run).assigned
    row = int(np.flatnonzero(before.flag == "borderline")[0])
    target = int(before.second_cluster[row])
    review = {"format": "probagg.review/2", "moved": {before.names[row]: target}}
    (photo_run / "review.json").write_text(json.dumps(review))
    contents = read_contents(photo_run)
    assert np.flatnonzero(contents.moved).tolist() == [row]
    assert contents.samples.records() == contents.review.apply(before).records()
    assert contents.samples.probability[row] == 1.0
    html, document = report(photo_run)
    alts = [a["alt"] for a in document.all("img", **{"data-row": str(row)})]
    assert alts == [f"{before.names[row]}, cluster {target}, moved by hand"]
    assert f'title="Moved from: cluster {before.cluster[row]}"' in html


def test_typical_least_certain_and_farthest_are_as_defined(digits_run):
    contents = read_contents(digits_run)
    samples = contents.samples
    members = np.flatnonzero(samples.cluster == 3)
    typical, uncertain, farthest = select(contents, members, Counts(10, 5, 5))
    assert not set(typical) & set(uncertain) | set(uncertain) & set(farthest)
    clear = members[samples.flag[members] == ""]
    assert samples.probability[typical].min() >= np.sort(samples.probability[clear])[-10]
    flagged = members[samples.flag[members] == "borderline"]
    least = flagged[np.argsort((samples.probability - samples.second_probability)[flagged])][
        :5
    ].tolist()
    assert len(least) > 2
    assert uncertain[: len(least)] == least
    out = members[samples.flag[members] == "outlier"]
    ranked = out[np.argsort(-samples.distance[out])]
    assert farthest[: len(ranked)] == ranked[:5].tolist()


def test_samples_without_a_class_do_not_count_in_scores(digits_run):
    lines = (digits_run / "classes.csv").read_text().splitlines()
    (digits_run / "classes.csv").write_text("\n".join([lines[0], *lines[5:1005]]) + "\n")
    contents = read_contents(digits_run)
    expected = evaluate(contents.classes[4:1004], contents.samples.cluster[4:1004])
    assert class_scores(contents) == pytest.approx(expected | {"n": 1000})
    assert "of the 1,000 images that have one lie in" in words(report(digits_run)[1])


def test_a_matrix_shows_profiles_and_no_pictures(matrix_run):
    html, document = report(matrix_run)
    assert not document.all("img")
    table = re.search(r'<section id="profiles".*?</section>', html, re.S).group(0)
    assert table.count("<tr>") == 14
    assert "alcalinity_of_ash" in table
    assert "178 rows were grouped into 3 clusters" in words(document)
    assert "high in" in words(document)


def test_skipped_files_are_listed(photo_run):
    (photo_run / "skipped.csv").write_text("path,reason\nbad <i>.jpg,it is no image\n")
    html, document = report(photo_run)
    assert "1 file could not be used and was left out" in words(document)
    assert "bad &lt;i&gt;.jpg" in html


def test_the_command_and_the_settings_are_on_the_page(photo_run):
    env = json.loads((photo_run / "env.json").read_text())
    env["command"] = ["probagg", "cluster", "my photos", "-k", "3"]
    (photo_run / "env.json").write_text(json.dumps(env))
    reseal(photo_run)
    _, document = report(photo_run)
    assert "probagg cluster 'my photos' -k 3" in document.text
    assert 'method = "pac"' in document.text
    assert "name another one with --out, or add --overwrite" in words(document)


def test_features_that_do_not_fit_the_run_are_refused_in_one_line(photo_run):
    np.save(photo_run / "embeddings.npy", np.zeros((7, 3), np.float32))
    with pytest.raises(RunFolderError, match=r"shape is \(7, 3\), but 120 rows are needed"):
        write_report(photo_run)
    (photo_run / "embeddings.npy").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(RunFolderError, match=r"cannot be read as an array .* page without splits"):
        write_report(photo_run)


def test_headings_skip_no_level(photo_run, digits_run, matrix_run):
    for run in (photo_run, digits_run, matrix_run):
        _, document = report(run)
        ranks = [int(tag[1]) for tag, _ in document.elements if re.fullmatch("h[1-6]", tag)]
        assert ranks[0] == 1
        assert ranks.count(1) == 1
        assert all(b - a <= 1 for a, b in itertools.pairwise(ranks))
        assert document.all("html", lang="en")


def test_one_cluster_and_an_empty_cluster_can_be_shown(photo_run):
    header, *lines = (
        (photo_run / "assignments.csv").read_text().splitlines()[:1],
        "a.png,0,1.0,,,0.5,",
    )
    (photo_run / "assignments.csv").write_text("\n".join([*header, *lines]) + "\n")
    for name in ("classes.csv", "embeddings.npy"):
        (photo_run / name).unlink()
    reseal(photo_run)
    _, document = report(photo_run)
    assert "it is empty" in words(document)
    result = json.loads((photo_run / "result.json").read_text())
    (photo_run / "result.json").write_text(json.dumps({**result, "n_clusters": 1}))
    reseal(photo_run)
    for name in ("overlaps.csv", "env.json"):
        (photo_run / name).unlink()
    _, document = report(photo_run)
    assert "1 images were grouped into 1 cluster " in words(document)


def test_without_jinja2_one_line_names_the_packages(photo_run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ImportError, match="pip install jinja2 pillow"):
        write_report(photo_run)


def test_high_and_low_are_of_the_medians_that_are_shown():
    """A few cells of -999 made 1.61 high beside a low 1.73."""
    median = np.array([[1.73], [2.55], [1.61]])
    mean = median - np.array([[60.0], [0.0], [2.0]])
    profiles = Profiles([0, 1, 2], ["malic"], ["number"], mean, median, median, median)
    found = _contrasts(SimpleNamespace(profiles=profiles))
    assert found == {0: ([], ["malic"]), 1: (["malic"], []), 2: ([], ["malic"])}


def test_a_column_that_differs_by_chance_does_not_describe_a_cluster():
    """A random category and a noisy number were named before the price that made the clusters."""
    median = np.array([[300.0, 0.48, 5.2], [1900.0, 0.52, 5.0]])
    apart = np.array([100.0, 0.0, 2.0])
    profiles = Profiles(
        [0, 1], ["price", "channel = A", "noise"], ["number", "share", "number"],
        median, median - apart, median, median + apart,
    )  # fmt: skip
    found = _contrasts(SimpleNamespace(profiles=profiles))
    assert found == {0: ([], ["price"]), 1: (["price"], [])}


def test_levels_of_similar_clusters_fold_and_lack_what_was_merged(photo_run):
    assert 'id="levels"' not in report(photo_run)[0], "this run has no yardstick"
    centers = np.array([[0.0], [1.0], [9.0]])
    Yardstick("sqeuclidean", centers, np.ones(3)).save(photo_run / "yardstick.safetensors")
    html, document = report(photo_run)
    contents = read_contents(photo_run)
    K = contents.n_clusters
    tree = replace(contents, merges=[(0, 1), (2, K)] if K == 3 else []).tree
    assert tree.clusters == [2, 0, 1]
    assert tree.size == len(contents.assigned)
    assert 'id="levels"' in html
    assert f"{K} clusters {tree.size}" in document.text
    write_review(photo_run, Review(merged={0: 1}))
    assert 'id="levels"' not in report(photo_run)[0], "of two clusters there is no tree"

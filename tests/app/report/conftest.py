"""Run folders of real clusterings, in the format of `probagg cluster`, and a browser."""

import csv
import json
import shutil

import numpy as np
import pytest
import tomli_w
from sklearn.datasets import load_wine

from probagg import PAC
from probagg.app.assignments import Assignments, overlaps
from probagg.app.run.folder import RunFolder
from probagg.environment import environment
from probagg.metrics import evaluate

HOSTILE = [  # valid file names that a page must show as text
    "<img src=x onerror=window.__pwned=1>.png",
    "'\" onmouseover='window.__pwned=1' x=\".png",
    "a.png' onerror='window.__pwned=1.png",
    "<script>window.__pwned=1<",
    "{{ 7 * 7 }} &lt;b&gt; \u2028 ]]>.png",
    "two\nlines.png",
    "reverse\u202egpj.exe.png",
    "\U0001f431\u200d\U0001f680 caf\u00e9 \u732b.png",
    "100% #1?.png",
]

COLUMNS = ["cluster", "probability", "second_cluster", "second_probability", "distance", "flag"]


def write_table(path, header, rows):
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


def write_overlaps(path, P):
    """Write overlaps.csv as `probagg cluster` does."""
    pairs = overlaps(P, Assignments.of(P, P, None, range(len(P))))
    rows = [(first, second, f"{mean:.6g}", n) for first, second, mean, n in pairs]
    write_table(path, ["first", "second", "mean_probability", "samples"], rows)


def write_profiles(path, X, labels, columns):
    rows = []
    for k in np.unique(labels):
        quarters = np.percentile(X[labels == k], [25, 50, 75], axis=0)
        means = X[labels == k].mean(axis=0)
        rows += [(k, column, means[j], *quarters[:, j]) for j, column in enumerate(columns)]
    write_table(path, ["cluster", "column", "mean", "q25", "median", "q75"], rows)


def write_run(folder, X, P, *, config, names=None, classes=None, columns=None, **facts):
    """Write a run folder from features X and probabilities P (at least two clusters)."""
    N, K = P.shape
    ranked, p = (-P).argsort(axis=1, kind="stable"), -np.sort(-P, axis=1)
    labels = ranked[:, 0]
    means = (P.T @ X) / np.maximum(P.sum(axis=0), 1e-12)[:, None]
    distance = np.linalg.norm(X - means[labels], axis=1)
    borderline = p[:, 0] - p[:, 1] < 0.2
    far = distance > np.percentile(distance, 98)
    flags = np.where(far, "outlier", np.where(borderline, "borderline", ""))
    scores = {} if classes is None else evaluate(classes, labels)
    result = {
        "run": str(folder), "method": config["method"], "n_clusters": K,
        "sizes": np.bincount(labels, minlength=K).tolist(), "seconds": 12.5, "n_samples": N,
        "n_skipped": 0, "n_borderline": int((flags == "borderline").sum()),
        "n_outliers": int(far.sum()), **scores, **facts,
    }  # fmt: skip
    what, names = ("row", range(N)) if names is None else ("path", names)
    with RunFolder(folder) as run:
        run.write("config.toml", tomli_w.dumps(config))
        run.write("env.json", json.dumps(environment()))
        run.write("result.json", json.dumps(result))
        header = [
            what,
            *["cluster", "probability", "second_cluster", "second_probability", "distance", "flag"],
        ]
        body = zip(names, labels, p[:, 0], ranked[:, 1], p[:, 1], distance, flags, strict=True)
        write_table(folder / "assignments.csv", header, body)
        write_overlaps(folder / "overlaps.csv", P)
        if classes is not None:
            write_table(folder / "classes.csv", [what, "class"], zip(names, classes, strict=True))
        if columns is not None:
            write_profiles(folder / "profiles.csv", X, labels, columns)
        else:
            np.save(folder / "embeddings.npy", X.astype(np.float32))
    return folder


def draw_shape(kind, rng, size=64):
    """Draw a disc, a square or a cross in the colour of its kind, with some noise."""
    from PIL import Image, ImageDraw

    back = tuple(int(v) for v in rng.integers(225, 250, 3))
    image = Image.new("RGB", (size, size), back)
    draw = ImageDraw.Draw(image)
    colour = np.array([(200, 70, 60), (50, 120, 190), (60, 150, 90)][kind])
    ink = tuple(int(v) for v in np.clip(colour + rng.integers(-25, 25, 3), 0, 255))
    x, y, r = rng.integers(26, 38), rng.integers(26, 38), rng.integers(14, 22)
    if kind == 0:
        draw.ellipse((x - r, y - r, x + r, y + r), fill=ink)
    elif kind == 1:
        draw.rectangle((x - r, y - r, x + r, y + r), fill=ink)
    else:
        draw.line((x - r, y - r, x + r, y + r), fill=ink, width=10)
        draw.line((x - r, y + r, x + r, y - r), fill=ink, width=10)
    return image


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder of 120 drawn pictures of three kinds; some names are hostile."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("photos")
    for i in range(120):
        kind = ("disc", "square", "cross")[i % 3]
        (folder / kind).mkdir(exist_ok=True)
        name = HOSTILE[i].replace("/", "") if i < len(HOSTILE) else f"{kind} {i:03d}.png"
        name = name if name.endswith(".png") else name + ".png"
        draw_shape(i % 3, rng).save(folder / kind / name)
    return folder


@pytest.fixture(scope="session")
def photo_run_once(photos, tmp_path_factory):
    from probagg.data.opening import open_images

    images = open_images(photos, size=16)
    X = images.read(np.arange(len(images))).reshape(len(images), -1) / 255.0
    pac = PAC(3, m=1.2, random_state=0).fit(X)
    config = {"source": str(photos), "method": "pac", "n_clusters": 3, "seed": 0,
              "kind": "images", "pac": {"m": 1.2}}  # fmt: skip
    return write_run(
        tmp_path_factory.mktemp("runs") / "photos", X, pac.probabilities_, config=config,
        names=images.paths, classes=[path.partition("/")[0] for path in images.paths],
    )  # fmt: skip


@pytest.fixture(scope="session")
def digits_run_once(digits, tmp_path_factory):
    X, y = digits
    pac = PAC(12, m=1.08, random_state=0).fit(X)
    config = {"source": "digits", "method": "pac", "n_clusters": 12, "seed": 0, "kind": "images",
              "pac": {"m": 1.08}}  # fmt: skip
    return write_run(
        tmp_path_factory.mktemp("runs") / "digits", X, pac.probabilities_, config=config,
        classes=y.astype(str).tolist(),
        k_reason="12 clusters are the most that stay the same from seed to seed.",
    )  # fmt: skip


@pytest.fixture(scope="session")
def matrix_run_once(tmp_path_factory):
    wine = load_wine()
    X = (wine.data - wine.data.mean(axis=0)) / wine.data.std(axis=0)
    pac = PAC(3, m=1.2, random_state=0).fit(X)
    config = {"source": "/data/wine.csv", "method": "pac", "n_clusters": 3, "seed": 0,
              "kind": "matrix", "pac": {"m": 1.2}}  # fmt: skip
    folder = tmp_path_factory.mktemp("runs") / "wine"
    write_run(
        folder, X, pac.probabilities_, config=config, columns=wine.feature_names,
    )  # fmt: skip
    write_profiles(folder / "profiles.csv", wine.data, pac.labels_, wine.feature_names)
    return folder


@pytest.fixture
def photo_run(photo_run_once, tmp_path):
    """120 drawn pictures in 3 clusters, with classes; each test gets a copy."""
    return shutil.copytree(photo_run_once, tmp_path / "photo_run")


@pytest.fixture
def digits_run(digits_run_once, tmp_path):
    """1797 digits of 8 pixels in 12 clusters, from an array and not from files."""
    return shutil.copytree(digits_run_once, tmp_path / "digits_run")


@pytest.fixture
def matrix_run(matrix_run_once, tmp_path):
    """178 rows of 13 columns in 3 clusters."""
    return shutil.copytree(matrix_run_once, tmp_path / "matrix_run")


@pytest.fixture
def large_run(tmp_path):
    """50,000 rows in 100 clusters."""
    labels = np.arange(50_000) % 100
    folder = tmp_path / "large_run"
    with RunFolder(folder) as run:
        run.write("config.toml", tomli_w.dumps({"source": "/data/large.npy", "method": "pac",
                  "n_clusters": 100, "seed": 0, "kind": "matrix", "pac": {}}))  # fmt: skip
        run.write("env.json", json.dumps(environment()))
        run.write("result.json", json.dumps({"method": "pac", "n_clusters": 100, "seconds": 60.0}))
        header = ["row", *COLUMNS]
        body = ((i, k, 0.9, (k + 1) % 100, 0.1, 1.0, "") for i, k in enumerate(labels))
        write_table(folder / "assignments.csv", header, body)
    return folder


@pytest.fixture(scope="session")
def browser():
    """Headless chromium; tests that need it are skipped, with the reason, where it is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser):
    """new_page(width=1280, theme="light") -> a page with `.complaints` and `.requests`.

    Complaints are console errors and warnings, uncaught errors and dialogs; requests are the
    addresses that the page requested.
    """
    contexts = []

    def create(width=1280, height=900, theme="light", **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.complaints, page.requests = [], []
        page.on(
            "console", lambda m: m.type in ("error", "warning") and page.complaints.append(m.text)
        )
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda box: (page.complaints.append(box.message), box.dismiss()))
        page.on("request", lambda request: page.requests.append(request.url))
        return page

    yield create
    for context in contexts:
        context.close()

"""report.html from the contents of a run."""

import base64
import hashlib
import math
import shlex
from collections import Counter
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from probagg.app.report.contents import Contents
from probagg.app.report.groups import (
    PAIRS,
    Counts,
    amount,
    between,
    cell,
    class_scores,
    describe_clusters,
    palette,
)
from probagg.app.report.thumbnails import TINY, data_uris, image_rows, picture_counts, side_of
from probagg.data.images import ImageSet
from probagg.errors import import_optional
from probagg.progress import duration
from probagg.storage import read_bytes

SHARED = Path(__file__).parent / "templates"
TEMPLATES = SHARED / "page"
SCRIPTS = ("report.js", "enlarge.js")
# With more clusters, each is closed at first.
MANY = 20
EXAMPLES = 4  # samples shown between two clusters
MOVED = 8  # samples shown that moved from one cluster to another
ROWS = Counts(16, 8, 8)  # rows of a matrix per cluster


def render_page(contents: Contents, images: ImageSet | None, reason: str) -> bytes:
    """Return the page of a run in UTF-8.

    Without `images`, `reason` says why, and names are shown. The more clusters there are, the fewer
    and the smaller are the pictures of each, so that a browser opens the page quickly.
    """
    return Page(contents, images, reason).render().encode("utf-8", "replace")


class Page:
    """What the templates read."""

    def __init__(self, contents: Contents, images: ImageSet | None, reason: str) -> None:
        self.contents, self._images = contents, images
        counts = picture_counts(len(contents.clusters)) if contents.has_images else ROWS
        source = str(contents.config.get("source", "")) or contents.run.name
        self.title = PurePath(source).name or source
        self.what = "images" if contents.has_images else "rows"
        self.command = shlex.join(map(str, contents.env.get("command") or []))
        self.clusters = describe_clusters(contents, counts)
        self.by_number = {cluster.number: cluster for cluster in self.clusters}
        self.by_size = sorted(self.clusters, key=lambda cluster: -cluster.size)
        self.many = len(self.clusters) > MANY
        self.n_kept = int(contents.kept.sum())
        self.n_shown = sum(len(cluster.rows) for cluster in self.clusters)
        self.n_flagged = Counter(contents.samples.flag.tolist())
        places = () if contents.places is None else zip(*contents.places, strict=True)
        self.dots = [(int(row), x, y) for row, (x, y) in places if contents.kept[row]]
        self.discarded = np.flatnonzero(~contents.kept).tolist()
        self.why_no_images = reason
        self._side = side_of(images)
        # Pictures are so small that they are shown with sharp edges.
        self.pixelated = self._side <= TINY
        self.pairs = [
            (pair, rows)
            for pair in contents.pairs[:PAIRS]
            if pair.samples and (rows := between(contents, pair, EXAMPLES))
        ]
        self.flows = contents.flows[:PAIRS]
        self.scores = class_scores(contents)
        self._uris: dict[int, str | None] = {}
        self._placed: set[int] = set()

    @property
    def rows(self) -> list[int]:
        """The samples on the page, each as often as it is shown."""
        shown = [row for cluster in self.clusters for row in cluster.rows]
        shown += [row for _, rows in self.pairs for row in rows]
        return shown + [row for _, _, rows in self.flows for row in rows[:MOVED]]

    def render(self) -> str:
        """Return the page as text."""
        if self.contents.has_images:
            places = image_rows(self._images, self.contents.samples)
            self._uris = data_uris(self._images, places, self.rows, self._side)
        self._placed = set()
        css = _read(SHARED, "style.css") + _read(TEMPLATES, "report.css")
        for k, (light, dark) in enumerate(palette(len(self.contents.groups))):
            css += f".k{k} {{ --cluster: light-dark({light}, {dark}); }}\n"
        theme = _read(SHARED, "theme.js")
        script = "".join(_read(TEMPLATES, name) for name in SCRIPTS)
        policy = (
            f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
            f"style-src {_digest(css)}; script-src {_digest(theme)} {_digest(script)}"
        )
        template = _environment().get_template("report.html")
        return template.render(
            page=self, run=self.contents, css=css, theme=theme, script=script, policy=policy
        )

    def embed(self, row: int) -> str | None:
        """Return the picture of a sample where it is first shown; the script copies it later on."""
        if row in self._placed:
            return None
        self._placed.add(row)
        return self._uris.get(row)

    def has_picture(self, row: int) -> bool:
        """Return whether the page holds a picture of this sample."""
        return bool(self._uris.get(row))


def _digest(text: str) -> str:
    """Return the source expression of a Content-Security-Policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(folder: Path, name: str) -> str:
    return read_bytes(folder / name).decode()


def _environment() -> Any:
    jinja2 = import_optional("jinja2", "A report", "report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        count=lambda n: f"{n:,}",
        percent=percent,
        p=probability,
        duration=duration,
        amount=amount,
        cell=cell,
    )
    return environment


def percent(share: float) -> str:
    """Return a share in per cent, with one more digit where it is small.

    >>> percent(0.5), percent(0.0123), percent(0.0)
    ('50%', '1.2%', '0%')
    """
    digits = 1 if 0 < share < 0.1 else 0
    return f"{100 * share:.{digits}f}%"


def probability(p: float) -> str:
    """Return a probability with two digits; "-" where it is unknown."""
    return f"{p:.2f}" if math.isfinite(p) else "-"

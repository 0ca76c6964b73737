"""A run in a notebook cell: sizes and typical images, as a small piece of HTML."""

from __future__ import annotations

import html

from probagg.app.report.contents import Contents
from probagg.app.report.page.groups import Counts, describe_clusters
from probagg.app.report.page.thumbnails import Level, Thumbnails
from probagg.data.images import ImageSet

TYPICAL = 6  # images per cluster
MOST = 30  # clusters that are shown
LEVEL = Level(Counts(TYPICAL, 0, 0), 56, 70)


def render_summary(contents: Contents, images: ImageSet | None, title: str) -> str:
    """Return a table with one line per cluster: name, size and typical samples."""
    clusters = sorted(describe_clusters(contents, LEVEL.counts), key=lambda c: -c.size)
    shown = clusters[:MOST]
    thumbnails = Thumbnails(images, contents.samples)
    uris = thumbnails.make([row for c in shown for row in c.typical], LEVEL)
    lines = []
    for cluster in shown:
        samples = "".join(_picture(uris[row], contents.title_of(row)) for row in cluster.typical)
        lines.append(
            f"<tr><td>{html.escape(cluster.name)}</td><td>{cluster.size:,}</td>"
            f"<td style='text-align:left'>{samples}</td></tr>"
        )
    more = f"<p>and {len(clusters) - MOST} smaller clusters</p>" if len(clusters) > MOST else ""
    head = "<tr><th>cluster</th><th>size</th><th style='text-align:left'>typical</th></tr>"
    return f"<p><b>{html.escape(title)}</b></p><table>{head}{''.join(lines)}</table>{more}"


def _picture(uri: str | None, title: str) -> str:
    name = html.escape(title.encode("utf-8", "replace").decode(), quote=True)
    if uri is None:
        return f"<code>{name}</code> "
    return f'<img src="{uri}" title="{name}" height="56" style="margin:1px;display:inline">'

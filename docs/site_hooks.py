"""MkDocs hooks: give the site the files outside docs/ that its pages link to.

The site is laid out as the repository is, with docs/ as its root. README.md is the start page; an
example becomes a page with its code; a result file is served as it is. Links are written as paths
in the repository, so that they also work there, and are translated here.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = (
    "*.md",
    "CITATION.cff",
    "benchmarks/README.md",
    "benchmarks/notes/*.md",
    "benchmarks/paper/expected.toml",
    "benchmarks/results/*/*.json",
    "src/probagg/dpac/recipes/**/*.toml",
)
CODE = ("examples/*.py",)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def site_path(path: str) -> str:
    """Return where a file of the repository is in the site."""
    path = path.removeprefix("docs/")
    return f"{path.removesuffix('.py')}.md" if path.endswith(".py") else path


def on_files(files: Files, config: Any) -> Files:
    """Add the files outside docs/."""
    for pattern in OUTSIDE + CODE:
        for path in sorted(ROOT.glob(pattern)):
            name, text = path.relative_to(ROOT).as_posix(), path.read_text()
            if pattern in CODE:
                text = f"# {name}\n\n```python\n{text}```\n"
            file = File.generated(config, site_path(name), content=text)
            file.repository_path = name
            files.append(file)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Translate links from paths in the repository to paths in the site."""
    here = getattr(page.file, "repository_path", f"docs/{page.file.src_uri}")

    def translate(link: re.Match[str]) -> str:
        target = site_path(normpath(join(dirname(here), link[1])))
        return relpath(target, dirname(page.file.src_uri) or ".")

    return LINK.sub(translate, markdown)

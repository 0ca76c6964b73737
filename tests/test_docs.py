"""What the documents say is true: snippets run, and every name they cite exists."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets():
    for document in DOCUMENTS:
        for i, code in enumerate(re.findall(r"```python\n(.*?)```", document.read_text(), re.S)):
            yield pytest.param(code, id=f"{document.name}-{i}")


@pytest.mark.parametrize("code", list(snippets()))
def test_every_python_snippet_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "snippet", "exec"), {})


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_runs(path, tmp_path):
    subprocess.run([sys.executable, path], cwd=tmp_path, check=True, capture_output=True)


def names_in(path):
    """Functions, classes, methods and constants that a Python file defines."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


CITED = re.findall(r"`([\w/.]+\.py)::(\w+)`", (ROOT / "PAPER.md").read_text())


def test_paper_md_cites_names():
    assert len(CITED) > 20


@pytest.mark.parametrize(("file", "name"), sorted(set(CITED)))
def test_every_name_that_paper_md_cites_exists(file, name):
    assert name in names_in(ROOT / file)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_every_local_link_leads_somewhere(document):
    text = document.read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (document.parent / target).exists(), target

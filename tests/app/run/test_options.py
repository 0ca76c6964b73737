"""Every option of a clustering is the same for Python and for the command line."""

import inspect
import re
from dataclasses import fields
from typing import get_type_hints

import numpy as np
import pytest
import typer

import probagg
from probagg.app.cli.commands import app
from probagg.app.run.options import DPAC, PAC, Options
from probagg.errors import InputError

OPTIONS = {field.name: field for field in fields(Options)}


def parameters():
    """The parameters of `probagg.cluster`, without those that are not options."""
    found = inspect.signature(probagg.cluster).parameters
    return {name: p for name, p in found.items() if name not in ("source", "verbose")}


def test_cluster_takes_every_option_with_its_type_and_default():
    assert {name: p.default for name, p in parameters().items()} == {
        name: field.default for name, field in OPTIONS.items()
    }
    hints = get_type_hints(probagg.cluster)
    assert {name: hints[name] for name in OPTIONS} == get_type_hints(Options)


def test_the_docstring_of_cluster_names_every_option():
    text = probagg.cluster.__doc__.partition("Returns\n")[0]
    heads = re.findall(r"^    (\w[\w, ]*?)(?: :.*)?$", text, re.M)
    named = [name for head in heads for name in head.split(", ")]
    assert sorted(set(named) & set(OPTIONS)) == sorted(OPTIONS)


def test_the_command_has_every_option_with_its_default():
    params = {p.name: p for p in typer.main.get_command(app).commands["cluster"].params}
    for name, field in OPTIONS.items():
        assert params[name].default == field.default
        assert params[name].help == Options.spelling(name).help


@pytest.mark.parametrize("method", [PAC, DPAC])
def test_an_option_that_a_method_does_not_use_is_refused(method, tmp_path):
    images = np.zeros((4, 8, 8), np.uint8)
    for name in OPTIONS:
        spelling = Options.spelling(name)
        if method in spelling.methods:
            continue
        options = Options(2, out=tmp_path / "run", method=method, **{name: "given"})
        with pytest.raises(InputError, match=f"{name}: not used by method {method}"):
            options.checked(images)


def test_options_at_their_defaults_are_not_given():
    assert Options(overwrite=False, smooth=None).given("overwrite", "smooth", "m") == {}
    assert Options(smooth=False, m=1.1).given("smooth", "m") == {"smooth": False, "m": 1.1}


def test_without_a_random_state_the_run_records_the_seed_that_was_drawn(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    runs = [
        probagg.cluster(X, 3, out=tmp_path / str(i), random_state=None, report=False)
        for i in range(2)
    ]
    first, second = (run.config["seed"] for run in runs)
    assert first != second
    again = probagg.cluster(X, 3, out=tmp_path / "again", random_state=first, report=False)
    table = (runs[0].path / "assignments.csv").read_bytes()
    assert (again.path / "assignments.csv").read_bytes() == table

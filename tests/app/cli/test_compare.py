"""probagg compare: mistakes, help, and the line of a method."""

import json

import numpy as np
import pytest
from commands import probagg

from probagg.app.cli.compare import _line


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("compare", "digit", "-k", 10), 3, "Did you mean 'digits'?"),
        (("compare", "digits", "--size", "small"), 2, "No such option: --size"),
        (("compare", "digits", "pendigits"), 2, "unexpected extra argument"),
        (("compare", "-k", 10, "digits", "--only", "pac"), 2, "No such option: --only"),
        (("compare", "digits", "-k", "auto"), 2, "compare runs methods for one number of clusters"),
        (("bench", "digits", "-k", 10), 2, "No such command 'bench'"),
    ],
)
def test_mistakes_are_one_clear_line(words, code, says):
    result = probagg(*words)
    assert result.exit_code == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr


OWN = """
import numpy as np
def halves(X, n_clusters, random_state):
    return (X[:, 0] > np.median(X[:, 0])).astype(int)
"""


def test_a_method_of_one_s_own_is_compared(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(60, 3)))
    own = f"{tmp_path / 'own.py'}:halves"
    compare = ("compare", tmp_path / "X.npy", "-k", 2, "--seeds", 2, "--json", "--methods")
    result = probagg(*compare, f"pac,{own}")
    assert result.exit_code == 0, result.stderr
    methods = {row["method"]: row for row in json.loads(result.stdout)["methods"]}
    assert methods[own]["agreement"] == 1.0
    assert "possible are pac, " in probagg(*compare, "nosuch").stderr
    assert "has no function thirds" in probagg(*compare, own.replace("halves", "thirds")).stderr


def test_the_help_has_an_example():
    assert "probagg compare photos/ -k 10" in probagg("compare", "--help").stdout


@pytest.mark.parametrize(
    ("shares", "printed"),
    [
        ((0.5,), "ACC 50.0  "),
        ((0.5, 0.52), "ACC 50.0, 52.0  "),
        ((0.5, 0.6, 0.7), "ACC 50.0, 60.0, 70.0  "),
        ((0.5, 0.6, 0.7, 0.8), "ACC 65.0 ± 12.9  "),
    ],
)
def test_few_seeds_are_printed_as_values_and_more_with_the_deviation_of_the_sample(shares, printed):
    runs = [{"seed": seed, "seconds": 1.0, "acc": acc} for seed, acc in enumerate(shares)]
    assert printed in _line({"method": "pac", "runs": runs, "agreement": None})

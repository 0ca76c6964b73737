"""The solver under PAC."""

import inspect
import warnings
from dataclasses import fields

import numpy as np
import pytest

from probagg import PAC
from probagg.pac.solver import Parameters, solve


def test_parameters_and_defaults_are_those_of_pac():
    signature = inspect.signature(PAC).parameters
    expected = {name: parameter.default for name, parameter in signature.items()}
    for name in ("forgetting", "device"):  # of streams, and of rows before they are solved
        del expected[name]
    assert {field.name: field.default for field in fields(Parameters)} == expected


@pytest.mark.parametrize("options", [{}, {"metric": "manhattan", "init": "annealed", "n_init": 2}])
def test_the_solution_is_what_pac_fits(blobs, options):
    X, w = blobs[0], np.arange(1.0, 301.0)
    pac = PAC(3, random_state=1, **options).fit(X, sample_weight=w)
    solution = solve(X, Parameters(3, random_state=1, **options), w)
    np.testing.assert_array_equal(solution.P, pac.probabilities_)
    assert solution.history == pac.objective_history_
    assert solution.clusters.critical_m == pac.critical_m_


def test_the_solver_does_not_warn(blobs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution = solve(blobs[0], Parameters(3, max_iter=1, random_state=0))
    assert not solution.converged

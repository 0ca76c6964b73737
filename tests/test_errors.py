"""Messages about packages that are not installed, and where warnings point."""

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline

from probagg import PAC, diagnose
from probagg.errors import EXTRAS, import_optional


def test_every_extra_installs_the_packages_of_pyproject():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        assert [re.match(r"[\w-]+", package)[0] for package in packages] == [
            re.match(r"[\w-]+", entry)[0] for entry in declared[extra]
        ]
        assert {package for package in packages if ">=" in package} <= set(declared[extra])


def test_a_missing_package_is_one_line_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    message = "^A page needs Jinja2, which is not installed: pip install jinja2 pillow$"
    with pytest.raises(ModuleNotFoundError, match=message):
        import_optional("jinja2", "A page", "report")
    assert import_optional("json", "A page", "report").loads("1") == 1


@pytest.mark.parametrize("call", [
    lambda X: diagnose(torch.tensor(X), torch.full((200, 4), 0.25)),
    lambda X: make_pipeline(PAC(3, m=1.9, random_state=0)).fit(X),
])  # fmt: skip
def test_a_warning_points_at_the_line_that_called_probagg(call):
    """However deep it is raised: in a decorated function, in an estimator of a pipeline."""
    with pytest.warns(UserWarning, match="uniform") as found:
        call(np.repeat(np.eye(4), 50, 0))
    assert {warning.filename for warning in found} == {__file__}

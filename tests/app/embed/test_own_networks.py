"""A user's own networks: functions of a module."""

import sys
from pathlib import Path

import pytest
import torch

from probagg.app.embed.backbone import BackboneError
from probagg.app.embed.opening import open_backbone

SOURCE = """
import torch

def plain():
    torch.manual_seed(0)
    return torch.nn.Conv2d(3, 4, 7)

def with_transform():
    import numpy as np
    def small(image):
        pixels = np.asarray(image.resize((20, 20)), np.float32) / 255
        return torch.from_numpy(pixels).permute(2, 0, 1)
    return plain(), small

def any_size():
    import numpy as np
    return plain(), lambda image: np.asarray(image, np.float32).transpose(2, 0, 1)

def several():
    class Two(torch.nn.Module):
        def forward(self, images):
            return images, images
    return Two()

def wrong_channels():
    return torch.nn.Conv2d(1, 4, 7)
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Write a module with a new name, because Python caches imports, in the current folder."""
    name = "own_" + tmp_path.name.replace("-", "_")
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return name


def test_a_function_of_a_module_in_the_current_folder_is_opened(own_module, picture):
    path, state = list(sys.path), torch.random.get_rng_state()
    plain = open_backbone(f"{own_module}:plain", device="cpu")
    assert sys.path == path
    assert torch.equal(state, torch.random.get_rng_state())
    assert (plain.n_features, plain.size, plain.resize) == (4, 224, 256)
    own = open_backbone(f"{own_module}:with_transform", device="cpu")
    assert (own.n_features, own.size, own.mean, own.resize) == (4, 20, None, None)
    assert own.prepare(picture).shape == (3, 20, 20)
    again = open_backbone(f"{own_module}:with_transform", device="cpu")
    assert own.identity == again.identity != plain.identity


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("any_size", r"returns shapes \(3, 240, 320\), \(3, 320, 240\), but one"),
        ("several", "cannot take a batch of pictures .*returns a tuple, not one tensor"),
        ("wrong_channels", r"cannot take a batch of pictures \(2, 3, 224, 224\)"),
    ],
)
def test_a_function_with_an_unusable_result_is_refused(own_module, function, message):
    with pytest.raises(BackboneError, match=message):
        open_backbone(f"{own_module}:{function}", device="cpu")


def test_an_edited_function_is_another_backbone(own_module):
    """The forward of a module is code, which its weights do not identify."""

    def identity():
        sys.modules.pop(own_module, None)  # as in another process
        return open_backbone(f"{own_module}:plain", device="cpu").identity

    first = identity()
    assert identity() == first
    file = Path(f"{own_module}.py")
    file.write_text(file.read_text() + "\n# changed\n")
    assert identity() != first

"""A user's own networks: ONNX files and functions of a module."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from probagg.app.embed import BackboneError, open_backbone, reopen_backbone


class Strided(torch.nn.Module):
    """A convolution whose output has two spatial axes."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Conv2d(3, 6, 4, 4)

    def forward(self, images):
        return self.body(images)


def export(network, path, shape=(2, 3, 64, 64), dynamic=("n",), dtype=torch.float32):
    axes = {"images": {("n", "c", "h", "w").index(name): name for name in dynamic}}
    torch.onnx.export(
        network,
        (torch.zeros(shape, dtype=dtype),),
        path,
        input_names=["images"],
        dynamic_axes=axes,
        dynamo=False,
    )
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_onnx_file_computes_the_features_of_its_network(tmp_path, picture):
    network = Strided().eval()
    path = export(network, tmp_path / "net.onnx")
    backbone = open_backbone(str(path), device="cpu")
    assert (backbone.size, backbone.resize, backbone.module) == (64, 73, None)
    image = backbone.prepare(picture)
    with torch.no_grad():
        expected = network(torch.from_numpy(image)[None]).mean((2, 3)).numpy()
    np.testing.assert_allclose(backbone(image[None]), expected, atol=1e-5)
    assert backbone.n_features == 6
    free = export(network, tmp_path / "free.onnx", dynamic=("n", "h", "w"))
    assert open_backbone(str(free), device="cpu").size == 224


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_onnx_file_is_identified_by_its_content(tmp_path):
    path = export(Strided(), tmp_path / "net.onnx")
    first = open_backbone(str(path), device="cpu")
    assert reopen_backbone(first.spec(), device="cpu").identity == first.identity
    export(Strided(), path)
    assert open_backbone(str(path), device="cpu").identity != first.identity


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("shape", "dynamic", "layer"),
    [
        ((2, 3, 64, 64), (), Strided()),
        ((2, 1, 64, 64), ("n",), torch.nn.Conv2d(1, 2, 3)),
        ((2, 3, 64, 48), ("n",), Strided()),
        ((2, 3), ("n",), torch.nn.Linear(3, 2)),
    ],
    ids=["fixed batch", "grey", "oblong", "flat"],
)
def test_an_onnx_file_with_another_input_is_refused(tmp_path, shape, dynamic, layer):
    path = export(layer, tmp_path / "net.onnx", shape, dynamic)
    with pytest.raises(BackboneError, match=r"takes images tensor.*but one float32 input \(n, 3,"):
        open_backbone(str(path), device="cpu")


def test_a_file_that_is_not_an_onnx_model_is_refused(tmp_path):
    (tmp_path / "net.onnx").write_text("hello")
    with pytest.raises(BackboneError, match="is not an ONNX model that onnxruntime can run"):
        open_backbone(str(tmp_path / "net.onnx"), device="cpu")


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

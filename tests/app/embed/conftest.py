import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from probagg.app.embed.backbone import Preprocessing
from probagg.app.embed.networks import torch_backbone


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    """Every test has its own cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PROBAGG_CACHE", str(folder))
    return folder


class Counting(nn.Module):
    """A small network on a 2 x 2 grid of mean colours that counts its inputs."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.mix = nn.Linear(12, 5)
        self.batches = []
        self.most = 10**6  # images that fit into its memory

    @property
    def seen(self):
        return sum(self.batches)

    def forward(self, images):
        if len(images) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.batches.append(len(images))
        return self.mix(nn.functional.adaptive_avg_pool2d(images, 2).flatten(1))


@pytest.fixture
def network():
    return Counting()


@pytest.fixture
def backbone_of():
    def make(network, view=None):
        view = view or Preprocessing(32, 36)
        backbone = torch_backbone(
            "counting", network, view, facts=(view,), device="cpu", **view.numbers()
        )
        network.batches = []  # opening runs blank pictures
        return backbone

    return make


@pytest.fixture
def backbone(network, backbone_of):
    return backbone_of(network)


@pytest.fixture
def write_photo():
    """Return a function that writes a photo of coloured patches, different for each number."""

    def write(path, number, size=(48, 40)):
        path.parent.mkdir(parents=True, exist_ok=True)
        colours = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(colours).resize(size, Image.Resampling.BICUBIC).save(path)

    return write


@pytest.fixture
def photos(tmp_path, write_photo):
    """Write ten photos of different sizes; return their folder."""
    for number in range(10):
        write_photo(tmp_path / "photos" / f"{number}.png", number, (40 + number, 60 - number))
    return tmp_path / "photos"


@pytest.fixture
def picture(rng):
    pixels = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((350, 250), Image.Resampling.BICUBIC)

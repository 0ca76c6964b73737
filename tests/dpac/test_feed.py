"""Batch norm statistics of clean views."""

import numpy as np
import pytest
import torch
from torch import nn

from probagg.dpac import feed as module
from probagg.dpac.feed import Feed, estimate_statistics
from probagg.dpac.recipe import ViewSettings
from probagg.dpac.views import Views


class Noise:
    """Random images whose later ones are brighter, as in a folder that is sorted."""

    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.array = np.linspace(50, 200, n)[:, None, None, None] + rng.normal(0, 20, (n, 8, 8, 3))
        self.array = self.array.clip(0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.array)

    def read(self, rows):
        return self.array[rows]


def network(*layers):
    return nn.Sequential(nn.Conv2d(3, 4, 3), *layers, nn.Flatten())


@pytest.mark.parametrize("n", [2, 65, 400])
def test_statistics_are_those_of_all_clean_views(n, monkeypatch):
    """In several batches, of which none may have a single image."""
    monkeypatch.setattr(module, "PIXELS", 64 * 64)
    views, images = Views(ViewSettings(size=8)), Noise(n)
    net = network(nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4)).train()
    net(torch.randn(30, 3, 8, 8))
    estimate_statistics(net, views, Feed(images, torch.device("cpu")))
    with torch.no_grad():
        expected = net[0](views.clean(torch.from_numpy(images.array)))
    norm = net[1]
    torch.testing.assert_close(norm.running_mean, expected.mean((0, 2, 3)), atol=0.01, rtol=0.01)
    torch.testing.assert_close(norm.running_var, expected.var((0, 2, 3)), atol=0.02, rtol=0.05)
    assert norm.momentum == 0.1
    assert net.training


def test_only_batch_norm_is_changed():
    """Dropout is off while statistics are estimated, and group norm has none."""
    feed, views = Feed(Noise(50), torch.device("cpu")), Views(ViewSettings(size=8))
    states = []
    for _ in range(2):
        torch.manual_seed(len(states))
        net = network(nn.Dropout(0.5), nn.GroupNorm(1, 4), nn.BatchNorm2d(4)).eval()
        net[0].load_state_dict(states[0]) if states else states.append(net[0].state_dict())
        estimate_statistics(net, views, feed)
        states.append(net[3].running_mean)
    assert torch.equal(states[1], states[2])
    assert not any(layer.training for layer in net.modules())


def test_a_network_without_batch_norm_is_not_run():
    net = network(nn.GroupNorm(1, 4))
    net.forward = None
    estimate_statistics(net, Views(ViewSettings(size=8)), Feed(Noise(4), torch.device("cpu")))

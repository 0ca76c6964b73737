"""Features on a CUDA device. Run with pytest -m gpu."""

import numpy as np
import pytest

from probagg.app.embed.features import extract_features
from probagg.app.embed.opening import open_backbone

pytestmark = pytest.mark.gpu


def test_features_are_the_same_on_a_gpu_and_on_the_cpu(photos):
    """The cache does not record the device, so it must not matter."""
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra lite is not installed")
    on_cpu, on_gpu = (open_backbone("efficientnet-lite0", device=d) for d in ("cpu", "cuda"))
    assert on_cpu.identity == on_gpu.identity
    expected, found = (extract_features(photos, b, cache=False).X for b in (on_cpu, on_gpu))
    apart = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert apart.max() < 1e-2

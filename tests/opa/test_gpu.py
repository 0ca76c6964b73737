"""Tests that need a CUDA device: pytest -m gpu."""

import pytest
import torch

from probagg import (
    OPAHead,
    OPALoss,
    PACLoss,
    WeightedContrastiveLoss,
    clustering_accuracy,
    opa_targets,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture
def batch(generator):
    X = torch.randn(1024, 64, generator=generator).cuda()
    return X, torch.randn(1024, 100, generator=generator).cuda()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("m", [1.005, 1.03, 1.2])
def test_targets_under_autocast_are_those_of_float64(batch, dtype, m):
    X, logits = batch
    P = logits.softmax(1)
    with torch.autocast("cuda", dtype=dtype):
        Q = opa_targets(X, P, m=m)
    assert Q.is_cuda
    assert (Q - opa_targets(X.double(), P.double(), m=m)).abs().max() < 1e-3


def test_losses_never_wait_for_the_device(batch):
    X, logits = batch[0], batch[1].requires_grad_()
    losses = OPALoss(), PACLoss(), WeightedContrastiveLoss()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        opa, pac, contrastive = losses
        loss = opa(X, logits) + pac(X, logits) + contrastive(X, X + 1, logits)
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_losses_compile_into_one_graph(batch):
    X, logits = batch
    for module, arguments in (
        (OPALoss(), (X, logits)),
        (PACLoss(), (X, logits)),
        (WeightedContrastiveLoss(), (X, X + 1, logits)),
    ):
        compiled = torch.compile(module, fullgraph=True)
        torch.testing.assert_close(compiled(*arguments), module(*arguments), rtol=1e-3, atol=1e-4)


def test_a_head_trained_on_the_gpu_is_as_good(digits):
    X, y = digits
    head = OPAHead(10, device="cuda", random_state=0).fit(X)
    assert clustering_accuracy(y, head.labels_) > 0.75

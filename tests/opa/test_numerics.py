"""float32, autocast, and inputs for which plain formulas give NaN."""

import itertools

import pytest
import torch
from oracles import distances

from probagg import OPALoss, PACLoss, WeightedContrastiveLoss, opa_targets

FEATURES = ("random", "duplicate", "zero", "identical", "narrow")
PROBS = ("soft", "one-hot", "uniform", "one cluster")


def make(B, K, features, probs, D=16):
    generator = torch.Generator().manual_seed(B + K)
    X = torch.randn(B, D, generator=generator)
    X = {
        "random": X,
        "duplicate": X[torch.arange(B) % max(1, B // 4)],
        "zero": torch.zeros(B, D),
        "identical": X[:1].repeat(B, 1),
        "narrow": 100.0 + X,
    }[features]
    logits = torch.randn(B, K, generator=generator)
    P = {
        "soft": logits.softmax(1),
        "one-hot": torch.eye(K)[logits.argmax(1)],
        "uniform": torch.full((B, K), 1 / K),
        "one cluster": torch.eye(K)[torch.zeros(B, dtype=torch.long)],
    }[probs]
    return X, P


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("probs", PROBS)
def test_targets_are_accurate_in_float32_and_under_autocast(precision, features, probs):
    """Within 1e-3 of float64, for small and large batches, few and many clusters, and any m."""
    shapes = (2, 2), (2, 1000), (240, 10), (240, 1000), (4096, 10)
    for (B, K), m in itertools.product(shapes, (1.005, 1.03, 1.2)):
        X, P = make(B, K, features, probs)
        exact = opa_targets(X.double(), P.double(), m=m)
        if precision == "float32":
            Q = opa_targets(X, P, m=m)
        else:
            with torch.autocast("cpu", dtype=getattr(torch, precision)):
                Q = opa_targets(X, P, m=m)
        assert Q.dtype == torch.float32
        assert torch.isfinite(Q).all()
        assert (Q.double() - exact).abs().max() < 1e-3, (B, K, m)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("probs", PROBS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_losses_and_gradients_are_finite(features, probs, dtype):
    for B, K in itertools.product((2, 240), (2, 10, 1000)):
        X, P = make(B, K, features, probs)
        logits = (P * 50).to(dtype).requires_grad_()
        z = X.clone().to(dtype).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = OPALoss()(z, logits) + PACLoss(detach=False)(z, logits)
            loss = loss + WeightedContrastiveLoss(0.1)(z, z * 0.5 + 1, P.log())
        assert loss.dtype == torch.float32
        loss.backward()
        for gradient in (z.grad, logits.grad):
            assert torch.isfinite(gradient).all()


def test_a_row_without_negatives_is_only_attracted(generator):
    """Where all weights are 0, only the floor of the denominator is left, and no NaN."""
    z1 = torch.randn(6, 4, generator=generator, requires_grad=True)
    z2 = torch.randn(6, 4, generator=generator)
    P = torch.eye(3)[torch.zeros(6, dtype=torch.long)]
    loss = WeightedContrastiveLoss()(z1, z2, P.log())
    unit1, unit2 = torch.nn.functional.normalize(z1), torch.nn.functional.normalize(z2)
    attraction = -2 * (unit1 * unit2).sum(1).mean()
    expected = torch.autograd.grad(attraction, z1)[0]
    torch.testing.assert_close(torch.autograd.grad(loss, z1)[0], expected)


def test_reduced_matmul_precision_does_not_affect_targets():
    """Scores are computed in float64 where float32 products may use bfloat16 or TF32."""
    X, P = make(512, 64, "random", "soft", D=256)
    exact = opa_targets(X.double(), P.double())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        Q = opa_targets(X, P)
    finally:
        torch.set_float32_matmul_precision(before)
    assert Q.dtype == torch.float32
    assert (Q - exact).abs().max() < 1e-4


def test_nan_is_not_hidden():
    X, P = make(64, 10, "random", "soft")
    X[3, 2] = torch.nan
    assert torch.isnan(opa_targets(X, P)).any()
    assert torch.isnan(OPALoss()(X, P.log()))
    assert torch.isnan(PACLoss()(X, P.log()))


@pytest.mark.parametrize("size", [0.0, 1e-14])
def test_one_zero_or_tiny_row_has_a_finite_gradient(size):
    """A dead ReLU gives a zero row among others."""
    X, P = make(32, 4, "random", "soft")
    X[5] = X[5] * size
    z = X.requires_grad_()
    logits = P.log()
    loss = PACLoss(detach=False)(z, logits) + WeightedContrastiveLoss()(z, z.flip(0) + 1, logits)
    loss.backward()
    assert torch.isfinite(z.grad[torch.arange(32) != 5]).all()
    if size == 0.0:
        assert torch.isfinite(z.grad).all()


def test_a_gate_of_exactly_zero_has_a_finite_gradient():
    X, _ = make(32, 4, "random", "soft")
    logits = (200 * torch.eye(4)[torch.arange(32) % 4]).requires_grad_()
    WeightedContrastiveLoss(detach=False)(X, X + 1, logits).backward()
    assert torch.isfinite(logits.grad).all()


def test_features_in_a_narrow_cone_lose_no_digits():
    """Without centring the linear form would lose all of them."""
    X, P = make(240, 10, "narrow", "soft")
    D = distances(X.double(), "cosine")
    exact = torch.softmax(-torch.log(D @ P.double()) / 0.03, 1)
    assert (opa_targets(X, P) - exact).abs().max() < 1e-3


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_an_empty_batch_has_a_loss_of_zero(reduction):
    """A mask may leave no row of a batch."""
    network = torch.nn.Linear(4, 5)
    z = network(torch.zeros(0, 4))
    logits = z[:, :3]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = OPALoss(reduction=reduction)(z, logits)
        loss = loss + PACLoss(detach=False, reduction=reduction)(z, logits)
        loss = loss + WeightedContrastiveLoss(reduction=reduction)(z, z, logits)
    loss.backward()
    assert loss == 0.0
    assert not network.weight.grad.any()
    assert opa_targets(z, logits).shape == (0, 3)


@pytest.mark.parametrize("loss", ["opa", "pac", "contrastive"])
def test_losses_compile_without_graph_breaks(loss):
    X, P = make(64, 10, "random", "soft")
    logits = P.log().requires_grad_()
    module = {"opa": OPALoss(), "pac": PACLoss(), "contrastive": WeightedContrastiveLoss()}[loss]
    arguments = (X, X + 1, P.log()) if loss == "contrastive" else (X, logits)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    leaf = logits if loss != "contrastive" else X.requires_grad_()
    expected, result = module(*arguments), compiled(*arguments)
    torch.testing.assert_close(result, expected)
    slow, fast = (torch.autograd.grad(value, leaf)[0] for value in (expected, result))
    torch.testing.assert_close(fast, slow)

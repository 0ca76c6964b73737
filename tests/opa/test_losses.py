"""Losses against slow transcriptions of the paper, and their gradients."""

import pytest
import torch
from oracles import algorithm_2, distances, equation_11, kl
from torch.autograd import gradcheck

from probagg import OPALoss, PACLoss, WeightedContrastiveLoss, opa_targets

METRICS = ["sqeuclidean", "cosine"]


@pytest.fixture
def batch(generator):
    """Return features, logits, and logits of another view."""
    shapes = (24, 6), (24, 4), (24, 4)
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("m", [1.03, 1.2])
def test_opa_is_algorithm_2(batch, metric, m):
    features, logits, student = batch
    P = logits.softmax(1)
    Q = algorithm_2(distances(features, metric), P, m)
    torch.testing.assert_close(opa_targets(features, P, m=m, metric=metric), Q, atol=1e-10, rtol=0)
    loss = OPALoss(m, metric=metric)
    torch.testing.assert_close(loss(features, logits), kl(Q, P), atol=1e-10, rtol=0)
    expected = kl(Q, student.softmax(1))
    torch.testing.assert_close(loss(features, logits, student), expected, atol=1e-10, rtol=0)


def test_known_rows_have_their_cluster_in_the_scores_and_as_their_target(batch):
    features, logits, student = batch
    known = torch.full((24,), -1)
    known[[2, 5]] = torch.tensor([3, 0])
    P = logits.softmax(1)
    P[[2, 5]] = torch.eye(4).double()[[3, 0]]
    Q = algorithm_2(distances(features, "cosine"), P, 1.2)
    Q[[2, 5]] = P[[2, 5]]
    found = opa_targets(features, logits.softmax(1), m=1.2, known_labels=known)
    torch.testing.assert_close(found, Q, atol=1e-10, rtol=0)
    loss = OPALoss(1.2, reduction="none")(features, logits, student, known)
    torch.testing.assert_close(loss[2], -student[2].log_softmax(0)[3])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("balance", [1.0, 0.5, 0.0])
def test_pac_loss_is_the_trace_of_equation_13_for_a_pair_of_rows(batch, metric, balance):
    features, logits, _ = batch
    P = logits.softmax(1)
    of_clusters = torch.diag(P.T @ distances(features, metric) @ P) / 24**2
    expected = (of_clusters * P.mean(0) ** (balance - 1)).sum()
    loss = PACLoss(metric=metric, balance=balance)(features, logits)
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("balance", [1.0, 0.5])
def test_no_loss_grows_with_the_batch(batch, balance):
    features, logits, _ = batch
    twice = features.repeat(2, 1), logits.repeat(2, 1)
    for loss in (OPALoss(balance=balance), PACLoss(balance=balance)):
        torch.testing.assert_close(loss(*twice), loss(features, logits))


@pytest.mark.parametrize("temperature", [0.5, 0.1])
@pytest.mark.parametrize("kind", ["none", "soft", "hard"])
def test_the_contrastive_loss_is_equation_11_in_both_orders(batch, kind, temperature):
    features, logits, _ = batch
    z1, z2 = features, features + 0.3 * logits.repeat(1, 2)[:, :6]
    P = {"none": None, "soft": logits.softmax(1), "hard": torch.eye(4).double()[logits.argmax(1)]}[
        kind
    ]
    both = (equation_11(z1, z2, P, temperature) + equation_11(z2, z1, P, temperature)) / 2
    loss = WeightedContrastiveLoss(temperature)(z1, z2, None if P is None else P.log())
    torch.testing.assert_close(loss, both, atol=1e-10, rtol=0)


def test_eq_11_with_uniform_probabilities_is_nt_xent_plus_a_constant(batch):
    """Every weight of the denominator is 1 - 1/K."""
    z1, z2 = batch[0], batch[0].flip(1)
    loss = WeightedContrastiveLoss()
    for K in (2, 10):
        P = torch.full((24, K), 1 / K, dtype=torch.float64)
        constant = torch.log(torch.tensor(1 - 1 / K, dtype=torch.float64))
        torch.testing.assert_close(
            loss(z1, z2, P.log()), loss(z1, z2) + constant, atol=1e-12, rtol=0
        )


def test_gradients_are_those_of_the_formulas(batch):
    features, logits, student = (t[:7].clone() for t in batch)
    fixed = opa_targets(features, logits.softmax(1))
    student.requires_grad_()
    assert gradcheck(lambda s: OPALoss()(features, logits, s), student)
    slow = torch.autograd.grad(kl(fixed, student.softmax(1)), student)[0]
    fast = torch.autograd.grad(OPALoss()(features, logits, student), student)[0]
    torch.testing.assert_close(fast, slow, atol=1e-10, rtol=0)
    logits.requires_grad_()
    assert gradcheck(lambda p: PACLoss()(features, p), logits)
    z1, z2 = features.clone().requires_grad_(), features.flip(1).clone().requires_grad_()
    weights = student.detach()
    assert gradcheck(lambda a, b: WeightedContrastiveLoss()(a, b, weights), (z1, z2))


def test_gradients_reach_distances_and_gate_only_on_request(batch):
    features, logits, _ = (t[:7].clone().requires_grad_() for t in batch)
    loss = OPALoss()(features, logits) + PACLoss()(features, logits)
    loss = loss + WeightedContrastiveLoss()(features.detach(), features.detach() + 1, logits)
    loss.backward()
    assert features.grad is None
    assert logits.grad.abs().sum() > 0
    z = features.detach()
    assert not WeightedContrastiveLoss()(z, z + 1, logits).requires_grad
    gate = torch.autograd.grad(WeightedContrastiveLoss(detach=False)(z, z + 1, logits), logits)[0]
    assert gate.abs().sum() > 0
    assert gradcheck(lambda x: PACLoss(detach=False)(x, logits.detach()), features)
    assert not opa_targets(features, logits.softmax(1)).requires_grad


def test_reductions_are_those_of_torch(batch):
    features, logits, _ = batch
    for module, arguments in (
        (OPALoss, (features, logits)),
        (PACLoss, (features, logits)),
        (WeightedContrastiveLoss, (features, features.flip(1), logits)),
    ):
        rows = module(reduction="none")(*arguments)
        assert rows.shape == (24,)
        torch.testing.assert_close(module()(*arguments), rows.mean())
        torch.testing.assert_close(module(reduction="sum")(*arguments), rows.sum())
        with pytest.raises(ValueError, match=r"reduction is 'max'\. Use 'mean'"):
            module(reduction="max")


def test_balance_is_that_of_pac(batch):
    features, logits, _ = batch
    P = logits.softmax(1)
    S = distances(features, "cosine") @ P / P.sum(0)
    expected = torch.softmax(-torch.log(S) / 0.03, 1)
    torch.testing.assert_close(opa_targets(features, P, balance=0.0), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: OPALoss(m=1.0), "m is 1.0, but a number above 1"),
    (lambda: OPALoss(m="auto"), "m is 'auto', but a number above 1"),
    (lambda: OPALoss(balance="auto"), "balance is 'auto', but a number from 0 to 2"),
    (lambda: opa_targets(torch.eye(3), torch.eye(3), balance=3), "balance is 3, but a number"),
    (lambda: PACLoss(balance=-1), "balance is -1, but a number from 0 to 2"),
    (lambda: WeightedContrastiveLoss(temperature=0.0), "temperature is 0.0"),
    (lambda: OPALoss(metric="euclid"), "has no linear form"),
    (lambda: opa_targets(torch.eye(3), torch.eye(3), m=0.9), "m is 0.9"),
    (lambda: OPALoss()(torch.eye(3), torch.eye(4)), "of the same rows are needed"),
    (lambda: OPALoss()(torch.ones(3), torch.ones(4)), "of the same rows are needed"),
    (lambda: PACLoss()(torch.ones(3), torch.ones(4)), "of the same rows are needed"),
    (lambda: OPALoss()(torch.eye(3), torch.eye(3), torch.eye(3)[:, :1]), "student_logits have"),
    (lambda: WeightedContrastiveLoss()(torch.eye(3), torch.eye(3)[:1]), "projections of two views"),
    (lambda: WeightedContrastiveLoss()(torch.eye(3), torch.eye(3), torch.eye(2)), "the same rows"),
])  # fmt: skip
def test_wrong_settings_are_one_clear_error(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_modules_print_their_settings():
    assert repr(OPALoss(1.05)) == "OPALoss(m=1.05, metric='cosine', balance=1.0, gather=False)"
    assert "detach=True" in repr(PACLoss())
    assert "temperature=0.5" in repr(WeightedContrastiveLoss())


def test_the_loss_alone_trains_a_linear_head_to_cluster(generator):
    """Four directions, a linear head and forty steps of Adam."""
    y = torch.arange(400) % 4
    features = 4 * torch.eye(8)[y] + torch.randn(400, 8, generator=generator)
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 4)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    loss_of = OPALoss()
    for _ in range(40):
        optimizer.zero_grad()
        loss_of(features, head(features)).backward()
        optimizer.step()
    labels = head(features).argmax(1)
    assert all((labels[y == k] == labels[k]).float().mean() > 0.95 for k in range(4))
    assert len(set(labels[:4].tolist())) == 4

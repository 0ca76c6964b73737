"""Heads that begin with what is known, and say it."""

import torch
from torch import nn

from probagg.dpac.pretext import mlp
from probagg.dpac.starts import start_classifier, start_linear_head
from probagg.metrics import clustering_accuracy


def clusters(generator, n=300, dim=16):
    y = torch.arange(n) % 3
    centres = 3.0 * torch.randn(3, dim, generator=generator)
    return centres[y] + 0.5 * torch.randn(n, dim, generator=generator), y


def test_the_linear_head_is_the_nearest_mean(generator):
    X, y = clusters(generator)
    head = nn.Linear(16, 3)
    start_linear_head(head, X, torch.nn.functional.one_hot(y, 3).float())
    distances = torch.cdist(X, torch.stack([X[y == k].mean(0) for k in range(3)])) ** 2
    logits = head(X)
    assert torch.equal(logits.argmax(1), distances.argmin(1))
    gaps, expected = logits[:, 0] - logits[:, 1], distances[:, 1] - distances[:, 0]
    torch.testing.assert_close(gaps / gaps.abs().max(), expected / expected.abs().max())


def test_the_classifier_learns_pacs_clusters(generator):
    X, y = clusters(generator)
    classifier = mlp((16, 32, 3), "batch")
    start_classifier(classifier, X, "sqeuclidean", seed=0)
    P = classifier.eval()(X).softmax(1)
    assert clustering_accuracy(y, P.argmax(1)) == 1.0
    assert P.amax(1).mean() > 0.9


def test_a_start_repeats_with_its_seed(generator):
    X, _ = clusters(generator)
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        classifier = mlp((16, 32, 3), "batch")
        start_classifier(classifier, X, "cosine", seed=1)
        states.append(classifier.state_dict())
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])

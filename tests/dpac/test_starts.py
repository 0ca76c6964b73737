"""A classifier that begins with what PAC knows."""

import pytest
import torch
from torch import nn

from probagg.dpac import starts
from probagg.dpac.neighbours import sharpness
from probagg.dpac.pretext import mlp
from probagg.dpac.recipe import Cluster
from probagg.dpac.starts import start_classifier, teach
from probagg.metrics import clustering_accuracy


def clusters(generator, n=300, dim=16):
    y = torch.arange(n) % 3
    centres = 3.0 * torch.randn(3, dim, generator=generator)
    return centres[y] + 0.5 * torch.randn(n, dim, generator=generator), y


def test_the_classifier_learns_pacs_clusters(generator):
    X, y = clusters(generator)
    classifier = mlp((16, 32, 3), "batch")
    start_classifier(classifier, X, Cluster(metric="sqeuclidean"), seed=0)
    P = classifier.eval()(X).softmax(1)
    assert clustering_accuracy(y, P.argmax(1)) == 1.0
    assert P.amax(1).mean() > 0.9


def test_a_start_repeats_with_its_seed(generator):
    X, _ = clusters(generator)
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        classifier = mlp((16, 32, 3), "batch")
        start_classifier(classifier, X, Cluster(metric="cosine"), seed=1)
        states.append(classifier.state_dict())
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])


@pytest.mark.parametrize("n", [60, 300])
def test_a_linear_head_learns_features_of_small_length_from_few_rows(n, generator):
    """Pre-training leaves lengths of 0.3; 500 steps would leave the head at a sharpness of 0.57."""
    X, y = clusters(generator, n, dim=64)
    X = 0.3 * X / X.norm(dim=1, keepdim=True)
    P = 0.94 * torch.eye(3)[y] + 0.02
    head = nn.Linear(64, 3)
    teach(head, X, P, seed=0)
    answers = head(X).softmax(1).detach()
    assert torch.equal(answers.argmax(1), y)
    assert sharpness(answers) > 0.8


def test_of_ten_runs_the_one_whose_neighbours_are_surest_is_taught(generator, monkeypatch):
    """Nine runs mix the clusters, one has them; all are asked for at the paper's balance."""
    X, y = clusters(generator)
    asked = []

    def cluster_all(method, features, n_clusters, settings, seed, *, n_init):
        asked.append((method, settings.balance, n_init, seed))
        drawn = torch.randint(3, (len(y),), generator=torch.Generator().manual_seed(seed))
        return torch.eye(3)[y if seed == 9 else drawn]

    monkeypatch.setattr(starts, "cluster_all", cluster_all)
    classifier = mlp((16, 3), "batch")
    start_classifier(classifier, X, Cluster(balance=0.25), seed=2)
    assert asked == [("pac", 1.0, 1, seed) for seed in range(2, 12)]
    assert torch.equal(classifier.eval()(X).argmax(1), y)

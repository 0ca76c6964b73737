"""A classifier that begins with what PAC knows."""

import torch

from probagg.dpac import starts
from probagg.dpac.pretext import mlp
from probagg.dpac.recipe import Cluster
from probagg.dpac.starts import start_classifier
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


def test_the_start_is_the_best_of_ten_at_the_papers_balance(generator, monkeypatch):
    X, _ = clusters(generator)
    asked = {}

    def cluster_all(method, features, n_clusters, settings, seed, *, n_init):
        asked.update(method=method, balance=settings.balance, n_init=n_init)
        return torch.full((len(features), n_clusters), 1 / 3)

    monkeypatch.setattr(starts, "cluster_all", cluster_all)
    start_classifier(mlp((16, 3), "batch"), X, Cluster(balance=0.25), seed=0)
    assert asked == {"method": "pac", "balance": 1.0, "n_init": 10}

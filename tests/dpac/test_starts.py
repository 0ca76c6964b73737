"""A classifier that begins with what PAC knows."""

import torch

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

"""OPA is a feedback loop: when does a classifier keep the clusters it begins with?

    python -m benchmarks opa_loop        PROBAGG_DATA has cifar10_simclr.npz

A classifier (two hidden layers, as DPAC's) is fitted to PAC's clusters of 60,000 SimCLR features of
CIFAR-10 and then trained with OPA's loss alone (m = 1.02, batches of 1024, SGD with momentum 0.9).
Batches are random, or stratified by the classifier's labels as the epoch began. Only the learning
rate, `balance` and the batches vary. Recorded per epoch: the share of targets that agree with PAC's
clusters, the mean KL, and the largest deviation of a batch's mass from 1/K.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor

from benchmarks.data import load_features
from benchmarks.record import Cell, record
from probagg import PAC, OPALoss, clustering_accuracy, opa_targets
from probagg.dpac.pretext import mlp
from probagg.dpac.randomness import key, permutation
from probagg.dpac.start import fit_head

K, B, M, EPOCHS = 10, 1024, 1.02, 4
SETTINGS = [  # learning rate, balance, stratified
    (0.005, 1.0, False), (0.005, 1.0, True), (0.02, 1.0, True), (0.02, 0.25, True),
    (0.005, 0.5, False), (0.005, 0.5, True),
]  # fmt: skip


def train(
    X: Tensor, start: dict[str, Tensor], first: Tensor, rate: float, balance: float,
    stratified: bool, seed: int,
) -> tuple[list[dict[str, float]], Tensor]:  # fmt: skip
    """Train the fitted classifier; return a reading per epoch and the final labels."""
    classifier = mlp((X.shape[1], 512, 512, K), "batch")
    classifier.load_state_dict(start)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
    loss_of = OPALoss(M, balance=balance)
    labels, curve = first, []
    for epoch in range(EPOCHS):
        order = permutation(key(seed, epoch), len(X), labels if stratified else None)
        readings = []
        classifier.train()
        for rows in order.split(B)[: len(X) // B]:
            logits = classifier(X[rows])
            P = logits.detach().softmax(1)
            Q = opa_targets(X[rows], P, m=M, balance=balance)
            kl = loss_of(X[rows], logits.detach(), logits)
            optimizer.zero_grad()
            kl.backward()
            optimizer.step()
            same = (Q.argmax(1) == first[rows]).float().mean()
            readings.append((float(same), kl.item(), float((K * P.mean(0) - 1.0).abs().max())))
        with torch.no_grad():
            labels = classifier.eval()(X).argmax(1)
        same, kls, swings = zip(*readings, strict=True)
        curve.append({"targets": np.mean(same), "kl": np.mean(kls), "largest_swing": max(swings)})
    return curve, labels


def main() -> None:
    """Every setting with every seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    a = parser.parse_args()
    features, y, _ = load_features("cifar10-simclr")
    X = torch.from_numpy(features)
    pac = PAC(K, m=M, metric="cosine", n_init=10, random_state=0).fit(X.numpy())
    P = torch.from_numpy(pac.probabilities_).float()
    torch.manual_seed(0)
    classifier = mlp((X.shape[1], 512, 512, K), "batch")
    fit_head(classifier, X, P, seed=0)
    start, first = classifier.state_dict(), P.argmax(1)
    print(f"PAC ACC {100 * clustering_accuracy(y, first):.1f}")
    rows = [Cell("cifar10-simclr", "pac").row({"acc": clustering_accuracy(y, first)})]
    for rate, balance, stratified in SETTINGS:
        for seed in a.seeds:
            curve, labels = train(X, start, first, rate, balance, stratified, seed)
            settings = {"learning_rate": rate, "balance": balance, "stratified": stratified}
            kept, acc = clustering_accuracy(first, labels), clustering_accuracy(y, labels)
            batches = "stratified" if stratified else "random"
            setting = f"rate {rate}, balance {balance}, {batches}"
            found = {"curve": curve, "kept": kept, "acc": acc, "settings": settings}
            rows.append(Cell("cifar10-simclr", "opa", setting, seed).row(found))
            print(
                f"rate {rate}  balance {balance}  {batches:10} "
                f"first epoch: targets {100 * curve[0]['targets']:.1f} % PAC's, "
                f"KL {curve[0]['kl']:.2f}, swing {curve[0]['largest_swing']:.2f}; after {EPOCHS}: "
                f"{100 * kept:.1f} % PAC's, swing {curve[-1]['largest_swing']:.2f}, "
                f"ACC {100 * acc:.1f}",
                flush=True,
            )
    record("opa_loop", rows)

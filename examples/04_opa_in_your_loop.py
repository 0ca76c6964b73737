"""OPALoss in a plain PyTorch loop: an encoder and a classifier that learn to cluster digits.

Three lines of the loop are probagg's. An autoencoder learns features, and a classifier is fitted to
the targets that OPA computes from each batch. The features are detached: reconstruction alone does
not keep them from adapting to the classifier's first predictions (without `detach` this example
ends near 56 % ACC). DPAC uses a contrastive loss for that. The readings that it draws in
04_opa_in_your_loop.png (needs matplotlib) use no labels.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from probagg import OPALoss, clustering_accuracy, diagnose

torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
X = torch.tensor(X / 16.0, dtype=torch.float32)

encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
decoder = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64))
classifier = nn.Linear(32, 10)
optimizer = torch.optim.Adam(
    [
        {"params": [*encoder.parameters(), *decoder.parameters()], "lr": 2e-3},
        {"params": classifier.parameters(), "lr": 2e-2},
    ]
)

cluster_loss = OPALoss(m=1.03, metric="sqeuclidean")  # 1: the loss

losses, readings = [], []
for epoch in range(1, 151):
    order = torch.randperm(len(X))
    for rows in order[: len(X) // 599 * 599].split(599):
        batch = X[rows]
        features = encoder(batch)
        loss = nn.functional.mse_loss(decoder(features), batch)
        if epoch > 50:  # reconstruct first, then cluster
            logits = classifier(features.detach())  # 2: a classifier; see above for `detach`
            kl = cluster_loss(features, logits)  # 3: targets are computed from the batch
            loss = loss + kl
            losses.append((epoch, kl.item()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 5 == 0:
        with torch.no_grad():
            features = encoder(X)
            probs = classifier(features).softmax(1)
        found = diagnose(features, probs, m=1.03, metric="sqeuclidean", warn=epoch > 100)
        readings.append((epoch, found.sharpness, found.evenness, found.agreement))
    if epoch % 25 == 0:
        accuracy = clustering_accuracy(y, probs.argmax(1).numpy())
        print(
            f"epoch {epoch:3}: {found.state:10} sharpness {found.sharpness:.2f}, "
            f"critical m {found.critical_m:.3f}, ACC {100 * accuracy:.1f} (labels for ACC only)"
        )

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.plot(*zip(*losses, strict=True))
left.set(title="OPALoss", xlabel="epoch", ylabel="KL(Q || P)")
epochs, *curves = zip(*readings, strict=True)
for name, curve in zip(("sharpness", "evenness", "targets agree"), curves, strict=True):
    right.plot(epochs, curve, label=name)
right.set(title="diagnose: readings without labels", xlabel="epoch", ylim=(0, 1.03))
right.legend()
figure.tight_layout()
figure.savefig("04_opa_in_your_loop.png", dpi=72)

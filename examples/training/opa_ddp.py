"""OPALoss over several processes with mixed precision: DistributedDataParallel and autocast.

torchrun --nproc-per-node 4 examples/training/opa_ddp.py

`gather=True` computes targets from the batches of all processes, so a batch may be as small as one
process's memory asks for. Every process needs the same number of rows: `drop_last=True`. The
features are detached before the classifier, as in examples/04_opa_in_your_loop.py.
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from probagg import OPALoss, clustering_accuracy

EPOCHS, RECONSTRUCT_ONLY, BATCH = 60, 20, 256  # rows of a batch on one process


class Clusterer(nn.Module):
    """An autoencoder, and a classifier of its features."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
        self.decoder = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64))
        self.classifier = nn.Linear(32, 10)

    def forward(self, rows):
        features = self.encoder(rows)
        return features, self.decoder(features), self.classifier(features.detach())


def main():
    """Train on all processes, and let the first print the accuracy."""
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    torch.manual_seed(0)
    X, y = load_digits(return_X_y=True)
    X = torch.tensor(X / 16.0, dtype=torch.float32)
    sampler = DistributedSampler(X, drop_last=True)
    loader = DataLoader(TensorDataset(X), BATCH, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(Clusterer().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    cluster_loss = OPALoss(m=1.03, metric="sqeuclidean", gather=True)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            batch = batch.to(device)
            with torch.autocast(device.type, torch.bfloat16):
                features, reconstruction, logits = model(batch)
                loss = nn.functional.mse_loss(reconstruction, batch)
                # The loss leaves autocast by itself: at m = 1.03 it needs float32.
                loss = loss + cluster_loss(features, logits) * (epoch >= RECONSTRUCT_ONLY)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        labels = model.module(X.to(device))[2].argmax(1).cpu()
    if rank == 0:
        accuracy = clustering_accuracy(y, labels.numpy())
        print(f"{dist.get_world_size()} processes: ACC {100 * accuracy:.1f} (labels for ACC only)")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

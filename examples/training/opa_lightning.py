"""OPALoss in a LightningModule (pip install lightning).

python examples/training/opa_lightning.py

`gather=True` makes targets from the batches of all devices, and does nothing on one.
"""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from probagg import OPALoss, clustering_accuracy

RECONSTRUCT_ONLY = 40  # epochs before clustering begins


class Clusterer(L.LightningModule):
    """An autoencoder and a classifier that is trained by OPA on its features."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
        self.decoder = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64))
        self.classifier = nn.Linear(32, 10)
        self.cluster_loss = OPALoss(m=1.03, metric="sqeuclidean", gather=True)

    def training_step(self, batch, batch_idx):
        (rows,) = batch
        features = self.encoder(rows)
        loss = nn.functional.mse_loss(self.decoder(features), rows)
        if self.current_epoch >= RECONSTRUCT_ONLY:
            loss = loss + self.cluster_loss(features, self.classifier(features.detach()))
        return loss

    def predict_step(self, batch, batch_idx):
        return self.classifier(self.encoder(batch[0])).argmax(1)

    def configure_optimizers(self):
        autoencoder = [*self.encoder.parameters(), *self.decoder.parameters()]
        rates = {"params": autoencoder, "lr": 2e-3}, {"params": self.classifier.parameters()}
        return torch.optim.Adam(rates, lr=2e-2)


def main():
    """Train, and print the accuracy."""
    L.seed_everything(0)
    X, y = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(X / 16.0, dtype=torch.float32))
    trainer = L.Trainer(
        max_epochs=120, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    model = Clusterer()
    trainer.fit(model, DataLoader(rows, 512, shuffle=True, drop_last=True))
    labels = torch.cat(trainer.predict(model, DataLoader(rows, 512))).numpy()
    print(f"ACC {100 * clustering_accuracy(y, labels):.1f} (labels for ACC only)")


if __name__ == "__main__":
    main()

"""Export a run as one model from pixels or features to probabilities: ONNX or safetensors.

>>> import torch
>>> from sklearn.datasets import load_digits
>>> from probagg import PAC
>>> X = load_digits().data
>>> labeller = labeller_of(PAC(10, random_state=0).fit(X))
>>> labeller(torch.tensor(X[:2], dtype=torch.float32)).shape
torch.Size([2, 10])
"""

from probagg.app.export.inputs import Input
from probagg.app.export.labeller import Labeller, labeller_of
from probagg.app.export.onnx_file import ExportError, export_onnx
from probagg.app.export.tensor_file import export_safetensors, load_exported

__all__ = [
    "ExportError",
    "Input",
    "Labeller",
    "export_onnx",
    "export_safetensors",
    "labeller_of",
    "load_exported",
]

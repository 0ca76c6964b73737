"""Features of images from a frozen pretrained backbone, cached by content."""

from probagg.app.embed.backbone import DEFAULT, Backbone, BackboneError
from probagg.app.embed.features import Features, estimate, extract_features
from probagg.app.embed.opening import open_backbone, reopen_backbone

__all__ = [
    "DEFAULT",
    "Backbone",
    "BackboneError",
    "Features",
    "estimate",
    "extract_features",
    "open_backbone",
    "reopen_backbone",
]

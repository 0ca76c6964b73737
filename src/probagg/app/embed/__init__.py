"""Features of images from a frozen pretrained backbone, cached by content."""

from probagg.app.embed.backbone import DEFAULT, Backbone, BackboneError
from probagg.app.embed.features import Features, embed, estimate
from probagg.app.embed.joint import JointBackbone
from probagg.app.embed.opening import open_backbone, reopen_backbone

__all__ = [
    "DEFAULT",
    "Backbone",
    "BackboneError",
    "Features",
    "JointBackbone",
    "embed",
    "estimate",
    "open_backbone",
    "reopen_backbone",
]

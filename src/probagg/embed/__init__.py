"""Features of images from a frozen pretrained backbone, cached by content."""

from probagg.embed.backbone import DEFAULT, Backbone, BackboneError
from probagg.embed.features import Features, embed, estimate
from probagg.embed.joint import JointBackbone
from probagg.embed.opening import open_backbone, reopen_backbone

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

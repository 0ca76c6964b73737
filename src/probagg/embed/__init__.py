"""Features of a frozen pretrained backbone, cached by content."""

from probagg.embed.backbone import Backbone, BackboneError
from probagg.embed.features import Features, embed, estimate
from probagg.embed.opening import DEFAULT, open_backbone, reopen_backbone

__all__ = [
    "DEFAULT",
    "Backbone",
    "BackboneError",
    "Features",
    "embed",
    "estimate",
    "open_backbone",
    "reopen_backbone",
]

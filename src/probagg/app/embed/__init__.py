"""Features of images from a frozen pretrained backbone, cached by content."""

from probagg.app.embed.backbone import (
    DEFAULT,
    Backbone,
    BackboneError,
    is_available,
    open_backbone,
    reopen_backbone,
)
from probagg.app.embed.features import Features, extract_features

__all__ = [
    "DEFAULT",
    "Backbone",
    "BackboneError",
    "Features",
    "extract_features",
    "is_available",
    "open_backbone",
    "reopen_backbone",
]

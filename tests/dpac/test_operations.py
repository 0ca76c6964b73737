"""Each operation against Pillow or torchvision, to one grey level."""

import math

import numpy as np
import pytest
import torch
from oracles import apply_operation
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from probagg.dpac.operations import (
    affine,
    apply_chosen,
    blend,
    cut_out,
    gaussian,
    interpolation,
    luma,
    resample,
    turn_hue,
)
from probagg.dpac.recipe import RANGES


def shifted(image, a, b, c, d, e, f):
    return image.transform(image.size, Image.Transform.AFFINE, (a, b, c, d, e, f))


PILLOW = {
    "Identity": lambda image, v: image,
    "AutoContrast": lambda image, v: ImageOps.autocontrast(image),
    "Equalize": lambda image, v: ImageOps.equalize(image),
    "Rotate": lambda image, v: image.rotate(v),
    "Solarize": lambda image, v: ImageOps.solarize(image, v),
    "Color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "Contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "Brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "Sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "ShearX": lambda image, v: shifted(image, 1, v, 0, 0, 1, 0),
    "TranslateX": lambda image, v: shifted(image, 1, 0, v * image.size[0], 0, 1, 0),
    "TranslateY": lambda image, v: shifted(image, 1, 0, 0, 0, 1, v * image.size[1]),
    "Posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "ShearY": lambda image, v: shifted(image, 1, 0, 0, v, 1, 0),
}
EXACT = {"Identity", "Equalize", "Rotate", "Solarize", "ShearX", "ShearY", "TranslateX"}
EXACT |= {"TranslateY", "Posterize"}
SHAPES = [(32, 32, 3), (32, 32, 1), (8, 8, 1), (17, 23, 3)]


def photos(rng, shape, n=24):
    """Return noise, smooth blobs, few levels and flat images as uint8 (n, H, W, C)."""
    H, W, C = shape
    noise = rng.integers(0, 256, (n, H, W, C))
    across = np.linspace(0, 1, W)[None, None, :, None] * rng.integers(0, 256, (n, 1, 1, C))
    across = across + np.linspace(0, 1, H)[None, :, None, None] * rng.integers(0, 99, (n, 1, 1, C))
    coarse = rng.integers(90, 200, (n, 1, 1, C)) + 5 * rng.integers(0, 4, (n, H, W, C))
    flat = np.broadcast_to(rng.integers(0, 256, (n, 1, 1, C)), noise.shape)
    kinds = np.stack([noise, across, coarse, flat])[np.arange(n) % 4, np.arange(n)]
    return np.clip(kinds, 0, 255).astype(np.uint8)


def as_pillow(array):
    return Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)


def as_array(image):
    array = np.asarray(image, dtype=np.float32)
    return array[..., None] if array.ndim == 2 else array


def as_tensor(arrays):
    return torch.from_numpy(np.ascontiguousarray(arrays)).permute(0, 3, 1, 2).float()


def difference(ours, theirs):
    """Return the differences in grey levels between ours (B, C, H, W) and a list or a tensor."""
    if isinstance(theirs, list):
        theirs = as_tensor(np.stack([as_array(image) for image in theirs]))
    assert ours.shape == theirs.shape
    return (ours - theirs).abs().max().item()


def test_every_operation_has_its_counterpart():
    assert PILLOW.keys() == RANGES.keys()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", RANGES)
def test_an_operation_equals_pillows(rng, name, shape):
    arrays = photos(rng, shape)
    low, high = RANGES[name]
    magnitude = torch.from_numpy(rng.uniform(low, high, len(arrays)).astype(np.float32))
    ours = apply_operation(name, as_tensor(arrays), magnitude)
    theirs = [
        PILLOW[name](as_pillow(a), v) for a, v in zip(arrays, magnitude.tolist(), strict=True)
    ]
    assert difference(ours, theirs) <= (0 if name in EXACT else 1)
    assert torch.equal(ours, ours.round())


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.9])
@pytest.mark.parametrize("name", ["Color", "Contrast", "Brightness", "Sharpness"])
def test_enhancing_beyond_the_range_of_the_views_equals_pillows(rng, name, factor):
    arrays = photos(rng, (16, 16, 3))
    theirs = [PILLOW[name](as_pillow(a), factor) for a in arrays]
    assert difference(apply_operation(name, as_tensor(arrays), factor), theirs) <= 1


def test_operations_at_96_pixels_equal_pillows(rng):
    """Larger images have larger sums and coordinates, which must be exact too."""
    arrays = photos(rng, (96, 96, 3), n=8)
    for name in "Rotate", "Equalize", "Contrast", "ShearX":
        magnitude = torch.from_numpy(rng.uniform(*RANGES[name], 8).astype(np.float32))
        theirs = [
            PILLOW[name](as_pillow(a), v) for a, v in zip(arrays, magnitude.tolist(), strict=True)
        ]
        assert difference(apply_operation(name, as_tensor(arrays), magnitude), theirs) <= 1


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mixed_operations_equal_those_of_each_sample_alone(rng, shape):
    """One pass for all operations gives each sample the result of its own operation."""
    x = as_tensor(photos(rng, shape, n=56))
    which = torch.arange(56) % 14
    magnitude = torch.zeros(56)
    for i, (low, high) in enumerate(RANGES.values()):
        magnitude[which == i] = torch.linspace(low, high, 6)[1:-1]
    chosen = {name: which == i for i, name in enumerate(RANGES)}
    together = apply_chosen(x, chosen, magnitude)
    for i, name in enumerate(RANGES):
        alone = apply_operation(name, x[which == i], magnitude[which == i])
        assert torch.equal(together[which == i], alone), name


def resized_crop(x, top, left, tall, wide, size):
    one = [torch.tensor([float(v)]) for v in (top, tall, left, wide)]
    rows = interpolation(one[0], one[1], x.shape[2], size)
    return resample(x, rows, interpolation(one[2], one[3], x.shape[3], size))


@pytest.mark.parametrize("size", [7, 16, 32, 40])
@pytest.mark.parametrize("box", [(0, 0, 32, 32), (3, 5, 9, 13), (20, 1, 12, 31), (31, 31, 1, 1)])
def test_a_resized_crop_equals_torchvisions_and_pillows(rng, box, size):
    """Both when enlarging and, antialiased, when shrinking."""
    arrays = photos(rng, (32, 32, 3), n=8)
    top, left, tall, wide = box
    ours = resized_crop(as_tensor(arrays), *box, size)
    theirs = tv.resized_crop(as_tensor(arrays), *box, [size, size], antialias=True)
    assert difference(ours, theirs) < 0.01
    cut = (left, top, left + wide, top + tall)
    pillow = [
        as_pillow(a).crop(cut).resize((size, size), Image.Resampling.BILINEAR) for a in arrays
    ]
    assert difference(ours.round(), pillow) <= 1


def test_different_crops_in_a_batch_equal_those_one_by_one(rng):
    x = as_tensor(photos(rng, (11, 19, 3), n=6))
    top, left = torch.tensor([0.0, 1, 2, 3, 4, 5]), torch.tensor([0.0, 6, 4, 2, 0, 9])
    tall, wide = torch.tensor([11.0, 9, 3, 1, 7, 6]), torch.tensor([19.0, 13, 2, 1, 19, 10])
    ours = resample(x, interpolation(top, tall, 11, 8), interpolation(left, wide, 19, 8))
    for i in range(6):
        one = [int(v[i]) for v in (top, left, tall, wide)]
        assert torch.allclose(ours[i : i + 1], resized_crop(x[i : i + 1], *one, 8), atol=1e-3)


BLENDS = [tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation]


@pytest.mark.parametrize("factor", [0.0, 0.6, 1.4])
@pytest.mark.parametrize(("which", "channels"), [(0, 1), (0, 3), (1, 1), (1, 3), (2, 3)])
def test_blends_equal_torchvisions(rng, which, channels, factor):
    x = as_tensor(photos(rng, (16, 12, channels)))
    theirs = torch.cat([BLENDS[which](one[None] / 255, factor) * 255 for one in x])
    kind, f = torch.full((24,), which), torch.full((24,), factor)
    assert difference(blend(x, f, kind == 1, kind == 2), theirs) < 0.05


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.0, 0.03, 0.1, 0.5])
def test_hue_equals_torchvisions(rng, turn):
    x = as_tensor(photos(rng, (16, 12, 3)))
    theirs = tv.adjust_hue(x / 255, turn) * 255
    assert difference(turn_hue(x, torch.full((24,), turn)), theirs) < 0.05


def test_luma_equals_pillows_grey_level(rng):
    arrays = photos(rng, (16, 12, 3))
    theirs = [as_pillow(a).convert("L") for a in arrays]
    assert difference(torch.floor(luma(as_tensor(arrays)) + 0.5), theirs) == 0
    assert difference(luma(as_tensor(arrays)), tv.rgb_to_grayscale(as_tensor(arrays))) <= 0.1


@pytest.mark.parametrize(("size", "radius"), [(8, 1), (24, 4), (5, 4)])
@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0])
def test_blur_equals_torchvisions(rng, size, radius, sigma):
    x = as_tensor(photos(rng, (size, size, 3), n=8))
    theirs = tv.gaussian_blur(x, 2 * radius + 1, sigma)
    weights = gaussian(torch.full((8,), sigma), size, radius)
    assert difference(resample(x, weights, weights), theirs) < 0.01


def test_a_blur_of_zero_changes_nothing():
    assert torch.equal(gaussian(torch.zeros(2), 9, 3), torch.eye(9).expand(2, 9, 9))


@pytest.mark.parametrize("size", [8, 28])
@pytest.mark.parametrize(
    ("angle", "right", "down", "scale", "shear"),
    [(0, 0, 0, 1, 0), (20, 0, 0, 1, 0), (-15, 2, -1, 1.2, 10), (0, 0, 3, 0.8, -20)],
)
def test_affine_equals_torchvisions(rng, size, angle, right, down, scale, shear):
    x = as_tensor(photos(rng, (size, size, 1), n=4))
    theirs = tv.affine(
        x, angle, [right, down], scale, [shear, 0], interpolation=InterpolationMode.BILINEAR
    )
    values = [torch.full((4,), float(v)) for v in (angle, right, down, scale, shear)]
    assert difference(affine(x, *values), theirs) < 0.05


@pytest.mark.parametrize("top", [-3, 0, 5])
@pytest.mark.parametrize("side", [1, 4, 20])
def test_cut_out_clears_a_square_clipped_at_the_border(top, side):
    left = top + 1
    out = cut_out(torch.ones(1, 2, 8, 9), *(torch.tensor([float(v)]) for v in (top, left, side)))
    expected = torch.ones(2, 8, 9)
    expected[:, max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = 0
    assert torch.equal(out[0], expected)


def test_rotating_by_a_full_turn_changes_nothing(rng):
    """Coordinates near half a pixel must not be rounded to the neighbour."""
    x = as_tensor(photos(rng, (32, 32, 3)))
    for angle in 0.0, 360.0, 1e-4, math.ulp(1.0):
        assert torch.equal(apply_operation("Rotate", x, angle), x)

"""Whole views: what they consist of, what they depend on, and what they leave unchanged."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import apply_operation
from PIL import Image
from scipy import stats
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional as tv

from probagg.dpac.randomness import key, uniforms
from probagg.dpac.recipe import ViewSettings
from probagg.dpac.views import Views, crop_boxes

KEY = torch.tensor(key(0, "pretrain", 0))
OFF = ViewSettings(
    crop=(1, 1), flip=False, jitter=(0, 0, 0, 0), grayscale=0, n_operations=0, cutout=0,
    clean_scale=1.0, mean=(0.0,), std=(1 / 255,),
)  # fmt: skip
ALL = ViewSettings(
    size=16, blur=0.5, rotate=10, translate=0.1, scale=(0.9, 1.1), shear=5, mean=(0.5,), std=(0.25,)
)


def pictures(n=12, height=32, width=32, channels=3, seed=0):
    """Uneven colours, so that no operation is invisible."""
    rng = np.random.default_rng(seed)
    waves = np.sin(
        np.linspace(0, 5, height)[:, None, None] * rng.uniform(0.5, 2, (n, 1, 1, channels))
    )
    waves = waves + np.cos(
        np.linspace(0, 7, width)[:, None] * rng.uniform(0.5, 2, (n, 1, 1, channels))
    )
    noisy = 128 + 50 * waves + rng.normal(0, 9, (n, height, width, channels))
    return torch.from_numpy(np.clip(noisy, 0, 255).astype(np.uint8))


def planes(images):
    return images.permute(0, 3, 1, 2).float()


def samples(images):
    return torch.arange(len(images))


def view(settings, images, kind="weak", **kwargs):
    return getattr(Views(settings), kind)(images, samples(images), KEY, **kwargs)


def draws(n, columns=22, seed=0):
    return uniforms(torch.tensor(key(seed)), torch.arange(n), columns, 0)


@pytest.mark.parametrize("shape", [(32, 32, 3), (8, 8, 1), (28, 28, 1), (5, 7, 3), (50, 41, 1)])
@pytest.mark.parametrize("size", [8, 13, 32])
def test_a_view_without_operations_is_a_plain_resize(shape, size):
    images = pictures(4, *shape)
    settings = replace(OFF, size=size)
    expected = tv.resize(planes(images), [size, size], antialias=True)
    assert (view(settings, images) - expected).abs().max() < 0.01
    assert (view(settings, images, "strong") - expected).abs().max() < 0.51
    assert (Views(settings).clean(images) - expected).abs().max() < 0.01


def test_a_view_without_operations_at_its_own_size_is_the_image():
    images = pictures()
    for kind in "weak", "strong":
        assert torch.allclose(view(OFF, images, kind), planes(images), atol=1e-3)


@pytest.mark.parametrize("shape", [(32, 32, 3), (8, 8, 1), (28, 28, 1), (5, 7, 3)])
@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_images_of_any_shape_become_views_of_one_size_channels_last(shape, kind):
    images = pictures(6, *shape)
    for settings in ALL, replace(ALL, size=9, strong_crop=True):
        out = view(settings, images, kind)
        assert out.shape == (6, shape[2], settings.size, settings.size)
        assert out.dtype == torch.float32
        assert out.is_contiguous(memory_format=torch.channels_last)
        assert out.isfinite().all()
        assert out.min() >= -2 - 1e-3
        assert out.max() <= 2 + 1e-3


@pytest.mark.parametrize("kind", ["weak", "strong"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_view_does_not_depend_on_its_batch(kind, channels):
    images = pictures(12, channels=channels)
    make = getattr(Views(replace(ALL, size=24)), kind)
    together = make(images, 100 + samples(images), KEY)
    for rows in [5], [11, 0, 3]:
        assert torch.equal(make(images[rows], 100 + torch.tensor(rows), KEY), together[rows])


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_a_view_changes_with_sample_key_and_copy(kind):
    images = pictures(1).expand(8, -1, -1, -1)
    make = getattr(Views(ALL), kind)
    base = make(images, samples(images), KEY)
    others = {
        "samples": base.roll(1, 0),
        "key": make(images, samples(images), torch.tensor(key(0, "pretrain", 1))),
        "copy": make(images, samples(images), KEY, copy=1),
    }
    for what, other in others.items():
        assert (base != other).flatten(1).any(1).all(), what
    assert torch.equal(base, make(images, samples(images), KEY))


def test_half_of_the_views_are_mirrored():
    images = pictures(400, 8, 8)
    for kind in "weak", "strong":
        for settings in replace(OFF, flip=True, size=8), replace(OFF, flip=True, size=12):
            out, plain = (
                view(settings, images, kind),
                view(replace(settings, flip=False), images, kind),
            )
            same = torch.isclose(out, plain, atol=1.001).flatten(1).all(1)
            mirrored = torch.isclose(out, plain.flip(3), atol=1.001).flatten(1).all(1)
            assert (same ^ mirrored).all()
            assert 150 < mirrored.sum() < 250


@pytest.mark.parametrize(("kind", "rounding"), [("weak", 0.0), ("strong", 0.5)])
def test_a_crop_equals_torchvisions_at_the_same_box(kind, rounding):
    """The strong view continues with integer grey levels."""
    images, area = pictures(30, 20, 33), (0.05, 1.0)
    out = view(replace(OFF, crop=area, strong_crop=True, size=16), images, kind)
    u = uniforms(KEY, samples(images), 22, stream=int(kind == "strong"))
    boxes = torch.stack(crop_boxes(u, 20, 33, area), dim=1).int().tolist()
    for x, one, (top, tall, left, wide) in zip(planes(images), out, boxes, strict=True):
        theirs = tv.resized_crop(x, top, left, tall, wide, [16, 16], antialias=True)
        assert (one - theirs).abs().max() < rounding + 0.01


@pytest.mark.parametrize("shape", [(32, 32), (28, 40), (10, 64), (64, 10)])
def test_crop_boxes_are_distributed_like_torchvisions(shape):
    """The long shapes sometimes end in the central crop."""
    n, area = 3000, (0.2, 1.0)
    ours = torch.stack(crop_boxes(draws(n), *shape, area), dim=1).double().numpy()
    torch.manual_seed(0)
    blank = torch.zeros(1, *shape)
    theirs = np.array([RandomResizedCrop.get_params(blank, area, (3 / 4, 4 / 3)) for _ in range(n)])
    theirs = theirs[:, [0, 2, 1, 3]]
    for column in range(4):
        assert stats.ks_2samp(ours[:, column], theirs[:, column], method="asymp").pvalue > 1e-3
    for combine in np.multiply, np.divide:
        pair = (combine(values[:, 3], values[:, 1]) for values in (ours, theirs))
        assert stats.ks_2samp(*pair, method="asymp").pvalue > 1e-3
    assert (ours == ours.round()).all()
    assert (ours[:, 0] + ours[:, 1] <= shape[0]).all()
    assert (ours[:, 2] + ours[:, 3] <= shape[1]).all()
    assert (ours[:, 1::2] >= 1).all()
    assert (ours[:, ::2] >= 0).all()


def test_a_crop_that_never_fits_is_central():
    top, tall, left, wide = crop_boxes(draws(5), 10, 200, (0.9, 1.0))
    assert (top.unique().item(), tall.unique().item()) == (0, 10)
    assert (left.unique().item(), wide.unique().item()) == ((200 - 13) // 2, 13)


@pytest.mark.parametrize(
    ("which", "name"), list(enumerate(["brightness", "contrast", "saturation", "hue"]))
)
def test_jitter_of_one_kind_equals_torchvisions(which, name):
    """The factors of the samples span the range, and each image equals torchvision's."""
    images, strength = pictures(40, 8, 8), 0.3
    jitter = tuple(strength if k == which else 0.0 for k in range(4))
    out = view(replace(OFF, size=8, jitter=jitter, jitter_probability=1.0), images)
    spread = 2 * uniforms(KEY, samples(images), 40, 0)[:, 28 + 1 + which] - 1
    assert spread.min() < -0.8
    assert spread.max() > 0.8
    adjust = getattr(tv, f"adjust_{name}")
    for x, one, u in zip(planes(images), out, spread.tolist(), strict=True):
        theirs = adjust(x / 255, strength * u + (which < 3)) * 255
        assert (one - theirs).abs().max() < 0.1


def test_jitter_uses_every_order():
    """24 orders of four operations give up to 24 results of one image with fixed factors."""
    images = pictures(1, 8, 8).expand(600, -1, -1, -1)
    u = uniforms(KEY, samples(images), 9, 7)
    u[:, 0], u[:, 1:5] = 0.0, torch.tensor([0.99, 0.1, 0.99, 0.9])
    x = planes(images)
    out = Views(replace(OFF, jitter=(0.8, 0.6, 0.8, 0.3)))._jitter(x, u)
    orders = u[:, 5:].argsort(dim=1)
    factors = [1 + 0.8 * 0.98, 1 - 0.6 * 0.8, 1 + 0.8 * 0.98, 0.3 * 0.8]
    kinds = [tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue]
    assert len(orders.unique(dim=0)) == 24
    for order in orders.unique(dim=0).tolist():
        theirs = x[:1] / 255
        for k in order:
            theirs = kinds[k](theirs, factors[k])
        ours = out[(orders == torch.tensor(order)).all(1)]
        assert (ours - 255 * theirs).abs().max() < 1, order


@pytest.mark.parametrize(
    ("share", "settings"),
    [
        (0.2, {"grayscale": 0.2}),
        (0.3, {"blur": 0.3}),
        (0.7, {"jitter": (0.5, 0, 0, 0), "jitter_probability": 0.7}),
    ],
)
def test_operations_occur_with_their_probabilities(share, settings):
    images = pictures(1000, 8, 8)
    out = view(replace(OFF, size=8, **settings), images)
    changed = ((out - planes(images)).abs() > 0.05).flatten(1).any(1)
    assert abs(changed.float().mean() - share) < 0.06


def test_grey_views_have_three_equal_channels():
    out = view(replace(OFF, size=8, grayscale=1.0), pictures(3, 8, 8))
    assert torch.allclose(out[:, :1].expand(-1, 3, -1, -1), out, atol=1e-4)


def test_a_grey_image_has_no_colour_to_change():
    images = pictures(20, 16, 16, channels=1)
    settings = replace(OFF, size=16, jitter=(0, 0, 0.9, 0.5), grayscale=1.0)
    assert torch.allclose(view(settings, images), planes(images), atol=1e-3)
    settings = replace(OFF, size=16, operations=("Color",), n_operations=3)
    assert torch.allclose(view(settings, images, "strong"), planes(images), atol=1e-3)


def test_a_strong_view_draws_its_operations_with_replacement():
    """Two draws of two operations: all four sequences occur, and each sample has one of them."""
    images = pictures(200, 8, 8)
    settings = replace(OFF, size=8, operations=("Solarize", "Posterize"), n_operations=2)
    out = view(settings, images, "strong")
    u = uniforms(KEY, samples(images), 30, 1)[:, 26:]
    seen = set()
    for x, one, (a, b, s, t) in zip(planes(images), out, u.tolist(), strict=True):
        for which, strength in (a, s), (b, t):
            name, magnitude = (
                ("Solarize", 256 * strength) if which < 0.5 else ("Posterize", 4 + 4 * strength)
            )
            x = apply_operation(name, x[None], magnitude)[0]
        seen.add((a < 0.5, b < 0.5))
        assert torch.allclose(one, x, atol=1e-3)
    assert len(seen) == 4


def test_cutout_sets_one_square_to_zero():
    images = pictures(500, 20, 20) // 2 + 100
    out = view(replace(OFF, size=20, cutout=0.5), images, "strong")
    empty = (out == 0).all(1)
    assert torch.equal((out == 0).any(1), empty)
    tall, wide = empty.any(2).sum(1), empty.any(1).sum(1)
    assert torch.equal(empty.flatten(1).sum(1), tall * wide)
    assert tall.max() == wide.max() == 10
    assert tall.min() == 1
    inside = ~(
        empty[:, 0].any(1) | empty[:, -1].any(1) | empty[..., 0].any(1) | empty[..., -1].any(1)
    )
    assert torch.equal(tall[inside], wide[inside])
    touched = empty.float().mean(0)
    assert touched.min() > 0.02
    assert torch.allclose(
        out[~empty[:, None].expand_as(out)],
        planes(images)[~empty[:, None].expand_as(out)],
        atol=1e-3,
    )


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (40, 32, 3), (64, 64, 3)])
@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_clean_view_is_pillows_resize_and_centre_crop(shape, scale):
    images = pictures(4, *shape)
    large = round(32 * scale)
    edge = (large - 32) // 2
    out = Views(replace(OFF, clean_scale=scale)).clean(images)
    for ours, image in zip(out, images.numpy(), strict=True):
        pillow = Image.fromarray(image.squeeze()).resize((large, large), Image.Resampling.BILINEAR)
        theirs = np.atleast_3d(np.asarray(pillow.crop((edge, edge, edge + 32, edge + 32))))
        assert np.abs(ours.round().numpy() - theirs.transpose(2, 0, 1)).max() <= 1


def test_views_are_normalised_per_channel():
    images = pictures()
    mean, std = (0.1, 0.5, 0.7), (0.2, 0.3, 0.4)
    out = Views(replace(OFF, mean=mean, std=std)).clean(images)
    expected = tv.normalize(planes(images) / 255, mean, std)
    assert out.dtype == torch.float32
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(out, expected, atol=1e-5)


def test_autocast_does_not_change_the_views():
    images = pictures()
    expected = view(ALL, images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(view(ALL, images), expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"operations": ("Rotate", "Sharpnes")}, "Did you mean 'Sharpness'"),
        ({"operations": ("Rotate", "Rotate")}, "names one twice"),
        ({"operations": ()}, "needs operations to draw from"),
        ({"size": 0}, "1 to 1024 is needed"),
        ({"grayscale": 1.5}, "grayscale is 1.5, but 0 to 1 is needed"),
        ({"crop": (0.5, 0.2)}, "crop is"),
        ({"scale": (0, 1)}, "scale is"),
        ({"shear": 90}, "shear is 90"),
        ({"jitter": (0.4, 0.4, 0.2, 0.6)}, "hue at most 0.5"),
        ({"clean_scale": 0.9}, "at least 1"),
        ({"mean": (0.5, 0.5)}, "std above zero"),
    ],
)
def test_impossible_settings_are_errors_that_say_what_is_needed(wrong, message):
    with pytest.raises(ValueError, match=message):
        ViewSettings(**wrong)


def test_wrong_images_are_errors_that_say_what_is_needed():
    views = Views(OFF)
    with pytest.raises(
        ValueError, match=r"torch.float32 of shape \(2, 8, 8, 3\); needed: torch.uint8"
    ):
        views.clean(torch.zeros(2, 8, 8, 3))
    with pytest.raises(ValueError, match="1 or 3"):
        views.clean(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"shape \(3,\) for 2 images"):
        views.weak(pictures(2), torch.arange(3), KEY)
    with pytest.raises(ValueError, match="3 values, but the images have 1 channel"):
        Views(ViewSettings()).clean(pictures(2, channels=1))


def both(views, images, at, key):
    return views.weak(images, at, key), views.strong(images, at, key), views.clean(images)


@pytest.mark.slow
def test_compiled_views_equal_the_eager_ones():
    """Up to rounding, which sometimes decides which of two pixels or levels is used."""
    images = pictures(8, 18, 18)
    views = Views(replace(ALL, size=18, n_operations=2))
    compiled = torch.compile(both, fullgraph=True, dynamic=False)
    for ours, theirs in zip(
        compiled(views, images, samples(images), KEY),
        both(views, images, samples(images), KEY),
        strict=True,
    ):
        assert ours.stride() == theirs.stride()
        assert ((ours - theirs).abs() > 1e-3).float().mean() < 1e-3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("way", ["eager", "compiled", "graph"])
@pytest.mark.parametrize("channels", [1, 3])
def test_views_on_a_gpu_equal_those_on_the_cpu(channels, way):
    images = pictures(64, channels=channels)
    views = Views(replace(ALL, size=32))
    at = images.cuda(), samples(images).cuda(), KEY.cuda()
    make = torch.compile(both, fullgraph=True, dynamic=False) if way == "compiled" else both
    if way == "graph":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            both(views, *at)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            on_gpu = both(views, *at)
        graph.replay()
    else:
        on_gpu = make(views, *at)
    for ours, theirs in zip(on_gpu, both(views, images, samples(images), KEY), strict=True):
        assert ours.stride() == theirs.stride()
        assert ((ours.cpu() - theirs).abs() > 1e-3).float().mean() < 1e-3

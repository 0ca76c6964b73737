"""Weak, strong and clean views of a batch of images (section 3.5), on the images' device.

Every sample has its own parameters, which depend on the key (seed, stage, epoch) and the sample
only: the same image gets the same view in any batch, process and run.
"""

import math

import torch
from torch import Tensor

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
from probagg.dpac.randomness import uniforms
from probagg.dpac.recipe import RANGES, ViewSettings
from probagg.errors import InputError

RATIOS = 3 / 4, 4 / 3  # width to height of a random crop
TRIES = 10  # attempts at a crop that fits, before the largest central one is used
SIGMAS = 0.1, 2.0  # deviations of the blur in pixels
FRAME = 2 * TRIES + 3  # random numbers of a crop (areas, ratios, corner) and a flip
WEAK = [FRAME, 5, 9, 1, 2]  # random numbers of frame, affine map, jitter, greyscale and blur


class Views:
    """Make views of uint8 images (B, H, W, C), C = 1 or 3, as normalised (B, C, size, size).

    The result is channels-last float32. `samples` (B,) are the images' rows in the dataset,
    `key` is a 0-d tensor of `randomness.key(seed, stage, epoch)`; another `copy` is an independent
    view under the same key. Without a crop, the whole image is resized. Sums of pixels are computed
    in float32, also under autocast; on a GPU they may differ in the last digits between batch
    sizes, as every matrix product does.

    >>> import torch
    >>> from probagg.dpac.randomness import key
    >>> views = Views(ViewSettings(size=16))
    >>> images = torch.randint(256, (8, 20, 20, 3), dtype=torch.uint8)
    >>> views.weak(images, torch.arange(8), torch.tensor(key(0, "pretrain", 3))).shape
    torch.Size([8, 3, 16, 16])
    """

    def __init__(self, settings: ViewSettings) -> None:
        self.settings = settings

    @torch.no_grad()
    def weak(self, images: Tensor, samples: Tensor, key: Tensor, copy: int = 0) -> Tensor:
        """Return SimCLR's view: crop, flip, affine map, colour jitter, greyscale, blur."""
        s = self.settings
        _check(images, samples)
        draws = uniforms(key, samples, sum(WEAK), stream=2 * copy)
        frame, moved, jitter, grayscale, blur = draws.split(WEAK, dim=1)
        with torch.autocast(images.device.type, enabled=False):
            x = self._frame(images, frame, s.crops)
            if s.moves:
                x = self._affine(x, moved)
            if s.jitter_probability and any(s.jitter):
                x = self._jitter(x, jitter)
            if s.grayscale and x.shape[1] == 3:
                x = torch.where(grayscale[:, :, None, None] < s.grayscale, luma(x), x)
            if s.blur:
                sigma = torch.where(blur[:, 0] < s.blur, _between(*SIGMAS, blur[:, 1]), 0.0)
                kernels = gaussian(sigma, s.size, radius=max(1, s.size // 20))
                x = resample(x, kernels, kernels)
            return self._normalise(x)

    @torch.no_grad()
    def strong(self, images: Tensor, samples: Tensor, key: Tensor, copy: int = 0) -> Tensor:
        """Return a flip, `n_operations` random operations and Cutout: RandAugment's view."""
        s = self.settings
        _check(images, samples)
        n = s.n_operations
        draws = uniforms(key, samples, FRAME + 3 + 2 * n, stream=2 * copy + 1)
        frame, cutout, which, strength = draws.split([FRAME, 3, n, n], dim=1)
        with torch.autocast(images.device.type, enabled=False):
            x = self._frame(images, frame, s.crops and s.strong_crop).round()
            which, magnitude = (which * len(s.operations)).floor(), torch.zeros_like(strength)
            chosen = {name: which == i for i, name in enumerate(s.operations)}
            for name, mine in chosen.items():
                magnitude = torch.where(mine, _between(*RANGES[name], strength), magnitude)
            for slot in range(n):
                here = {name: mine[:, slot] for name, mine in chosen.items()}
                x = apply_chosen(x, here, magnitude[:, slot])
            x = self._normalise(x)
            if (most := int(s.cutout * s.size)) > 0:
                side = 1 + (cutout[:, 0] * most).floor()
                top, left = ((cutout[:, i] * s.size).floor() - (side / 2).floor() for i in (1, 2))
                x = cut_out(x, top, left, side)
            return x

    @torch.no_grad()
    def clean(self, images: Tensor) -> Tensor:
        """Return the middle of the image, not random: for features, targets and predictions."""
        _check(images)
        size, height, width = self.settings.size, *images.shape[1:3]
        large = round(self.settings.clean_scale * size)
        first = round((large - size) / 2)
        with torch.autocast(images.device.type, enabled=False):
            rows, columns = (
                interpolation(*_whole(n, images), n, large)[:, first : first + size]
                for n in (height, width)
            )
            x = resample(images.permute(0, 3, 1, 2), rows, columns)
            return self._normalise(x)

    def _frame(self, images: Tensor, u: Tensor, crop: bool) -> Tensor:
        """Return the image or a random crop, resized to a view; half of them are mirrored."""
        size, height, width = self.settings.size, *images.shape[1:3]
        x = images.permute(0, 3, 1, 2)
        mirror = u[:, -1, None, None] < (0.5 if self.settings.flip else 0.0)
        if not crop and height == width == size:
            x = x.float()
            return torch.where(mirror[:, None], x.flip(3), x) if self.settings.flip else x
        if crop:
            top, tall, left, wide = crop_boxes(u[:, :-1], height, width, self.settings.crop)
        else:
            (top, tall), (left, wide) = _whole(height, images), _whole(width, images)
        rows = interpolation(top, tall, height, size)
        columns = interpolation(left, wide, width, size)
        return resample(x, rows, torch.where(mirror, columns.flip(1), columns))

    def _affine(self, x: Tensor, u: Tensor) -> Tensor:
        s, spread = self.settings, 2 * u - 1
        return affine(
            x,
            angle=s.rotate * spread[:, 0],
            right=s.translate * s.size * spread[:, 1],
            down=s.translate * s.size * spread[:, 2],
            scale=_between(*s.scale, u[:, 3]),
            shear=s.shear * spread[:, 4],
        )

    def _jitter(self, x: Tensor, u: Tensor) -> Tensor:
        """Change brightness, contrast, saturation and hue, in a random order per sample.

        First the blends that come before a sample's hue, then its hue, then the blends that come
        after it, so that the costly hue is computed once. A blend in the other pass has factor 1.
        """
        strengths = self.settings.jitter
        kinds = 3 if x.shape[1] == 3 else 2  # a grey image has no saturation
        on = u[:, :1] < self.settings.jitter_probability
        spread, times = torch.where(on, 2 * u[:, 1:5] - 1, 0.0), u[:, 5:]
        factors = [(1 + strengths[k] * spread[:, k]).clamp_min(0.0) for k in range(kinds)]
        when, which = times[:, :kinds].sort(dim=1)
        factor = torch.stack(factors, dim=1).gather(1, which)

        def blends(x: Tensor, factor: Tensor) -> Tensor:
            for f, kind in zip(factor.unbind(1), which.unbind(1), strict=True):
                x = blend(x, f, to_mean=kind == 1, to_grey=kind == 2)
            return x

        if kinds == 2 or not strengths[3]:
            return blends(x, factor)
        before = when < times[:, 3:]
        x = blends(x, torch.where(before, factor, 1.0))
        x = turn_hue(x, strengths[3] * spread[:, 3])
        return blends(x, torch.where(before, 1.0, factor))

    def _normalise(self, x: Tensor) -> Tensor:
        """Normalise channel by channel, which needs no tensor of constants; channels last."""
        C, mean, std = x.shape[1], self.settings.mean, self.settings.std
        if len(mean) not in (1, C):
            raise InputError(
                f"mean and std have {len(mean)} values, but the images have {C} channel(s). "
                "Pass one value per channel, or one for all."
            )
        if len(mean) == 1:
            mean, std = mean * C, std * C
        planes = [x[:, c] * (1 / (255 * std[c])) - mean[c] / std[c] for c in range(C)]
        return torch.stack(planes, dim=3).permute(0, 3, 1, 2)


def crop_boxes(u: Tensor, height: int, width: int, area: tuple[float, float]) -> tuple[Tensor, ...]:
    """Return top, height, left and width (B,) of random crops, from 22 uniforms per sample.

    As torchvision's RandomResizedCrop: the first of ten tries that fits, else the largest central
    crop of an allowed ratio.
    """
    areas, ratios, corner = u.split([TRIES, TRIES, 2], dim=1)
    areas = height * width * _between(*area, areas)
    ratios = _between(math.log(RATIOS[0]), math.log(RATIOS[1]), ratios).exp()
    wide, tall = (areas * ratios).sqrt().round(), (areas / ratios).sqrt().round()
    fits = (wide >= 1) & (wide <= width) & (tall >= 1) & (tall <= height)
    first, any_fits = fits.to(torch.int32).argmax(1, keepdim=True), fits.any(1)
    full_width = min(width, round(height * RATIOS[1]))
    full_height = min(height, round(width / RATIOS[0]))
    wide = torch.where(any_fits, wide.gather(1, first)[:, 0], float(full_width))
    tall = torch.where(any_fits, tall.gather(1, first)[:, 0], float(full_height))
    top, left = (height - tall + 1) * corner[:, 0], (width - wide + 1) * corner[:, 1]
    top = torch.where(any_fits, top.floor(), float((height - full_height) // 2))
    left = torch.where(any_fits, left.floor(), float((width - full_width) // 2))
    return top, tall, left, wide


def _whole(n: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return start and length of the interval of all n pixels."""
    start = torch.zeros(1, device=like.device, dtype=torch.float32)
    return start, start + n


def _between(low: float, high: float, u: Tensor) -> Tensor:
    return low + (high - low) * u


def _check(images: Tensor, samples: Tensor | None = None) -> None:
    if images.dim() != 4 or images.shape[3] not in (1, 3) or images.dtype != torch.uint8:
        raise InputError(
            f"images is {images.dtype} of shape {tuple(images.shape)}; needed: torch.uint8 of "
            f"shape (batch, height, width, 1 or 3)."
        )
    if samples is not None and samples.shape != images.shape[:1]:
        raise InputError(
            f"samples has shape {tuple(samples.shape)} for {len(images)} images; pass the row of "
            "each in the dataset."
        )

"""Operations on a batch of images, each sample with its own parameters.

Images are float32 (B, C, H, W) in grey levels 0..255, C = 1 or 3; a parameter is a tensor (B,).
The fourteen operations of the strong view work on integer levels and agree with Pillow to one
level, the others with torchvision. Shapes never depend on values and nothing waits for the device,
so everything can be compiled or recorded in a CUDA graph.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

GUARD = 1e-3  # added before rounding down, for integer levels that arithmetic made slightly lower


def apply_chosen(x: Tensor, chosen: Mapping[str, Tensor], magnitude: Tensor) -> Tensor:
    """Apply one operation to each sample: chosen[name] (B,) marks the samples of an operation.

    Each part leaves the samples of other operations unchanged, and is skipped if none of its
    operations is in `chosen`.
    """
    for part in _move, _equalize, _enhance, _autocontrast, _solarize, _posterize:
        x = part(x, chosen, magnitude)
    return x


def _column(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _places(n: int, like: Tensor) -> Tensor:
    return torch.arange(n, device=like.device, dtype=torch.float32)


def _move(x: Tensor, chosen: Mapping[str, Tensor], magnitude: Tensor) -> Tensor:
    """Apply Rotate, ShearX, ShearY, TranslateX and TranslateY as one affine map."""
    names = "Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"
    if not chosen.keys() & set(names):
        return x
    height, width = x.shape[2:]
    zero = torch.zeros_like(magnitude)
    angle, shear_x, shear_y, left, up = (
        torch.where(chosen[name], magnitude, zero) if name in chosen else zero for name in names
    )
    cos, sin = torch.cos(angle * (math.pi / 180)), torch.sin(angle * (math.pi / 180))
    horizontal = cos, shear_x - sin, (1 - cos) * (width / 2) + sin * (height / 2) + width * left
    vertical = sin + shear_y, cos, (1 - cos) * (height / 2) - sin * (width / 2) + height * up
    return _take_nearest(x, horizontal, vertical)


def _take_nearest(
    x: Tensor, horizontal: tuple[Tensor, ...], vertical: tuple[Tensor, ...]
) -> Tensor:
    """Return the pixels at (a X + b Y + c, d X + e Y + f) for every (X, Y), 0 outside.

    Coordinates are in 16.16 fixed point from the centre of the first pixel, as in Pillow, so that
    the choice of a pixel is integer arithmetic.
    """
    B, C, H, W = x.shape
    X = torch.arange(W, device=x.device, dtype=torch.int32)
    Y = torch.arange(H, device=x.device, dtype=torch.int32)[:, None]

    def along(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        terms = torch.stack([a, b, c + 0.5 * (a + b)])[:, :, None, None]
        a, b, start = torch.floor(terms * 65536 + 0.5).to(torch.int32)
        return (X * a + (Y * b + start)) >> 16

    column, row = along(*horizontal), along(*vertical)
    inside = (column >= 0) & (column < W) & (row >= 0) & (row < H)
    place = torch.where(inside, row * W + column, 0).to(torch.int64).view(B, 1, H * W)
    taken = x.reshape(B, C, H * W).gather(2, place.expand(B, C, H * W)).view(B, C, H, W)
    return torch.where(inside[:, None], taken, 0.0)


def _equalize(x: Tensor, chosen: Mapping[str, Tensor], magnitude: Tensor) -> Tensor:
    """Apply Equalize: spread the levels of each channel so that all are about as frequent."""
    pixels = x.shape[2] * x.shape[3]
    if "Equalize" not in chosen or pixels < 256:  # Pillow does nothing below
        return x
    flat = x.flatten(2)
    level = flat.to(torch.int64)
    counts = flat.new_zeros(*flat.shape[:2], 256).scatter_add(2, level, torch.ones_like(flat))
    brightest = counts.gather(2, level.amax(2, keepdim=True))
    step = torch.floor((pixels - brightest + 0.5) / 255)  # 0.5 keeps quotients off the integers
    below = counts.cumsum(2) - counts
    table = torch.floor((torch.floor(step / 2) + below + 0.5) / step.clamp_min(1.0))
    equalized = table.gather(2, level).clamp_max(255.0)
    mine = chosen["Equalize"][:, None, None] & (step > 0)
    return torch.where(mine, equalized, flat).view(x.shape)


def _enhance(x: Tensor, chosen: Mapping[str, Tensor], magnitude: Tensor) -> Tensor:
    """Apply Color, Contrast, Brightness and Sharpness: blend x with a degenerate image."""
    mine = [chosen[n] for n in ("Color", "Contrast", "Brightness", "Sharpness") if n in chosen]
    if not mine:
        return x
    factor = torch.where(torch.stack(mine).any(0), magnitude, 1.0)
    degenerate = x.new_zeros(())
    if "Color" in chosen or "Contrast" in chosen:
        grey = torch.floor(luma(x) + 0.5)
        if "Color" in chosen:
            degenerate = torch.where(_column(chosen["Color"]), grey, degenerate)
        if "Contrast" in chosen:
            mean = torch.floor(grey.mean((1, 2, 3), keepdim=True) + 0.5)
            degenerate = torch.where(_column(chosen["Contrast"]), mean, degenerate)
    if "Sharpness" in chosen:
        degenerate = torch.where(_column(chosen["Sharpness"]), _smooth(x), degenerate)
    blended = degenerate + _column(factor) * (x - degenerate)
    return torch.floor(blended + GUARD).clamp(0.0, 255.0)


def _smooth(x: Tensor) -> Tensor:
    """Apply Pillow's SMOOTH: a mean of 3 x 3 pixels, the middle one weighted 5; not the border."""
    rows = x[:, :, :-2] + x[:, :, 1:-1] + x[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    smooth = x.clone()
    smooth[:, :, 1:-1, 1:-1] = torch.floor((box + 4 * x[:, :, 1:-1, 1:-1]) / 13 + 0.5)
    return smooth


def _autocontrast(x: Tensor, chosen: Mapping[str, Tensor], magnitude: Tensor) -> Tensor:
    """Apply AutoContrast: map the darkest level of each channel to 0, the brightest to 255."""
    if "AutoContrast" not in chosen:
        return x
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    mine = _column(chosen["AutoContrast"]) & (high > low)
    low = torch.where(mine, low, 0.0)
    gain = torch.where(mine, 255 / (high - low).clamp_min(1.0), 1.0)
    return torch.floor((x - low) * gain + GUARD)


def _solarize(x: Tensor, chosen: Mapping[str, Tensor], magnitude: Tensor) -> Tensor:
    """Apply Solarize: invert levels at or above the threshold."""
    if "Solarize" not in chosen:
        return x
    threshold = torch.where(chosen["Solarize"], magnitude, 256.0)
    return torch.where(x < _column(threshold), x, 255 - x)


def _posterize(x: Tensor, chosen: Mapping[str, Tensor], magnitude: Tensor) -> Tensor:
    """Apply Posterize: keep only the highest bits of a level."""
    if "Posterize" not in chosen:
        return x
    step = torch.exp2(8 - torch.floor(magnitude)).round()
    step = _column(torch.where(chosen["Posterize"], step, 1.0))
    return torch.floor((x + 0.5) / step) * step


def luma(x: Tensor) -> Tensor:
    """Return the grey levels, (B, 1, H, W), with Pillow's weights; exact for integer levels."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x.split(1, dim=1)
    return (19595 * red + 38470 * green + 7471 * blue) * 2.0**-16


def interpolation(start: Tensor, length: Tensor, n_in: int, n_out: int) -> Tensor:
    """Return weights (B, n_out, n_in) that resize [start, start + length) to n_out pixels.

    A triangle as wide as the larger of the two pixels, cut at the ends of the interval and
    normalised: linear interpolation, antialiased when shrinking, as in Pillow and torchvision.
    """
    scale = (length / n_out)[:, None]
    pixels = _places(n_in, start) + 0.5 - start[:, None]
    centres = (_places(n_out, start) + 0.5) * scale
    distance = (centres[:, :, None] - pixels[:, None, :]).abs() / scale.clamp_min(1.0)[:, None]
    inside = (pixels > 0) & (pixels < length[:, None])
    weights = (1 - distance).clamp_min(0.0) * inside[:, None, :]
    return weights / weights.sum(2, keepdim=True)


def gaussian(sigma: Tensor, size: int, radius: int) -> Tensor:
    """Return weights (B, size, size) of a Gaussian blur cut at `radius`, with mirrored borders.

    The border pixel itself is not repeated. A sigma of 0 leaves the image unchanged.
    """
    at = _places(size, sigma)
    inverse = 1 / (sigma.clamp_min(1e-2) * math.sqrt(2))[:, None, None]

    def weight(distance: Tensor) -> Tensor:
        return torch.exp(-((distance * inverse) ** 2)) * (distance.abs() <= radius)

    there, here = at, at[:, None]
    weights = weight(there - here) + weight(there + here) * (there > 0)
    weights = weights + weight(2 * (size - 1) - there - here) * (there < size - 1)
    return weights / weights.sum(2, keepdim=True)


def resample(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return rows X columns^T of each channel X in float32, for weights (B or 1, out, in).

    The channels lie between rows and columns in memory, so that two batched products need no copy.
    """
    B, C, H, W = x.shape
    x = x.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format)
    x = x.reshape(B, H * C, W) @ columns.transpose(1, 2)
    x = rows @ x.reshape(B, H, C * columns.shape[1])
    return x.reshape(B, rows.shape[1], C, columns.shape[1]).permute(0, 2, 1, 3)


def affine(
    x: Tensor, angle: Tensor, right: Tensor, down: Tensor, scale: Tensor, shear: Tensor
) -> Tensor:
    """Rotate (degrees, clockwise), shift (pixels), scale and shear (degrees) about the centre.

    Interpolation is bilinear; pixels from outside the image are black.
    """
    H, W = x.shape[2:]
    angle, slope = angle * (math.pi / 180), torch.tan(shear * (math.pi / 180))
    cos, sin = (f(angle)[:, None, None] / scale[:, None, None] for f in (torch.cos, torch.sin))
    slope, right, down = slope[:, None, None], right[:, None, None], down[:, None, None]
    X = _places(W, x) + (0.5 - W / 2) - right
    Y = (_places(H, x) + (0.5 - H / 2))[:, None] - down
    column = (cos - sin * slope) * X + (sin + cos * slope) * Y
    row = cos * Y - sin * X
    grid = torch.stack([column * (2 / W), row * (2 / H)], dim=3)
    return F.grid_sample(x, grid, align_corners=False)


def blend(x: Tensor, factor: Tensor, to_mean: Tensor, to_grey: Tensor) -> Tensor:
    """Return factor x + (1 - factor) d, where d is black, the mean grey level or the pixel's own.

    These are torchvision's brightness, contrast and saturation; the masks (B,) choose between them.
    """
    grey, rest = luma(x), 1 - factor
    degenerate = _column(rest * to_mean) * grey.mean((1, 2, 3), keepdim=True)
    degenerate = degenerate + _column(rest * to_grey) * grey
    return (_column(factor) * x + degenerate).clamp(0.0, 255.0)


def turn_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue of RGB images by `turn`, a share of the colour circle (HSV)."""
    red, green, blue = x.unbind(1)
    value = x.amax(1)
    chroma = value - x.amin(1)
    unit = 1 / chroma.clamp_min(1e-6)
    hue = torch.where(value == green, (blue - red) * unit + 2, (red - green) * unit + 4)
    hue = torch.where(value == red, (green - blue) * unit, hue) + 6 * turn[:, None, None]
    ramps = [torch.remainder(hue + offset, 6.0) for offset in (5, 3, 1)]
    shares = [torch.minimum(ramp, 4 - ramp).clamp(0.0, 1.0) for ramp in ramps]
    return torch.stack([value - chroma * share for share in shares], dim=1)


def cut_out(x: Tensor, top: Tensor, left: Tensor, side: Tensor) -> Tensor:
    """Set a square of `side` pixels to zero; it may extend over the border."""
    H, W = x.shape[2:]
    row = _places(H, x) - top[:, None]
    column = _places(W, x) - left[:, None]
    rows = (row >= 0) & (row < side[:, None])
    columns = (column >= 0) & (column < side[:, None])
    return torch.where((rows[:, :, None] & columns[:, None, :])[:, None], 0.0, x)

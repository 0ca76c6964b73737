"""Random numbers that depend on what they are used for, and on nothing else.

A generator's numbers depend on how many were drawn before; these are a hash of (key, sample,
stream, counter). So a view of an image is the same in any batch, on any device, in any number of
processes and in a resumed run, also when compiled or in a CUDA graph, since nothing is stored.
"""

from hashlib import blake2b

import torch
from torch import Tensor

LOW = 0xFFFF_FFFF  # 32 bits in an int64: shifts fill with zeros and no product overflows

STREAM = 2**16  # numbers per stream; small, since compilers may add it in 32 bits


def key(seed: int, *parts: int | str) -> int:
    """Return 63 bits that identify a seed and what it is used for.

    >>> key(0, "pretrain", 3) == key(0, "pretrain", 3)
    True
    >>> key(0, "pretrain", 3) == key(0, "pretrain", 4)
    False
    """
    digest = blake2b(repr((seed, *parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def uniforms(key: Tensor, samples: Tensor, n: int, stream: int) -> Tensor:
    """Return n numbers in [0, 1) per sample, shape (B, n), float32.

    `key` is a 0-d int64 tensor that holds `key(...)`, `samples` (B,) are int64 indices of the
    dataset, `stream` separates several uses of a sample. For one key and stream the numbers of a
    sample do not change with n, and two samples below 2^32 never start from the same state.

    >>> import torch
    >>> a = uniforms(torch.tensor(key(0)), torch.tensor([7, 8]), n=3, stream=0)
    >>> b = uniforms(torch.tensor(key(0)), torch.tensor([8]), n=2, stream=0)
    >>> torch.equal(a[1:, :2], b)
    True
    """
    state = _mix(_mix(samples & LOW) ^ (key & LOW))
    state = _mix(state ^ (samples >> 32) ^ (key >> 32))
    place = _mix(torch.arange(n, device=samples.device) + stream * STREAM)
    bits = _mix(state[:, None] ^ place)
    return (bits >> 8).to(torch.float32) * 2.0**-24


def permutation(key: int, n: int, strata: Tensor | None = None) -> Tensor:
    """Return a random order of 0..n-1, on the CPU, with each of the strata (n,) spread evenly.

    Any contiguous part of the order has its share of each stratum, to one or two samples.

    >>> permutation(key(0, "order"), 4).sort().values
    tensor([0, 1, 2, 3])
    >>> strata = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> order = permutation(key(0, "order"), 6, strata)
    >>> strata[order[:3]].sum(), strata[order[3:]].sum()
    (tensor(1), tensor(1))
    """
    generator = torch.Generator().manual_seed(key)
    order = torch.randperm(n, generator=generator)
    if strata is None:
        return order
    _, strata, sizes = strata.unique(return_inverse=True, return_counts=True)
    grouped = order[strata[order].argsort(stable=True)]
    stratum = strata[grouped]
    rank = torch.arange(n) - (sizes.cumsum(0) - sizes)[stratum]
    offset = torch.rand(len(sizes), generator=generator, dtype=torch.float64)
    return grouped[((rank + offset[stratum]) / sizes[stratum]).argsort()]


def _mix(x: Tensor) -> Tensor:
    """Map 32 bits one-to-one so that flipping an input bit flips half of the output bits.

    The multipliers are the least biased ones below 2^31 of C. Wellons' hash-prospector.
    """
    x = ((x ^ (x >> 16)) * 0x21F0_AAAD) & LOW
    x = ((x ^ (x >> 15)) * 0x735A_2D97) & LOW
    return x ^ (x >> 15)

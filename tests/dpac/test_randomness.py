"""Random numbers by hashing: uniform, uncorrelated, the same everywhere."""

import numpy as np
import pytest
import torch
from scipy import stats

from probagg.dpac.randomness import key, permutation, uniforms

N = 20_000


def draw(seed=0, first=0, rows=N, n=6, stream=0):
    return uniforms(torch.tensor(key(seed)), torch.arange(first, first + rows), n, stream)


def test_numbers_are_float32_in_the_half_open_interval():
    u = draw(n=50)
    assert u.dtype == torch.float32
    assert u.shape == (N, 50)
    assert 0.0 <= u.min() < 1e-4
    assert 1.0 - 1e-4 < u.max() < 1.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_numbers_are_uniform_in_each_column(seed):
    for column in draw(seed).T:
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-4
        counts = np.bincount((column * 256).long().numpy(), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4


def test_numbers_are_uniform_along_a_row():
    """A few samples with many counters each."""
    for row in draw(rows=8, n=N):
        assert stats.kstest(row.numpy(), "uniform").pvalue > 1e-4


NEIGHBOURS = {
    "samples": lambda: (draw(n=8)[:-1], draw(n=8)[1:]),
    "samples far apart": lambda: (draw(n=8), draw(n=8, first=2**31)),
    "samples beyond 32 bits": lambda: (draw(n=8), draw(n=8, first=2**32)),
    "counters": lambda: (draw(n=9)[:, :-1], draw(n=9)[:, 1:]),
    "streams": lambda: (draw(stream=0, n=8), draw(stream=1, n=8)),
    "seeds": lambda: (draw(seed=0, n=8), draw(seed=1, n=8)),
    "lowest bit of the key": lambda: tuple(
        uniforms(torch.tensor(k), torch.arange(N), 8, 0) for k in (2, 3)
    ),
    "highest bit of the key": lambda: tuple(
        uniforms(torch.tensor(k), torch.arange(N), 8, 0) for k in (2, 2 + 2**62)
    ),
}


@pytest.mark.parametrize("what", NEIGHBOURS)
def test_adjacent_numbers_are_uncorrelated(what):
    """Nor do they depend on each other otherwise: pairs fill a 16 x 16 grid evenly."""
    a, b = (u.flatten().numpy() for u in NEIGHBOURS[what]())
    assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(a.size)
    grid = np.histogram2d(a, b, bins=16, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(grid.ravel()).pvalue > 1e-4
    assert not np.array_equal(np.sort(a), np.sort(b))


def test_each_bit_is_fair_and_flips_half_the_time_with_the_sample():
    bits = (draw() * 2**24).long()
    flipped = bits[1:] ^ bits[:-1]
    for bit in range(24):
        for words in bits, flipped:
            ones = ((words >> bit) & 1).sum().item()
            assert abs(ones - words.numel() / 2) < 4.5 * np.sqrt(words.numel()) / 2


def test_a_sample_does_not_depend_on_its_batch():
    u = draw(rows=100, n=7)
    rows = torch.tensor([3, 99, 3, 0])
    assert torch.equal(uniforms(torch.tensor(key(0)), rows, 7, 0), u[rows])
    assert torch.equal(uniforms(torch.tensor(key(0)), rows, 2, 0), u[rows, :2])


def test_no_two_samples_of_an_epoch_share_their_numbers():
    assert len(draw(rows=200_000, n=2).unique(dim=0)) == 200_000


def test_known_numbers_do_not_change():
    """A change here breaks resuming: a saved run would continue with other views."""
    assert key(0, "pretrain", 3) == 5256080058812657269
    u = uniforms(torch.tensor(2**62 + 5), torch.tensor([7, 2**40 + 1]), 2, 3)
    expected = [13921033, 13549931, 11183358, 5919104]
    assert [int(v) for v in (u * 2**24).flatten()] == expected


@pytest.mark.slow
def test_compiled_numbers_equal_the_eager_ones():
    compiled = torch.compile(uniforms, fullgraph=True, dynamic=False)
    at = torch.tensor(key(5)), torch.arange(64) * 977
    assert torch.equal(compiled(*at, 9, 1), uniforms(*at, 9, 1))


def test_keys_distinguish_seed_and_parts():
    made = {
        key(1),
        key(1, 0),
        key(10),
        key(0, 1),
        key(1, "a"),
        key(1, "a", 0),
        key(-1),
        key(1, "0"),
    }
    assert len(made) == 8
    assert all(0 <= k < 2**63 for k in made)


def test_a_permutation_is_complete_and_depends_on_its_key():
    order = permutation(key(0, "order"), 1000)
    assert torch.equal(order.sort().values, torch.arange(1000))
    assert torch.equal(order, permutation(key(0, "order"), 1000))
    assert not torch.equal(order, permutation(key(1, "order"), 1000))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_numbers_are_the_same_on_a_gpu():
    at = torch.tensor(key(5)), torch.arange(N)
    assert torch.equal(uniforms(*(t.cuda() for t in at), 9, 1).cpu(), uniforms(*at, 9, 1))
    compiled = torch.compile(uniforms, fullgraph=True, dynamic=False)
    assert torch.equal(compiled(*(t.cuda() for t in at), 9, 1).cpu(), uniforms(*at, 9, 1))


def test_strata_are_spread_evenly_and_in_random_order():
    generator = torch.Generator().manual_seed(0)
    strata = torch.multinomial(
        torch.tensor([0.5, 0.3, 0.15, 0.05]), 5000, True, generator=generator
    )
    orders = [permutation(key(seed, "order"), 5000, strata) for seed in (0, 1)]
    assert torch.equal(orders[0].sort().values, torch.arange(5000))
    assert not torch.equal(*orders)
    share = torch.bincount(strata) / 5000
    for batch in orders[0].split(250):
        assert ((torch.bincount(strata[batch], minlength=4) - 250 * share).abs() < 2.0).all()
    within = orders[0][strata[orders[0]] == 0]
    assert abs(np.corrcoef(np.arange(len(within)), within)[0, 1]) < 0.1


def test_strata_may_have_any_numbers():
    strata = torch.tensor([7, -1, 7, -1, 7, -1])
    order = permutation(key(0), 6, strata)
    assert strata[order].reshape(3, 2).sum(1).tolist() == [6, 6, 6]

"""Two gloo processes give the loss and gradients of one process with the joined batch."""

import pytest
import torch
import torch.distributed as dist
from processes import run_two

from probagg import OPALoss, PACLoss, WeightedContrastiveLoss, opa_targets
from probagg.errors import InputError
from probagg.opa.processes import gather_rows


def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(16, 6, generator=generator), torch.randn(16, 6, generator=generator)


def model():
    torch.manual_seed(1)
    return torch.nn.ModuleDict({"f": torch.nn.Linear(6, 5), "h": torch.nn.Linear(5, 4)})


def loss_of(network, x1, x2, gather):
    """Return the sum of all three losses, with gradients through distances and gate."""
    z1, z2 = network["f"](x1), network["f"](x2)
    logits = network["h"](z1)
    return (
        OPALoss(1.1, gather=gather)(z1, logits, network["h"](z2))
        + PACLoss(detach=False, gather=gather)(z1, logits)
        + WeightedContrastiveLoss(detach=False, gather=gather)(z1, z2, logits)
    )


def unequal_worker(rank, folder, border):
    """Compute targets of the rows before the border on one process, of the rest on the other."""
    dist.init_process_group("gloo")
    rows = slice(0, border) if rank == 0 else slice(border, 16)
    X, logits = (x[rows] for x in batch())
    Q = opa_targets(X + 5, logits.softmax(1), metric="sqeuclidean", gather=True)
    torch.save(Q, folder / f"{rank}.pt")
    dist.destroy_process_group()


def worker(rank, folder):
    dist.init_process_group("gloo")
    network = model()
    rows = slice(8 * rank, 8 * rank + 8)
    loss = loss_of(network, *(x[rows] for x in batch()), gather=True)
    loss.backward()
    for tensor in (loss := loss.detach(), *(p.grad for p in network.parameters())):
        dist.all_reduce(tensor)
        tensor /= 2  # as DistributedDataParallel averages
    if rank == 0:
        torch.save((loss, [p.grad for p in network.parameters()]), folder / "0.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("border", [12, 16])
def test_targets_do_not_depend_on_the_split_of_the_rows(tmp_path, border):
    run_two(unequal_worker, tmp_path, border)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    X, logits = batch()
    expected = opa_targets(X + 5, logits.softmax(1), metric="sqeuclidean")
    torch.testing.assert_close(torch.cat(results), expected, atol=1e-5, rtol=0)


def empty_worker(rank, folder):
    """Compute PAC's loss of all rows on one process, of none on the other."""
    dist.init_process_group("gloo")
    X, logits = (x[: 16 * (1 - rank)] for x in batch())
    logits = logits.requires_grad_()
    loss = PACLoss(gather=True)(X, logits)
    loss.backward()
    torch.save((loss.detach(), logits.grad), folder / f"{rank}.pt")
    dist.destroy_process_group()


def test_a_process_without_rows_does_not_change_the_loss_of_the_other(tmp_path):
    run_two(empty_worker, tmp_path)
    loss, gradient = torch.load(tmp_path / "0.pt")
    X, logits = batch()
    expected = PACLoss()(X, logits.requires_grad_())
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, logits.grad)
    assert torch.load(tmp_path / "1.pt")[0] == 0.0


def test_two_processes_give_the_gradients_of_one_with_the_joined_batch(tmp_path):
    run_two(worker, tmp_path)
    loss, gradients = torch.load(tmp_path / "0.pt")
    network = model()
    expected = loss_of(network, *batch(), gather=False)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach(), atol=1e-5, rtol=1e-5)
    for gradient, parameter in zip(gradients, network.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, atol=1e-5, rtol=1e-5)


def test_gather_needs_no_process_group():
    """The same script runs with and without torchrun."""
    assert not dist.is_initialized()
    network = model()
    alone = loss_of(network, *batch(), gather=False)
    torch.testing.assert_close(loss_of(network, *batch(), gather=True), alone)


def refused_worker(rank, folder):
    """Gather 3 rows of one process and 5 of the other; write what is said about it."""
    dist.init_process_group("gloo")
    try:
        gather_rows(torch.ones(3 + 2 * rank, 2))
    except InputError as error:
        (folder / str(rank)).write_text(str(error))
    dist.destroy_process_group()


def test_unequal_rows_are_an_error_in_each_process(tmp_path):
    """gloo would end the process without a word of why."""
    run_two(refused_worker, tmp_path)
    for rank in "01":
        assert "The processes have 3 to 5 rows" in (tmp_path / rank).read_text()

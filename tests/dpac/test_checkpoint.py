"""Checkpoints survive crashes and new versions."""

import pytest
import torch
from small_training import weights_hash
from torch import nn

from probagg.dpac.checkpoint import (
    TrainingState,
    load_optimizer_tensors,
    optimizer_tensors,
    read_checkpoint,
    save_checkpoint,
)


def checkpoint(value):
    return TrainingState(
        {"a.x": torch.full((3,), float(value)), "b.y": torch.tensor(value)}, {"v": value}
    )


def test_the_newest_checkpoint_is_read(tmp_path):
    for step in (1, 2, 10):
        save_checkpoint(tmp_path, step, checkpoint(step))
    found = read_checkpoint(tmp_path)
    assert found.description == {"v": 10}
    assert found.part("a.")["x"].tolist() == [10.0] * 3


def test_only_the_last_two_are_kept(tmp_path):
    for step in (1, 2, 10):
        save_checkpoint(tmp_path, step, checkpoint(step))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step-10.safetensors",
        "step-2.safetensors",
    ]


def test_files_that_a_person_put_among_checkpoints_stay(tmp_path):
    save_checkpoint(tmp_path, 1, checkpoint(1))
    mine = [tmp_path / "notes.txt", tmp_path / "best" / "a.pt", tmp_path / "step-9" / "a.pt"]
    mine += [tmp_path / "step-best.safetensors", tmp_path / ".step.tmp"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    for step in (2, 3, 4):
        save_checkpoint(tmp_path, step, checkpoint(step))
    assert [path.read_text() for path in mine] == ["mine"] * 5
    assert not (tmp_path / "step-1.safetensors").exists()
    assert read_checkpoint(tmp_path).description == {"v": 4}


def test_the_same_step_may_be_saved_again(tmp_path):
    save_checkpoint(tmp_path, 5, checkpoint(1))
    save_checkpoint(tmp_path, 5, checkpoint(2))
    assert read_checkpoint(tmp_path).description == {"v": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["step-5.safetensors"]


@pytest.mark.parametrize("damage", ["cut", "bit", "description", "empty"])
def test_a_damaged_checkpoint_is_skipped(tmp_path, damage, caplog):
    save_checkpoint(tmp_path, 1, checkpoint(1))
    newest = save_checkpoint(tmp_path, 2, checkpoint(2))
    data = newest.read_bytes()
    newest.write_bytes(
        {
            "cut": data[:-4],
            "bit": data[:-1] + bytes([data[-1] ^ 1]),
            "description": data.replace(b'v\\": 2', b'v\\": 3'),
            "empty": b"",
        }[damage]
    )
    assert newest.read_bytes() != data
    assert read_checkpoint(tmp_path).description == {"v": 1}
    assert "step-2.safetensors cannot be read" in caplog.text


def test_a_half_written_checkpoint_is_ignored_and_removed(tmp_path):
    save_checkpoint(tmp_path, 1, checkpoint(1))
    (tmp_path / ".step-2.safetensors.1-1.tmp").write_bytes(b"half")
    assert read_checkpoint(tmp_path).description == {"v": 1}
    save_checkpoint(tmp_path, 2, checkpoint(2))
    assert read_checkpoint(tmp_path).description == {"v": 2}
    assert len([*tmp_path.iterdir()]) == 2


def test_no_checkpoint_is_none(tmp_path):
    assert read_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_an_optimizer_resumes_from_its_tensors(kind, generator):
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}

    def trained(steps, state=None, weights=None):
        net = nn.Linear(3, 2)
        nn.init.ones_(net.weight)
        nn.init.zeros_(net.bias)
        if weights:
            net.load_state_dict(weights)
        optimizer = kind(net.parameters(), lr=0.1, **options)
        if state:
            load_optimizer_tensors(optimizer, state)
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.arange(6.0).view(2, 3)).pow(2).sum().backward()
            optimizer.step()
        return net, optimizer

    whole, _ = trained(4)
    half, optimizer = trained(2)
    resumed, _ = trained(2, optimizer_tensors(optimizer), half.state_dict())
    assert weights_hash(resumed) == weights_hash(whole)


def test_an_optimizers_state_has_the_memory_layout_of_its_parameters():
    """Fused optimisers on CUDA refuse a state whose strides differ from the weights'."""
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 3, 4, 4)).sum().backward()
    optimizer.step()
    state = {k: v.clone(memory_format=torch.contiguous_format)
             for k, v in optimizer_tensors(optimizer).items()}  # fmt: skip
    load_optimizer_tensors(optimizer, state)
    assert optimizer.state[net.weight]["exp_avg"].stride() == net.weight.stride()


def test_the_hash_sees_one_bit():
    net = nn.Linear(3, 2)
    before = weights_hash(net)
    with torch.no_grad():
        net.weight[0, 0] = torch.nextafter(net.weight[0, 0], torch.tensor(9.0))
    assert weights_hash(net) != before

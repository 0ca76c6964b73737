"""The training loop: resuming to the bit, schedules, limits, odd sizes. Nothing here clusters."""

import json
import math
import signal

import numpy as np
import pytest
import torch
from small_training import weights_hash
from torch import nn

from probagg.devices import choose_device
from probagg.dpac.checkpoint import CannotResume, read_checkpoint
from probagg.dpac.engine import (
    Diverged,
    Engine,
    Machine,
    effective_batch_size,
    learning_rate_factor,
)
from probagg.dpac.feed import Feed
from probagg.dpac.randomness import uniforms
from probagg.dpac.recipe import Training
from probagg.dpac.step import Stage, choose_precision
from probagg.errors import Interrupted

CPU = torch.device("cpu")
PLAN = Training(epochs=4, batch_size=8, learning_rate=0.01, schedule="cosine", warmup_epochs=1)


class Pixels:
    """Images as rows of an array; counts what is read."""

    def __init__(self, n=37):
        self.array = np.random.default_rng(0).integers(0, 256, (n, 4, 4, 1), dtype=np.uint8)
        self.reads = 0

    def __len__(self):
        return len(self.array)

    def read(self, rows):
        self.reads += 1
        return self.array[rows]


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))


class Small(Stage):
    """Regress noisy pixels; `state` counts epochs and weights the loss."""

    plan = None

    def __init__(self, name, net, plan=PLAN, feed=None, strata=None):
        self.name, self.net, self.plan = name, net, plan
        self.feed, self.strata = feed or Feed(Pixels(), CPU), strata
        self.epochs, self.finished = torch.zeros(()), torch.zeros(())

    @property
    def state(self):
        return {"epochs": self.epochs, "finished": self.finished}

    def before_epoch(self, epoch):
        self.epochs.add_(1)
        return self.strata and self.strata()

    def prepare(self, batch):
        noise = uniforms(batch.key, batch.samples, 16, 0).view(-1, 1, 4, 4)
        return [batch.images.permute(0, 3, 1, 2) / 255.0 + 0.1 * noise]

    def loss(self, batch, views):
        y = self.net(views[0])
        error = (y - views[0].flatten(1)[:, :4]).pow(2).mean()
        return {"loss": error / self.epochs, "size": y.abs().mean()}

    def finish(self):
        """Change weights and state, which must be saved with the stage."""
        self.finished.add_(1)
        with torch.no_grad():
            next(self.net.parameters()).mul_(1.5)


def train(
    net,
    out=None,
    *,
    stop_at=None,
    plan=PLAN,
    machine=None,
    stages=("one", "two"),
    strata=None,
    kind=Small,
    **more,
):
    """Train two stages; `stop_at` requests a stop after this many steps of the call."""
    steps = 0

    def progress(where):
        nonlocal steps
        steps += where.metrics is None
        if steps == stop_at and where.metrics is None:
            engine.stop = "the test"

    machine = machine or Machine("cpu")
    engine = Engine(net, seed=3, out=out, machine=machine, progress=progress, **more)
    engine.resume()
    for name in stages:
        engine.train(stage := kind(name, net, plan, strata=strata))
        assert (stage.epochs, stage.finished) == (plan.epochs, 1)  # also where it was done before
    return engine


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_run_interrupted_anywhere_ends_with_the_same_bits(tmp_path, optimizer):
    """Two stages of four epochs of four steps, interrupted after every `stop_at` steps."""
    plan = Training(**{**vars(PLAN), "optimizer": optimizer})
    whole = network()
    train(whole, tmp_path / "whole", plan=plan)
    history = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    for stop_at in [*range(1, 32, 4), 4, 16]:
        out, done = tmp_path / f"{optimizer}-{stop_at}", False
        while not done:
            net = network()
            try:
                train(net, out, stop_at=stop_at, plan=plan)
                done = True
            except Interrupted:
                pass
        assert weights_hash(net) == weights_hash(whole), stop_at
        again = (out / "metrics.jsonl").read_text().splitlines()
        assert [losses(line) for line in again] == [losses(line) for line in history]


def test_strata_survive_an_interruption(tmp_path):
    """They depend on the weights as the epoch began, which change during the epoch."""
    images = torch.from_numpy(Pixels().array).permute(0, 3, 1, 2) / 255.0

    def strata_of(net):
        def strata():
            with torch.no_grad():
                y = net.eval()(images)[:, 0]
                return (y > y.median()).long()

        return strata

    whole, plain = network(), network()
    train(whole, strata=strata_of(whole))
    train(plain)
    assert weights_hash(plain) != weights_hash(whole)
    for stop_at in (1, 6, 7):
        done = False
        while not done:
            net = network()
            try:
                train(net, tmp_path / str(stop_at), stop_at=stop_at, strata=strata_of(net))
                done = True
            except Interrupted:
                pass
        assert weights_hash(net) == weights_hash(whole), stop_at


def losses(line):
    record = json.loads(line)
    return record["stage"], record["epoch"], record["loss"], record["size"]


def test_a_finished_run_is_not_trained_again(tmp_path):
    """Neither its epochs nor what `finish` does to the weights."""
    first, again = network(), network()
    train(first, tmp_path)
    engine = train(again, tmp_path)
    assert weights_hash(again) == weights_hash(first)
    assert engine.position.total == 32


def test_the_same_seed_gives_the_same_weights():
    hashes = set()
    for _ in range(2):
        net = network()
        train(net)
        hashes.add(weights_hash(net))
    assert len(hashes) == 1


def test_a_checkpoint_of_another_run_is_refused_and_the_differences_named(tmp_path):
    train(network(), tmp_path, identity={"data": "a", "recipe": {"cluster": {"m": 1.03}}})
    with pytest.raises(CannotResume, match=r"data was 'a' and is 'b'; recipe.cluster.m was 1.03"):
        train(network(), tmp_path, identity={"data": "b", "recipe": {"cluster": {"m": 1.05}}})


def test_out_of_time_saves_and_stops(tmp_path):
    with pytest.raises(Interrupted, match="limit of 0 minutes"):
        train(network(), tmp_path, machine=Machine("cpu", max_minutes=0.0))
    assert (tmp_path / "checkpoints" / "step-1.safetensors").is_file()


class Interrupting(Small):
    """Raise a signal, by default that of Ctrl-C, in a given step."""

    def __init__(self, name, net, at, number=signal.SIGINT, **options):
        super().__init__(name, net, **options)
        self.left, self.number = at, number

    def loss(self, batch, views):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(self.number)
        return super().loss(batch, views)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_stops(tmp_path, number):
    before, net = signal.getsignal(number), network()
    stage = Interrupting("one", net, at=2, number=number)
    with pytest.raises(Interrupted, match=number.name):
        Engine(net, out=tmp_path, machine=Machine("cpu")).train(stage)
    assert list((tmp_path / "checkpoints").glob("step-*"))
    assert signal.getsignal(number) is before


def test_ctrl_c_before_anything_could_be_saved_stops_at_once(tmp_path):
    """A step may take a minute on a CPU, and there is nothing that its end would save."""
    net = network()
    with pytest.raises(KeyboardInterrupt):
        Engine(net, out=tmp_path, machine=Machine("cpu")).train(Interrupting("one", net, at=1))
    assert not list(tmp_path.glob("checkpoints/*"))


def test_without_a_folder_ctrl_c_stops_at_once_and_nothing_is_said_to_be_saved():
    net = network()
    with pytest.raises(KeyboardInterrupt):
        Engine(net, machine=Machine("cpu")).train(Interrupting("one", net, at=3))
    with pytest.raises(Interrupted, match="Nothing is saved: there is no out_dir"):
        Engine(net, machine=Machine("cpu", max_minutes=0.0)).train(Small("one", net))


def test_a_wait_for_the_end_of_a_step_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("probagg.dpac.engine.NOTICEABLE", 0.0)
    net = network()
    with pytest.raises(Interrupted):
        Engine(net, out=tmp_path, machine=Machine("cpu")).train(Interrupting("one", net, at=2))
    assert "Stopping after this step, which takes about" in caplog.text
    assert "Ctrl-C again stops at once" in caplog.text


def test_a_stage_is_reported_before_its_first_step():
    seen, net = [], network()
    Engine(net, machine=Machine("cpu"), progress=seen.append).train(Small("one", net))
    assert (seen[0].stage, seen[0].epoch, seen[0].step, seen[0].steps) == ("one", 0, 0, 4)


def test_losses_that_are_not_finite_stop_the_run():
    with pytest.raises(
        Diverged, match=r"A loss of one, epoch 1, is NaN or infinite.*learning_rate"
    ):
        train(network(), plan=Training(epochs=2, batch_size=8, optimizer="sgd", learning_rate=1e30))


def test_accumulated_parts_make_one_update():
    """Without batch norm and with a loss that is a mean, two halves are the whole."""
    results = []
    for parts in (1, 2):
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
        nn.init.zeros_(net[1].weight)
        nn.init.zeros_(net[1].bias)
        train(net, plan=Training(epochs=2, batch_size=8, accumulate=parts, learning_rate=0.01))
        results.append(net[1].weight.detach())
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-5)


def test_the_learning_rate_warms_up_then_follows_the_cosine():
    plan = Training(epochs=10, schedule="cosine", warmup_epochs=2)
    assert learning_rate_factor(plan, 0.1) == pytest.approx(0.5)
    assert learning_rate_factor(plan, 0.2) == pytest.approx(1.0)
    assert learning_rate_factor(plan, 0.6) == pytest.approx(0.5)
    assert learning_rate_factor(plan, 1.0) == pytest.approx(0.0, abs=1e-12)
    assert learning_rate_factor(Training(epochs=10), 0.7) == 1.0


def test_a_batch_larger_than_the_set_is_the_set():
    assert effective_batch_size(Training(batch_size=240), 100) == 100
    assert effective_batch_size(Training(batch_size=240, accumulate=3), 100) == 99


def test_too_few_images_for_a_batch_are_an_error():
    with pytest.raises(ValueError, match=r"3 images in batches of 8.*Use more images"):
        effective_batch_size(Training(batch_size=8, accumulate=2), 3)


def test_images_that_do_not_fit_are_read_ahead_in_order():
    images = Pixels(50)
    feed = Feed(images, CPU, share=0.0)
    assert not feed.resident
    rows = torch.randperm(50).split(8)
    for (pixels, samples), chosen in zip(feed.batches(rows), rows, strict=True):
        assert torch.equal(samples, chosen)
        assert torch.equal(pixels, torch.from_numpy(images.array[chosen.numpy()]))


def test_resident_and_read_ahead_images_train_the_same():
    plan, hashes = Training(epochs=2, batch_size=8), set()
    for share in (0.0, 0.5):
        net = network()
        engine = Engine(net, seed=1, machine=Machine("cpu"))

        engine.train(Small("one", net, plan, Feed(Pixels(), CPU, share=share)))
        hashes.add(weights_hash(net))
    assert len(hashes) == 1


def test_metrics_are_means_over_the_epoch(tmp_path):
    train(network(), tmp_path, stages=("one",))
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [r["epoch"] for r in records] == [1, 2, 3, 4]
    assert [r["step"] for r in records] == [4, 8, 12, 16]
    assert records[-1]["loss"] < records[0]["loss"]
    assert all(math.isfinite(r["images_per_second"]) for r in records)


def test_precision_is_chosen_for_the_device():
    assert choose_precision("auto", CPU) == torch.float32
    assert choose_precision("bf16", CPU) == torch.bfloat16
    with pytest.raises(ValueError, match="precision is 'fp8', but must be auto, fp32, bf16, fp16"):
        choose_precision("fp8", CPU)


def test_bf16_trains_on_the_cpu_too():
    train(network(), machine=Machine("cpu", precision="bf16"))


def test_a_device_is_chosen_by_name():
    assert choose_device("cpu") == CPU
    with pytest.raises(ValueError, match="device is 'abacus', but auto, cpu, cuda"):
        choose_device("abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_an_error():
    with pytest.raises(ValueError, match="finds no CUDA GPU here"):
        choose_device("cuda")


def test_the_users_cudnn_settings_are_kept(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    seen = []

    def watch(_):
        seen.append((torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic))

    net = network()
    engine = Engine(net, machine=Machine("cpu"), progress=watch)
    engine.train(Small("one", net))
    assert set(seen) == {(True, True)}


def test_a_diverged_state_is_not_saved(tmp_path):
    wild = Training(epochs=2, batch_size=8, optimizer="sgd", learning_rate=1e30)
    with pytest.raises(Diverged, match="start over"):
        train(network(), tmp_path, plan=wild, machine=Machine("cpu", save_minutes=0.0))
    found = read_checkpoint(tmp_path / "checkpoints")
    assert found is None or all(torch.isfinite(t).all() for t in found.tensors.values())


def test_records_of_a_run_killed_before_its_first_checkpoint_are_dropped(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"stage": "one", "epoch": 1, "step": 4}\n{"half')
    train(network(), tmp_path)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 8


def test_an_epoch_that_is_finished_twice_has_one_record(tmp_path):
    """Saved at the last step of an epoch, its record written, then killed."""
    with pytest.raises(Interrupted):
        train(network(), tmp_path, stop_at=3)  # stops after step 4, the last of the epoch
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "one", "epoch": 1, "step": 4, "loss": 0.0}\n')
    train(network(), tmp_path)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 8

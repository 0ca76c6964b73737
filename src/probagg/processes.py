"""Locks between processes, and the signals that end one."""

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from probagg.progress import logger

# Seconds between attempts.
PAUSE = 0.02
# Errors of file systems without locks, as some network file systems are.
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
# A lock is neither a link to another file nor a pipe to wait for.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

if sys.platform != "win32":
    import fcntl


@contextlib.contextmanager
def hold(path: Path, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`, which is removed afterwards.

    Where another process has it for `wait` seconds, a BlockingIOError names that process. A file
    without a living process that holds it, whatever its content, is not a lock. Where the file
    system has no locks, a warning is logged and nobody is kept out.
    """
    deadline = time.monotonic() + wait
    while (descriptor := _take(path, time.monotonic() >= deadline)) is None:
        time.sleep(PAUSE)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder may be gone, or read-only by now
            path.unlink()
        os.close(descriptor)


def _take(path: Path, is_last: bool) -> int | None:
    """Return the descriptor of the locked file, or None; the last attempt names its holder."""
    with contextlib.ExitStack() as closing:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666)
        closing.callback(os.close, descriptor)
        if os.fstat(descriptor).st_nlink > 1:
            raise OSError(errno.EMLINK, f"{path.name} is another name of a file")
        if not _lock(descriptor):
            if is_last:
                holder = os.read(descriptor, 20).decode(errors="replace") or "?"
                raise BlockingIOError(errno.EAGAIN, f"Process {holder}", str(path))
            return None
        with contextlib.suppress(FileNotFoundError):  # its last holder may have removed it
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                closing.pop_all()
                return descriptor
    return None


def _lock(descriptor: int) -> bool:
    """Lock a file if nobody has; return whether it is now ours."""
    try:
        if sys.platform == "win32":
            raise OSError(errno.ENOSYS, "Windows")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        logger.warning("This file system has no locks (%s): run one process at a time.", error)
    return True


@contextlib.contextmanager
def on_signals(handle: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `handle` on the signals that end a process; what nohup ignores stays ignored.

    These are Ctrl-C and SIGTERM, and where nobody else handles or ignores them SIGHUP and SIGUSR1,
    which SLURM sends before the time is up. Python allows this in the main thread only; elsewhere
    signals keep their meaning.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = [signal.SIGINT, signal.SIGTERM]
    # Windows has none of these.
    for number in (getattr(signal, n) for n in ("SIGHUP", "SIGUSR1") if hasattr(signal, n)):
        handler = signal.getsignal(number)
        is_ours = getattr(handler, "__module__", "").startswith("probagg.")
        ending += [number] if is_ours or handler == signal.SIG_DFL else []
    before = {number: signal.signal(number, handle) for number in ending}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

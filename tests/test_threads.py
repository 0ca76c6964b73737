"""Threads that read ahead."""

import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from probagg.threads import read_ahead


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals go to processes only")
def test_an_interrupted_reader_does_not_load_what_still_waits():
    """Ctrl-C reaches the reader while one piece is loaded and another one waits."""
    loaded, reader = [], threading.main_thread().ident

    def until_in(function):
        """Wait until the reader has called this function and not returned from it."""
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline:
            frame = sys._current_frames()[reader]
            while frame is not None:
                if frame.f_code is function.__code__:
                    return
                frame = frame.f_back
            time.sleep(0.01)

    def load(piece):
        if piece == 0:
            until_in(Future.result)
            signal.pthread_kill(reader, signal.SIGINT)
            until_in(ThreadPoolExecutor.shutdown)
            time.sleep(0.1)
        loaded.append(piece)
        return piece

    with pytest.raises(KeyboardInterrupt):
        next(read_ahead(load, [0, 1]))
    assert loaded == [0]

"""Threads that read ahead."""

import signal
import threading
import time

import pytest

from probagg.data.threads import read_ahead


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals go to processes only")
def test_an_interrupted_reader_does_not_load_what_still_waits():
    """Ctrl-C reaches the reader while one piece is loaded and another one waits."""
    loaded = []

    def load(piece):
        if piece == 0:
            time.sleep(0.3)  # until the reader waits for this piece
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(1.0)
        loaded.append(piece)
        return piece

    with pytest.raises(KeyboardInterrupt):
        next(read_ahead(load, [0, 1]))
    assert loaded == [0]

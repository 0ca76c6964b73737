"""A connection with a deadline for all its bytes together, so that none can hold a thread."""

from __future__ import annotations

import io
import socket
import time
from typing import Any

REQUEST_SECONDS = 60.0  # for a request to arrive, and for its answer to be taken


class Connection(io.RawIOBase):
    """The bytes of a socket, until `REQUEST_SECONDS` after the last `restart`.

    The timeout of a socket counts from byte to byte: a client that drips never reaches it.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._socket = connection
        self.restart()

    def restart(self) -> None:
        """Set the deadline anew."""
        self._deadline = time.monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._in_time().recv_into(buffer)

    def write(self, data: Any) -> int:
        return self._in_time().send(data)

    def _in_time(self) -> socket.socket:
        left = self._deadline - time.monotonic()
        if left <= 0.0:
            raise TimeoutError(f"took more than {REQUEST_SECONDS:g} s")
        self._socket.settimeout(left)
        return self._socket

"""The review page on this computer: 127.0.0.1, a secret address, closed when the person is done."""

import hmac
import http.cookies
import io
import json
import secrets
import socket
import socketserver
import threading
import time
import urllib.parse
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from probagg.app.review import ReviewError
from probagg.app.run.session import Session, StaleReview
from probagg.errors import InputError, ProbaggError, first_line
from probagg.progress import logger
from probagg.storage import read_bytes, unwritable

# Seconds for a request to arrive, and for its answer to be taken.
REQUEST_SECONDS = 60.0
# The most bytes of a request: a review that moves a million images fits.
MAX_BODY = 64 * 2**20
TOKEN_HEADER = "X-Probagg-Token"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_TEMPLATES = Path(__file__).parents[1] / "report" / "templates"
# Files by their address; no other file is served.
_STATIC = {
    "/" if path.suffix == ".html" else f"/{path.name}": path
    for folder in (_TEMPLATES / "review", _TEMPLATES)
    for path in folder.iterdir()
    if path.is_file()
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def serve(
    session: Session,
    *,
    open_browser: bool = True,
    port: int = 0,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the review page until its Done button is pressed, or Ctrl-C.

    `port=0` takes a free one. `on_ready` is called with the address, which holds a secret: without
    it no other user of this computer, and no web page, can read the images or change the review.
    """
    with ReviewServer(session, port) as server:
        if on_ready is not None:
            on_ready(server.url)
        if open_browser:
            # In a thread, since a text browser would block.
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            logger.info("interrupted; the review is saved")


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


class Refused(Exception):
    """A request that is not served: a status and the reason."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class ReviewServer(ThreadingHTTPServer):
    """One session on a port of 127.0.0.1."""

    def __init__(self, session: Session, port: int = 0) -> None:
        self.session = session
        self.token = secrets.token_urlsafe(24)
        self.is_closed = False
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"Port {port} cannot be used ({error}). Choose another, or leave it out to take a "
                "free one."
            ) from error
        self.url = f"http://127.0.0.1:{self.server_port}/?token={self.token}"
        # Browsers share cookies between ports.
        self.cookie = f"probagg-{self.server_port}"

    def server_bind(self) -> None:
        """Bind without looking up this computer's name on the network, as the base class does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log only: a browser may close the connection in the middle of a response."""
        logger.debug("a request failed", exc_info=True)

    def server_close(self) -> None:
        """Stop; requests on connections that are still open are refused from now on."""
        self.is_closed = True
        super().server_close()

    def is_token(self, given: str) -> bool:
        """Return whether the secret is right, in constant time."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "probagg", ""
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._wire = Connection(self.connection)
        self.rfile = self._incoming = io.BufferedReader(self._wire)
        # Headers and body are sent together.
        self.wfile = io.BufferedWriter(self._wire)

    def handle_one_request(self) -> None:
        """Wait for a request as long as for its bytes, which have their own deadline."""
        try:
            self._wire.restart()
            self._incoming.peek(1)
            self._wire.restart()
        except TimeoutError:
            self.close_connection = True
            return
        super().handle_one_request()

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, method: Callable[[str], None]) -> None:
        """Check the request, then serve it; a refusal or an error is JSON with its reason."""
        try:
            # An open connection outlives the server.
            if self.server.is_closed:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "probagg has stopped.")
            # An address with a host is for a proxy.
            if not self.path.startswith("/"):
                raise Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
            address = urllib.parse.urlsplit(self.path)
            self._admit(urllib.parse.parse_qs(address.query), address.path)
            method(address.path)
        except Refused as refusal:
            self._send_error(str(refusal), refusal.status)
        except (ConnectionError, TimeoutError):
            # There is nobody to answer.
            raise
        except ProbaggError as error:
            self._send_error(str(error))
        except Exception as error:
            logger.warning("A request of the review page failed: %r", error)
            logger.debug("of the review page", exc_info=True)
            self._send_error(f"probagg failed ({first_line(error)}). The terminal says more.")

    def _send_error(self, why: str, status: HTTPStatus = HTTPStatus.INTERNAL_SERVER_ERROR) -> None:
        # A body that was not read must not become a request.
        self.close_connection = True
        self._send_json({"error": why}, status)

    def _admit(self, query: dict[str, list[str]], path: str) -> None:
        """Refuse another host name (DNS rebinding) and requests without the secret."""
        port = self.server.server_port
        hosts = self.headers.get_all("Host", [])
        if hosts not in ([f"127.0.0.1:{port}"], [f"localhost:{port}"]):
            raise Refused(HTTPStatus.FORBIDDEN, "This page is served to 127.0.0.1 only.")
        cookie = http.cookies.SimpleCookie()
        try:
            cookie.load(self.headers.get("Cookie", ""))
        except http.cookies.CookieError:
            cookie.clear()
        given = [self.headers.get(TOKEN_HEADER, "")]
        if self.server.cookie in cookie:
            given.append(cookie[self.server.cookie].value)
        if path == "/":
            given += query.get("token", [])
        if not any(map(self.server.is_token, given)):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "The secret is missing or wrong. Open the address that the terminal shows.",
            )

    def _get(self, path: str) -> None:
        session = self.server.session
        if path in _STATIC:
            file = _STATIC[path]
            self._send(read_bytes(file), f"{_TYPES[file.suffix]}; charset=utf-8")
        elif path == "/api/run":
            self._send_json(session.describe())
        elif path.startswith("/thumb/"):
            self._send_picture(session.thumbnail, path.removeprefix("/thumb/"))
        elif path.startswith("/photo/"):
            self._send_picture(session.photo, path.removeprefix("/photo/"))
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def _send_picture(self, picture_of: Callable[[int], bytes | None], number: str) -> None:
        is_number = number.isascii() and number.isdigit() and len(number) < 16
        picture = picture_of(int(number)) if is_number else None
        if picture is None:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no picture of this sample.")
        self._send(picture, "image/jpeg")

    def _post(self, path: str) -> None:
        origin = self.headers.get("Origin", f"http://{self.headers['Host']}")
        if origin != f"http://{self.headers['Host']}":
            raise Refused(HTTPStatus.FORBIDDEN, "Another page may not change this review.")
        body = self._read_json()
        if path == "/api/done":
            self._send_json({"done": True})
            self.wfile.flush()
            self.server.shutdown()
            return
        session = self.server.session
        answers: dict[str, tuple[Callable[..., dict[str, Any]], tuple[str, ...]]] = {
            "/api/review": (self._save, ("review", "version")),
            "/api/split": (session.split, ("review", "cluster", "parts")),
            "/api/similar": (session.similar, ("sample",)),
        }
        if path not in answers:
            raise Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
        answer, names = answers[path]
        if not isinstance(body, dict):
            needed = ", ".join(map(json.dumps, names))
            raise Refused(HTTPStatus.BAD_REQUEST, f"An object with {needed} is needed.")
        try:
            self._send_json(answer(*map(body.get, names)))
        except StaleReview as stale:
            raise Refused(HTTPStatus.CONFLICT, str(stale)) from stale
        except ReviewError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from error

    def _save(self, review: Any, version: Any) -> dict[str, Any]:
        if not isinstance(version, str):
            raise Refused(HTTPStatus.BAD_REQUEST, '"version" must be text.')
        try:
            return {"version": self.server.session.save(review, version)}
        except OSError as error:
            why = f"{error.filename} {unwritable(error)}"
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, why) from error

    def _read_json(self) -> Any:
        # A form cannot send this.
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body must be application/json.")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "The body must come with its length.")
        if len(length) > 15 or int(length) > MAX_BODY:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The body has {length[:15]} bytes; at most {MAX_BODY} are allowed.",
            )
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"The body is not JSON: {error}.") from error

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(value).encode(), "application/json", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._wire.restart()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status == HTTPStatus.OK and kind.startswith("text/html"):
            # Strict: not sent with requests from other sites.
            secret = f"{self.server.cookie}={self.server.token}"
            self.send_header("Set-Cookie", f"{secret}; Path=/; HttpOnly; SameSite=Strict")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log what the base class would print, without the secret."""
        logger.debug("review page: %s", (format % args).replace(self.server.token, "..."))

"""The review server with damaged runs and with clients that are up to something."""

import contextlib
import http.client
import json
import re
import socket
import threading
import time

import pytest
from commands import reseal
from served import words

from probagg.app.review import Review
from probagg.app.run.contents import read_review
from probagg.app.run.folder import RunFolderError
from probagg.app.run.server import TOKEN_HEADER
from probagg.app.run.session import Session


@pytest.fixture
def served_run(clustered):
    return clustered


@pytest.mark.parametrize(
    "manifest", ["", "{", "[]", '{"sha256": 3}', "{}", "\0", "[" * 100_000, '{"sha256": null}']
)
def test_a_save_with_a_damaged_manifest_is_an_error_that_names_it(client, clustered, manifest):
    version = client.run()["version"]
    (clustered / "manifest.json").write_text(manifest)
    answer = client.save(version, names={"0": "cats"})
    assert answer.status == 500
    assert f"{clustered / 'manifest.json'} cannot be read" in words(answer)
    assert read_review(clustered) == Review(), "what was not confirmed is not there"


def test_a_run_damaged_while_the_page_is_open_is_an_answer(client, clustered):
    """Reading the review needs the number of clusters, which result.json gives."""
    saved = client.save(client.run()["version"], names={"0": "cats"})
    (clustered / "result.json").write_text("{")
    again = client.save(json.loads(saved.body)["version"], names={"0": "dogs"})
    for answer in (client.get("/api/run"), again):
        assert answer.status == 500
        assert "result.json is damaged" in words(answer)


def test_a_broken_table_of_overlaps_is_an_error_before_the_page_opens(clustered):
    (clustered / "overlaps.csv").write_text("first,second,mean_probability,samples\n0,1\n")
    reseal(clustered)
    with pytest.raises(RunFolderError, match=r"overlaps\.csv cannot be read"):
        Session(clustered)


def test_any_other_failure_is_an_answer_and_a_line_in_the_log(client, monkeypatch, caplog):
    """The page shows the reason; a connection that drops would show nothing."""
    monkeypatch.setattr(client.server.session, "describe", lambda: 1 / 0)
    answer = client.get("/api/run")
    assert answer.status == 500
    assert words(answer) == "probagg failed (division by zero). The terminal says more."
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("line", "host", "status"),
    [
        ("GET /api/run HTTP/1.1", "", 403),
        ("GET /api/run HTTP/1.1", "{host}\r\nHost: evil.example", 403),
        ("GET /api/run HTTP/1.1", "evil.example\r\nHost: {host}", 403),
        ("GET http://evil.example/api/run HTTP/1.1", "{host}", 404),
        ("GET http://{host}/api/run HTTP/1.1", "{host}", 404),
        ("GET /api/run HTTP/1.1", "{host}", 200),
    ],
)
def test_only_one_host_and_a_plain_address_are_served(client, line, host, status):
    request = f"{line}\r\nHost: {host}\r\n{TOKEN_HEADER}: {client.server.token}\r\n"
    request += "Connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(request.format(host=client.host).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert int(re.match(rb"HTTP/1\.1 (\d+)", answer)[1]) == status


def wait_for_threads(n, meanwhile=lambda: None):
    deadline = time.monotonic() + 5
    while threading.active_count() > n and time.monotonic() < deadline:
        meanwhile()
        time.sleep(0.05)
    assert threading.active_count() <= n, "a thread is held"


@pytest.mark.parametrize("where", ["address", "headers", "body"])
def test_a_client_that_drips_is_cut_off(client, monkeypatch, where):
    """The timeout of a socket starts again with every byte; a request has one for all of them."""
    monkeypatch.setattr("probagg.app.run.server.REQUEST_SECONDS", 0.4)
    start = "POST /api/review HTTP/1.1\r\n"
    headers = f"Host: {client.host}\r\n{TOKEN_HEADER}: {client.server.token}\r\n"
    headers += "Content-Type: application/json\r\nContent-Length: 9999999\r\n\r\n"
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        at_once = {"address": "", "headers": start, "body": start + headers}[where]
        connection.sendall((at_once + "P").encode())

        def drip():
            with contextlib.suppress(OSError):
                connection.sendall(b"x")

        while threading.active_count() == before:  # until the server has accepted
            drip()
        wait_for_threads(before, drip)


def test_an_answer_that_is_taken_slowly_is_given_up(client, monkeypatch):
    """5 MB a second: each part is taken in time, all of them in ten seconds."""
    monkeypatch.setattr("probagg.app.run.server.REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(client.server.session, "describe", lambda: {"x": "x" * 50_000_000})
    before = threading.active_count()
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    connection.request("GET", "/api/run", headers={TOKEN_HEADER: client.server.token})
    connection.sock.recv(1)
    wait_for_threads(before, lambda: connection.sock.recv(2**18))
    connection.close()


def test_the_time_before_a_request_does_not_count_for_it(client, monkeypatch):
    """A page stays open for minutes between two saves."""
    monkeypatch.setattr("probagg.app.run.server.REQUEST_SECONDS", 1.0)
    request = f"GET /api/run HTTP/1.1\r\nHost: {client.host}\r\n"
    rest = f"{TOKEN_HEADER}: {client.server.token}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        for part in (request, rest):
            time.sleep(0.6)
            connection.sendall(part.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")

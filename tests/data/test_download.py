"""Downloads from a local server that cuts connections, sends wrong bytes and refuses."""

import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from probagg.data import download
from probagg.data.download import Remote, cache_folder, fetch, obtain, unpack
from probagg.errors import NoData

CONTENT = bytes(range(256)) * 1000


class Server(ThreadingHTTPServer):
    """Sends `content`; each connection ends after the next of `cuts` bytes."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.cuts, self.ranges, self.resumes = CONTENT, [], [], True
        self.status = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file.tar.gz"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.ranges.append(asked)
        start = int(asked[6:-1]) if asked and server.resumes else 0
        body = server.content[start:]
        status = server.status or (206 if start else 200)
        if start >= len(server.content):
            status, body = 416, b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote_of(server, content=CONTENT):
    return Remote(server.url, f"md5:{hashlib.md5(content).hexdigest()}")


def test_a_file_is_fetched_once_and_progress_counts_its_bytes(server, tmp_path):
    seen = []
    digest = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    path = fetch(Remote(server.url, digest), tmp_path, progress=lambda *t: seen.append(t))
    assert path == tmp_path / "file.tar.gz"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert fetch(Remote(server.url, digest), tmp_path) == path
    assert server.ranges == [None]
    assert list(tmp_path.iterdir()) == [path]


def test_a_cut_connection_is_resumed(server, tmp_path):
    server.cuts = [1000, 5000]
    seen = []
    path = fetch(remote_of(server), tmp_path, progress=lambda *t: seen.append(t))
    assert path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000-", "bytes=6000-"]
    assert {total for _, total in seen} == {len(CONTENT)}


def test_a_partial_download_is_resumed_later(server, tmp_path):
    (tmp_path / "file.tar.gz.part").write_bytes(CONTENT[:777])
    assert fetch(remote_of(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == ["bytes=777-"]


def test_a_complete_partial_download_is_only_checked(server, tmp_path):
    """The earlier run ended between the last byte and renaming."""
    (tmp_path / "file.tar.gz.part").write_bytes(CONTENT)
    assert fetch(remote_of(server), tmp_path).read_bytes() == CONTENT


def test_a_server_that_cannot_resume_starts_again(server, tmp_path):
    server.resumes, server.cuts = False, [1000]
    assert fetch(remote_of(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000-"]


def test_a_server_that_always_cuts_at_the_same_byte_is_an_error(server, tmp_path):
    server.resumes, server.cuts = False, [1000] * 9
    with pytest.raises(NoData, match="could not be fetched from http"):
        fetch(remote_of(server), tmp_path)
    assert len(server.ranges) == 2


def test_a_wrong_checksum_is_an_error_and_the_download_is_deleted(server, tmp_path):
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(
        NoData, match=r"http\S+ has md5:\w+ where md5:\w+ is needed, and was deleted"
    ):
        fetch(remote_of(server), tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file.tar.gz").write_bytes(b"by hand, but another file")
    with pytest.raises(NoData, match=r"truncated or another file. Delete it"):
        fetch(remote_of(server), tmp_path)
    assert (tmp_path / "file.tar.gz").exists(), "a user's file is not deleted"


def test_without_network_one_error_says_where_to_put_the_file(server, tmp_path):
    server.status, server.content = 404, b"gone"
    with pytest.raises(NoData, match=r"could not be fetched from http.*\(Not Found\)"):
        fetch(remote_of(server), tmp_path)
    nowhere = Remote("http://127.0.0.1:9/cifar.tar.gz", "md5:0")
    with pytest.raises(NoData) as error:
        fetch(nowhere, tmp_path)
    message = str(error.value)
    assert message.startswith("cifar.tar.gz could not be fetched from http://127.0.0.1:9/")
    assert f"save the file yourself as {tmp_path / 'cifar.tar.gz'}" in message
    assert "in the folder that PROBAGG_DATA names" in message


def tar_of(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["../evil", "/evil/../../evil"])
def test_a_member_that_leaves_the_folder_unpacks_nothing(tmp_path, name):
    (tmp_path / "in").mkdir()
    archive = tar_of(tmp_path / "a.tar.gz", {"good": b"1", name: b"2"})
    with pytest.raises(NoData, match=r"cannot be unpacked .*outside the destination"):
        unpack(archive, tmp_path / "in" / "set")
    assert list((tmp_path / "in").iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_a_broken_archive_unpacks_nothing(tmp_path):
    archive = tar_of(tmp_path / "a.tar.gz", {"good": bytes(100_000)})
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(NoData, match=r"a\.tar\.gz cannot be unpacked"):
        unpack(archive, tmp_path / "set")
    assert list(tmp_path.iterdir()) == [archive]


def test_a_release_is_fetched_and_unpacked_into_the_cache(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBAGG_CACHE", str(tmp_path / "cache"))
    server.content = tar_of(tmp_path / "x.tar.gz", {"inner/train.bin": b"123"}).read_bytes()
    monkeypatch.setitem(download.REMOTES, "cifar100", (remote_of(server, server.content),))
    for _ in range(2):
        folder = obtain("cifar100")
        assert folder == cache_folder() / "cifar100"
        assert (folder / "inner" / "train.bin").read_bytes() == b"123"
    assert len(server.ranges) == 1


def test_several_processes_fetch_a_release_once(server, tmp_path, monkeypatch):
    """torchrun starts one process per GPU, and each loads the data."""
    monkeypatch.setenv("PROBAGG_CACHE", str(tmp_path / "cache"))
    server.content = tar_of(tmp_path / "x.tar.gz", {"train.bin": b"123"}).read_bytes()
    monkeypatch.setitem(download.REMOTES, "cifar100", (remote_of(server, server.content),))
    threads = [threading.Thread(target=obtain, args=("cifar100",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache_folder() / "cifar100" / "train.bin").exists()
    assert len(server.ranges) == 1


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBAGG_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("PROBAGG_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "probagg"
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROBAGG_CACHE", str(tmp_path / "file"))
    with pytest.raises(NoData, match=r"cannot be written .* Set PROBAGG_CACHE"):
        obtain("mnist")

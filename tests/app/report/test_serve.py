"""The review server over a socket: access, reading, writing."""

import http.client
import io
import json
import re
import shutil
import socket
import threading
import time

import numpy as np
import pytest
from served import words

from probagg.app.review import Review, ReviewError
from probagg.app.run.contents import read_review, write_review
from probagg.app.run.folder import RunFolderError
from probagg.app.run.server import MAX_BODY, TOKEN_HEADER, ReviewServer, serve
from probagg.app.run.session import Session
from probagg.errors import InputError


@pytest.fixture
def served_run(photo_run):
    return photo_run


# ---- access


def test_only_this_computer_can_connect(client):
    assert client.server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path", ["/", "/api/run", "/thumb/0", "/photo/0", "/review.js", "/?token=guess"]
)
def test_without_the_secret_nothing_is_served(client, path):
    for token in (None, "guess", client.server.token[:-1], "ä"):
        answer = client.get(path, **{TOKEN_HEADER: token and token.encode().decode("latin-1")})
        assert answer.status == 403
        assert "Open the address that the terminal shows" in words(answer)


def test_the_address_opens_the_page_and_gives_a_cookie_that_opens_the_rest(client):
    path = client.server.url.partition(client.host)[2]
    page = client.get(path, **{TOKEN_HEADER: None})
    assert page.status == 200
    cookie = page.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    for path in ("/api/run", "/thumb/0", "/style.css", "/review.js"):
        answer = client.get(path, Cookie=cookie.partition(";")[0], **{TOKEN_HEADER: None})
        assert answer.status == 200, path
    assert client.get("/api/run?token=" + client.server.token, **{TOKEN_HEADER: None}).status == 403


def test_pages_on_two_ports_do_not_share_a_cookie(client, photo_run):
    other = ReviewServer(Session(photo_run))
    assert other.cookie != client.server.cookie
    assert other.token != client.server.token
    other.server_close()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", None])
def test_another_host_name_is_refused(client, host):
    """DNS rebinding: a web page's own name that resolves to 127.0.0.1."""
    answer = client.get("/api/run", Host=host and host.format(port=client.port))
    assert answer.status == 403
    assert "127.0.0.1 only" in words(answer)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null"])
def test_another_page_cannot_change_the_review(client, photo_run, origin):
    for path in ("/api/review", "/api/split"):
        answer = client.post(path, {}, Origin=origin)
        assert (answer.status, words(answer)) == (403, "Another page may not change this review.")
    assert client.post("/api/done", {}, Origin=origin).status == 403
    assert client.get("/api/run").status == 200, "it still runs"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_form_cannot_post(client, kind):
    """Browsers send these types across sites without a preflight request."""
    assert client.post("/api/review", {}, Content_Type=kind).status == 415


def test_every_response_forbids_what_the_page_does_not_need(client):
    for path in ("/", "/api/run", "/thumb/0", "/nothing"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


# ---- reading


def test_the_page_gets_every_sample_with_its_columns(client, photo_run):
    run = client.run()
    samples = run["samples"]
    assert (run["n_clusters"], run["pictures"], run["trouble"]) == (3, True, None)
    assert {len(column) for key, column in samples.items() if key != "key"} == {120}
    assert set(samples["cluster"]) <= {0, 1, 2}
    assert set(samples["flag"]) <= {"", "borderline", "outlier"}
    assert sorted(overlap["pair"] for overlap in run["overlaps"]) == [[0, 1], [0, 2], [1, 2]]


def test_a_thumbnail_shows_the_image_of_its_row(client, photos):
    from PIL import Image

    names = client.run()["samples"]["name"]
    assert client.server.session.thumbnail(0) is client.server.session.thumbnail(0), "made once"
    for row in (0, 57, 119):
        answer = client.get(f"/thumb/{row}")
        assert answer.headers["Content-Type"] == "image/jpeg"
        shown = Image.open(io.BytesIO(answer.body)).resize((16, 16))
        meant = Image.open(photos / names[row]).convert("RGB").resize((16, 16))
        difference = np.asarray(shown, float) - np.asarray(meant, float)
        assert np.abs(difference).mean() < 8


def test_a_photo_is_whole_and_large_where_its_thumbnail_is_a_small_square(photo_run, tmp_path):
    from PIL import Image

    folder = tmp_path / "wide"
    folder.mkdir()
    for i in range(120):
        Image.new("RGB", (400 if i else 3200, 200 if i else 1000), "white").save(
            folder / f"{i:03}.jpg"
        )
    lines = (photo_run / "assignments.csv").read_text().split("\n")
    table = [f"{row:03}.jpg,0,0.9,1,0.1,1.0," for row in range(120)]
    (photo_run / "assignments.csv").write_text("\n".join([lines[0], *table]))
    (photo_run / "config.toml").write_text(f'source = "{folder}"\nkind = "images"\n')
    session = Session(photo_run)
    sizes = [Image.open(io.BytesIO(session.photo(row))).size for row in (0, 1)]
    assert sizes == [(1600, 500), (400, 200)]
    assert Image.open(io.BytesIO(session.thumbnail(1))).size == (192, 192)
    (folder / "002.jpg").unlink()
    (folder / "003.jpg").write_bytes(b"broken")
    assert [session.photo(row) for row in (2, 3, 120, -1)] == [None] * 4


def test_a_file_that_was_skipped_does_not_shift_the_others(photo_run, photos, tmp_path):
    """Rows of a run and of the folder differ where a broken file was left out, or one was added."""
    copy = shutil.copytree(photos, tmp_path / "copy")
    (copy / "aaa.png").write_bytes(b"broken")
    config = (photo_run / "config.toml").read_text()
    (photo_run / "config.toml").write_text(config.replace(str(photos), str(copy)))
    before = Session(photo_run).thumbnail(5)
    gone = Session(photo_run)
    (copy / gone.samples.names[0]).unlink()
    assert before == Session(photo_run).thumbnail(5)
    assert gone.thumbnail(0) is None


def test_images_without_files_are_shown_by_row_if_their_number_is_right(photo_run, photos):
    """A row is an index into an array; in an array of another length it may be another image."""
    from probagg.data.opening import open_images

    pixels = open_images(photos, size=8).read(np.arange(120))
    lines = (photo_run / "assignments.csv").read_text().split("\n")
    table = [f"{row},0,0.9,1,0.1,1.0," for row in range(120)]
    (photo_run / "assignments.csv").write_text(
        "\n".join(["row," + lines[0].partition(",")[2], *table])
    )
    source = photo_run / "source.npz"
    (photo_run / "config.toml").write_text(f'source = "{source}"\nkind = "images"\n')
    np.savez(source, X=pixels)
    assert Session(photo_run).thumbnail(119) is not None
    np.savez(source, X=pixels[1:])
    shorter = Session(photo_run)
    assert shorter.thumbnail(0) is None
    assert shorter.describe()["trouble"].endswith("now holds 119 images, but 120 were clustered.")


@pytest.mark.parametrize(
    "path",
    [
        "/thumb/../../config.toml", "/thumb/..%2F..%2Fconfig.toml", "/thumb/120", "/thumb/-1",
        "/photo/../../config.toml", "/photo/..%2F..%2Fconfig.toml", "/photo/120", "/photo/-1",
        "/photo/", "/photo/0.0", "/thumb/0/../1", "/thumb/",
        "/thumb/1e1", "/thumb/%D9%A1", "/thumb/" + "9" * 4000,
        "/../review.py", "/review.html", "/report.html", "/config.toml", "/etc/passwd",
        "//etc/passwd", "/%2e%2e/serve.py", "http://127.0.0.1/etc/passwd",
    ],
)  # fmt: skip
def test_nothing_but_rows_of_the_run_can_be_read(client, path):
    assert client.get(path).status == 404


def test_where_the_images_are_gone_the_page_says_so(photo_run):
    (photo_run / "config.toml").write_text('source = "/gone/photos"\nkind = "images"\n')
    run = Session(photo_run).describe()
    assert run["pictures"] is False
    assert "/gone/photos" in run["trouble"]


def test_a_matrix_has_no_pictures_and_no_trouble(matrix_run):
    session = Session(matrix_run)
    run = session.describe()
    assert (run["pictures"], run["trouble"], run["samples"]["key"]) == (False, None, "row")
    assert session.thumbnail(0) is None


# ---- writing


def test_a_review_is_saved_when_the_response_arrives(client, photo_run):
    run = client.run()
    name = run["samples"]["name"][3]
    answer = client.save(run["version"], names={"0": " cats "}, merged={"2": 1}, moved={name: 0})
    assert answer.status == 200
    assert read_review(photo_run) == Review({0: "cats"}, {2: 1}, {name: 0})
    again = client.run()
    assert again["version"] == json.loads(answer.body)["version"] != run["version"]
    assert again["review"]["names"] == {"0": "cats"}


def test_a_split_is_found_by_the_server_and_saved_like_any_change(client, photo_run):
    run = client.run()
    review = {"format": "probagg.review/2", "merged": {"1": 0, "2": 0}}
    body = {"review": review, "cluster": 0, "parts": 3}
    split = json.loads(client.post("/api/split", body).body)
    assert (split["cluster"], split["parts"]) == (0, [3, 4, 5])
    assert not (photo_run / "review.json").exists(), "nothing is saved yet"
    names = run["samples"]["name"]
    assert set(split["members"]) == set(names)
    answer = client.save(run["version"], merged=review["merged"], splits=[split])
    assert answer.status == 200, words(answer)
    saved = read_review(photo_run)
    assert saved.clusters(3) == [3, 4, 5]
    again = client.run()["review"]
    assert again["splits"] == [split]
    stale = client.save(run["version"], names={"0": "late"})
    assert stale.status == 409, "another tab that has not seen the split"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([], 'An object with "review", "cluster", "parts" is needed'),
        ({}, 'An object with "format"'),
        ({"cluster": 0, "parts": 6}, "2 to 5 parts, not 6"),
        ({"cluster": 9, "parts": 2}, "Cluster 9 is not one of the clusters"),
        ({"cluster": 0, "parts": 2, "moved": {"gone.png": 1}}, '"gone.png" is in the review'),
    ],
)
def test_a_split_that_cannot_be_made_says_why(client, body, why):
    if body:
        moved = body.pop("moved", {})
        body = body | {"review": {"format": "probagg.review/2", "moved": moved}}
    answer = client.post("/api/split", body)
    assert answer.status == 400
    assert why in words(answer)


def test_rows_of_a_matrix_cannot_be_split(matrix_run):
    """A run of a matrix keeps no features."""
    session = Session(matrix_run)
    assert session.describe()["can_split"] is False
    with pytest.raises(ReviewError, match=r"no features .* Move its samples to a new cluster"):
        session.split({"format": "probagg.review/2"}, 0, 2)


def test_a_second_tab_cannot_overwrite_what_it_has_not_seen(client, photo_run):
    version = client.run()["version"]
    assert client.save(version, names={"0": "first"}).status == 200
    answer = client.save(version, names={"0": "second"})
    assert answer.status == 409
    assert "changed in another tab or program" in words(answer)
    assert read_review(photo_run).names == {0: "first"}


def test_a_change_by_another_program_counts_too(client, photo_run):
    version = client.run()["version"]
    write_review(photo_run, Review(names={1: "by hand"}))
    assert client.save(version, names={}).status == 409


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"merged": {"0": 1, "1": 0}}, "cycle"),
        ({"merged": {"9": 1}}, 'Cluster "9" is not one of the run\'s 3 clusters'),
        ({"names": {"0": "x" * 81}}, "81 characters"),
        ({"moved": {"../../etc/passwd": 1}}, '"../../etc/passwd" is in the review, but it is not'),
        ({"discarded": ["gone.png"]}, '"gone.png" is in the review, but it is not a sample'),
    ],
)
def test_a_review_that_does_not_fit_is_refused_with_the_reason(client, photo_run, parts, why):
    answer = client.save(client.run()["version"], **parts)
    assert answer.status == 400
    assert why in words(answer)
    assert not (photo_run / "review.json").exists()


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b"[]", b"null", b'{"version": 3}', b"[" * 99_999, b"1" * 9999]
)
def test_a_body_that_is_not_a_review_is_refused_with_the_reason(client, body):
    answer = client.post("/api/review", body)
    assert answer.status == 400
    assert len(words(answer)) > 20


def test_a_body_that_is_too_large_is_not_even_read(client):
    answer = client.post("/api/review", b"", Content_Length=str(MAX_BODY + 1))
    assert answer.status == 413
    assert str(MAX_BODY) in words(answer)
    assert client.post("/api/review", b"", Content_Length="-1").status == 411
    assert client.send("POST", "/api/review", Content_Type="application/json").status == 411


def test_a_folder_that_cannot_be_written_is_an_error(client, photo_run):
    version = client.run()["version"]
    shutil.rmtree(photo_run)
    answer = client.save(version, names={"0": "x"})
    assert answer.status == 500
    assert f"{photo_run} cannot be written (No such file or directory)." in words(answer)


def test_a_review_damaged_while_the_page_is_open_is_an_error(client, photo_run):
    (photo_run / "review.json").write_text("{")
    answer = client.get("/api/run")
    assert answer.status == 500
    assert "Correct it" in words(answer)


def test_a_refused_body_does_not_become_the_next_request(client):
    """On a persistent connection, unread bytes would be parsed as a request."""
    inner = f"GET /api/run HTTP/1.1\r\nHost: {client.host}\r\n{TOKEN_HEADER}: {client.server.token}"
    inner += "\r\n\r\n"
    outer = f"POST /api/review HTTP/1.1\r\nHost: {client.host}\r\nContent-Length: {len(inner)}\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall((outer + "\r\n" + inner).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert len(re.findall(rb"HTTP/1\.1 \d+", answer)) == 1


# ---- start and end


def test_serve_gives_its_address_and_ends_with_done(photo_run):
    ready = threading.Event()
    urls = []

    def on_ready(url):
        urls.append(url)
        ready.set()

    thread = threading.Thread(
        target=serve,
        args=(Session(photo_run),),
        kwargs={"open_browser": False, "on_ready": on_ready},
    )
    thread.start()
    assert ready.wait(10)
    host, token = re.fullmatch(r"http://(127\.0\.0\.1:\d+)/\?token=([\w-]{32})", urls[0]).groups()
    connection = http.client.HTTPConnection(host, timeout=10)
    headers = {TOKEN_HEADER: token, "Content-Type": "application/json"}
    connection.request("POST", "/api/done", b"{}", headers)
    assert connection.getresponse().read() == b'{"done": true}'
    thread.join(5)
    assert not thread.is_alive()
    with pytest.raises(OSError, match=r"refused|reset|closed"):
        socket.create_connection((host.partition(":")[0], int(host.partition(":")[2])), 2)


def test_an_open_connection_does_not_outlive_the_server(client):
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    headers = {TOKEN_HEADER: client.server.token}
    connection.request("GET", "/api/run", headers=headers)
    connection.getresponse().read()
    client.server.shutdown()
    client.server.server_close()
    connection.request("GET", "/api/run", headers=headers)
    assert connection.getresponse().status == 503


def test_a_port_in_use_is_an_error(client, photo_run):
    with pytest.raises(InputError, match=rf"Port {client.port} cannot be used .*leave it out"):
        ReviewServer(Session(photo_run), client.port)


def test_a_folder_that_is_not_a_run_is_refused(tmp_path, photo_run):
    with pytest.raises(RunFolderError, match=r"has no config\.toml"):
        Session(tmp_path)
    (photo_run / "review.json").write_text("{")
    with pytest.raises(ReviewError, match="is not a review of this run"):
        Session(photo_run)
    (photo_run / "review.json").unlink()
    (photo_run / "assignments.csv").write_text("path,cluster\na,9\n")
    with pytest.raises(InputError, match=r"assignments\.csv cannot be read"):
        Session(photo_run)


def test_fifty_thousand_rows_are_described_in_seconds(large_run):
    began = time.monotonic()
    text = json.dumps(Session(large_run).describe())
    assert time.monotonic() - began < 10
    assert len(text) < 5_000_000


def test_the_most_similar_samples_are_found_by_features(client, photo_run):
    X = np.load(photo_run / "embeddings.npy").astype(float)
    cosine = X @ X[5] / np.linalg.norm(X, axis=1)
    answer = client.post("/api/similar", {"sample": 5})
    found = json.loads(answer.body)["samples"]
    assert len(found) == 60
    assert 5 not in found
    assert set(found[:10]) <= set(np.argsort(-cosine)[:12].tolist())


@pytest.mark.parametrize("body", [[], {}, {"sample": "5"}, {"sample": 120}, {"sample": -1}])
def test_what_is_similar_to_no_sample_is_refused(client, body):
    answer = client.post("/api/similar", body)
    assert answer.status == 400
    assert "is not one of the samples" in words(answer) or '"sample" is needed' in words(answer)


def test_a_run_without_features_finds_nothing_similar(matrix_run):
    session = Session(matrix_run)
    assert session.describe()["can_compare"] is False
    with pytest.raises(ReviewError, match="no features to compare"):
        session.similar(0)
    X = np.arange(178.0)[:, None]
    session = Session(matrix_run, lambda: (X, "sqeuclidean"))
    assert session.similar(0)["samples"] == list(range(1, 61))


def test_names_are_suggested_by_classes_or_by_columns(photo_run, matrix_run):
    assert Session(photo_run).describe()["suggestions"] == {}
    table = "cluster,suggestion,difference\n1,disc,0.6\n1,ball,0.2\n0,'=cross,0.5\n"
    (photo_run / "suggestions.csv").write_text(table)
    found = Session(photo_run).describe()["suggestions"]
    assert found == {"1": ["disc", "ball"], "0": ["=cross"]}
    found = Session(matrix_run).describe()["suggestions"]
    assert set(found) == {"0", "1", "2"}
    assert all(names[0].startswith(("high ", "low ")) for names in found.values())


def test_suggestions_for_a_cluster_that_is_not_there_are_damage(photo_run):
    (photo_run / "suggestions.csv").write_text("cluster,suggestion,difference\n3,disc,0.6\n")
    with pytest.raises(RunFolderError, match=r"suggestions.csv.*cluster 3"):
        Session(photo_run)

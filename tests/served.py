"""The review server as tests use it."""

import http.client
import json
import threading

from probagg.app.run.server import TOKEN_HEADER, ReviewServer
from probagg.app.run.session import Session


class Client:
    """A program that knows the secret, unless other headers are given."""

    def __init__(self, server):
        self.server, self.port = server, server.server_port
        self.host = f"127.0.0.1:{self.port}"

    def send(self, method, path, body=None, **headers):
        headers = {TOKEN_HEADER: self.server.token, "Host": self.host, **headers}
        headers = {name.replace("_", "-"): value for name, value in headers.items() if value}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if body is not None and "Content-Length" not in headers:
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        answer.body = answer.read()
        connection.close()
        return answer

    def get(self, path, **headers):
        return self.send("GET", path, **headers)

    def post(self, path, value, **headers):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        headers = {"Content_Type": "application/json", **headers}
        return self.send("POST", path, body, **headers)

    def run(self):
        return json.loads(self.get("/api/run").body)

    def save(self, version, **parts):
        review = {"format": "probagg.review/2", **parts}
        return self.post("/api/review", {"version": version, "review": review})


def start(run):
    server = ReviewServer(Session(run))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def words(answer):
    return json.loads(answer.body)["error"]

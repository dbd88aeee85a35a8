"""A container registry in this process, as far as envpack uses one: for tests that need no program of the machine.

tests/store uses a real registry.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import socket
from urllib.parse import parse_qs, urlsplit

from tests.web import running_server

_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>blobs|manifests|referrers)/(?P<reference>[^/]*)")
INDEX = "application/vnd.oci.image.index.v1+json"


class MemoryRegistry:
    """A registry. Attributes can be changed at any time.

    host: host and port.
    blobs: content by repository and digest.
    manifests: content by repository and reference.
    types: media types of manifests.
    requests: method and path of all requests so far, and their bodies' sizes.
    fault: changes an answer: a function from method, path, status, headers and body to status, headers and body.
    lists_referrers: whether it answers the referrers API.
    mounts: whether repositories may share blobs.
    account: user and password that each request must have; None for none.
    """

    def __init__(self):
        self.host = ""
        self.blobs, self.manifests, self.types = {}, {}, {}
        self.requests = []
        self.fault = lambda method, path, *answer: answer
        self.lists_referrers, self.mounts, self.account = False, True, None

    def writes(self):
        """The methods of all requests that write."""
        return [method for method, _ in self.requests if method not in ("GET", "HEAD")]

    def stored(self, name):
        """The blobs of a repository by digest."""
        return {digest: content for (owner, digest), content in self.blobs.items() if owner == name}

    def answer(self, method, path, body, headers):
        if self.account and headers.get("Authorization") != _basic(*self.account):
            return 401, {"WWW-Authenticate": 'Basic realm="models"'}, b""
        match = _PATH.fullmatch(urlsplit(path).path.replace("uploads/", "uploads"))
        if match is None:
            return 200, {}, b"{}"
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        return getattr(self, f"_{match['kind']}")(method, match["name"], match["reference"], query, body, headers)

    def _blobs(self, method, name, reference, query, body, headers):
        if method == "POST":
            source = (query.get("from"), query.get("mount"))
            if self.mounts and source in self.blobs:
                self.blobs[name, source[1]] = self.blobs[source]
                return 201, {"Docker-Content-Digest": source[1]}, b""
            return 202, {"Location": f"//{self.host}/v2/{name}/blobs/uploads/?state=1"}, b""
        if method == "PUT":
            assert query["state"] == "1"
            assert query["digest"] == _digest(body)
            self.blobs[name, query["digest"]] = body
            return 201, {}, b""
        return self._found(self.blobs.get((name, reference)))

    def _manifests(self, method, name, reference, query, body, headers):
        if method == "PUT":
            for each in (reference, _digest(body)):
                self.manifests[name, each] = body
            self.types[name, _digest(body)] = headers["Content-Type"]
            return 201, {}, b""
        return self._found(self.manifests.get((name, reference)))

    def _referrers(self, method, name, reference, query, body, headers):
        if not self.lists_referrers:
            return 404, {}, b""
        listed = []
        for (owner, digest), content in list(self.manifests.items()):
            document = json.loads(content)
            if owner == name and digest == _digest(content) and document.get("subject", {}).get("digest") == reference:
                entry = {"mediaType": self.types[name, digest], "digest": digest, "size": len(content)}
                named = {name: document[name] for name in ("artifactType", "annotations") if name in document}
                listed.append({**entry, **named})
        return 200, {}, json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).encode()

    @staticmethod
    def _found(content):
        return (404, {}, b"") if content is None else (200, {}, content)


@contextlib.contextmanager
def memory_registry(certificate=None):
    """Run a registry during the block; yields it.

    Args:
        certificate: files of a key and a certificate, to speak TLS.

    """
    registry = MemoryRegistry()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def handle_one_request(self):
            if (
                not certificate and self.connection.recv(1, socket.MSG_PEEK) == b"\x16"
            ):  # a client that looks whether this speaks TLS
                self.close_connection = True
                return
            super().handle_one_request()

        def _answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            registry.requests.append((self.command, self.path))
            answer = registry.answer(self.command, self.path, body, self.headers)
            status, headers, content = registry.fault(self.command, self.path, *answer)
            self.send_response(status)
            sent = {"Content-Length": str(len(content)), **headers}
            for name, value in sent.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
                self.close_connection = sent["Content-Length"] != str(len(content))

        do_GET = do_HEAD = do_PUT = do_POST = _answer  # noqa: N815

    with running_server(Handler, certificate) as registry.host:
        yield registry


def _digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _basic(user, password):
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

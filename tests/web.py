"""A web server on 127.0.0.1 for channels and package indexes, which can be slow, broken or locked."""

import base64
import contextlib
import functools
import http.server
import ssl
import threading
import time
from pathlib import Path


class Site:
    """Serves a folder. Attributes can be changed at any time.

    account: ``"user:password"`` that every request must contain, ``""`` for none.
    truncated: how many responses to cut off in the middle, by the end of the path.
    stalled: how many responses to stop in the middle until the block ends, by the end of the path.
    pause: seconds before each response.
    gate: while it is not set, responses wait.
    requested: paths of all requests so far.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.account = ""
        self.truncated: dict[str, int] = {}
        self.stalled: dict[str, int] = {}
        self.ended = threading.Event()
        self.pause = 0.0
        self.gate = threading.Event()
        self.gate.set()
        self.requested: list[str] = []
        self.port = 0

    def url(self, path: str = "", account: str = "") -> str:
        return f"http://{account + '@' if account else ''}127.0.0.1:{self.port}{path}"


@contextlib.contextmanager
def serve(folder: Path):
    """Serve a folder during the block; yields its `Site`."""
    site = Site(folder)
    handler = functools.partial(_Handler, site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        site.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.gate.set()
            site.ended.set()
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def running_server(handler, certificate=None):
    """Run a server during the block, with TLS if files of a key and a certificate are given; yields host and port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate[1], certificate[0])
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, site: Site, *args) -> None:
        self.site = site
        super().__init__(*args, directory=str(site.folder))

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.site.requested.append(self.path)
        time.sleep(self.site.pause)
        self.site.gate.wait()
        if self.site.account and self.headers["Authorization"] != _basic(self.site.account):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        for ends in (self.site.truncated, self.site.stalled):
            for end, left in ends.items():
                if self.path.endswith(end) and left:
                    ends[end] = left - 1
                    self._half()
                    if ends is self.site.stalled:
                        self.site.ended.wait()
                    return
        super().do_GET()

    def _half(self):
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.close_connection = True


def _basic(account: str) -> str:
    return f"Basic {base64.b64encode(account.encode()).decode()}"

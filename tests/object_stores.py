"""Real object stores on 127.0.0.1: moto's S3, which honours conditional writes, and rclone's, which ignores them."""

import contextlib
import http.client
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

from tests.waiting import soon

BUCKET = "bucket"
_SIGNED = re.compile(r"Credential=([^/]+)/[0-9]+/([^/]+)/")
VARIABLES = {"AWS_ACCESS_KEY_ID": "name", "AWS_SECRET_ACCESS_KEY": "word", "AWS_REGION": "us-east-1"}
# What the user's own environment may name.
OTHERS = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "ENVPACK_STORE"),
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(command, port, log):
    """Run a server of HTTP during the block; yields its address, once it answers there."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        assert soon(lambda: child.poll() is not None or _answers(port)), log.read_text()
        assert child.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        child.kill()
        child.wait()


def _answers(port):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def moto(folder):
    """Run moto's server during the block; yields its address. It has an empty bucket."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, port, folder / "moto.log") as address:
        urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT"), timeout=60).close()
        yield address


@contextlib.contextmanager
def rclone(folder):
    """Serve a folder by rclone during the block; yields its address. It has an empty bucket."""
    port = free_port()
    (folder / "served" / BUCKET).mkdir(parents=True)
    program = Path(sys.executable).with_name("rclone")
    keys = f"{VARIABLES['AWS_ACCESS_KEY_ID']},{VARIABLES['AWS_SECRET_ACCESS_KEY']}"
    options = ["--addr", f"127.0.0.1:{port}", "--auth-key", keys, "--config", os.devnull]
    with running([program, "serve", "s3", folder / "served", *options], port, folder / "rclone.log") as address:
        yield address


class Faulty:
    """A proxy in front of a store that does something wrong.

    fault: changes a response: a function from method, path, status, headers and body to status, headers and body, or
        to None for no response at all until `release` is set.
    refuses: whether a request is refused with 403 and does not reach the store, by method and path.
    swallows: whether a request is answered with 200 and does not reach the store, by method and path.
    requests: method and path of all requests so far; the method of a copy within the store is COPY.
    account: name of the key that signed the last request, and the region.
    """

    def __init__(self, address):
        self.address = address
        self.fault = lambda method, path, *response: response
        self.refuses = lambda method, path: False
        self.swallows = lambda method, path: False
        self.requests = []
        self.account = ""
        self.release = threading.Event()
        self.url = ""


@contextlib.contextmanager
def faulty(address):
    """Run a `Faulty` during the block."""
    proxy = Faulty(address)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def _answer(self):
            request = "COPY" if self.headers.get("x-amz-copy-source") else self.command, self.path
            proxy.requests.append(request)
            signed = _SIGNED.search(self.headers.get("Authorization", ""))
            proxy.account = f"{signed[1]} {signed[2]}" if signed else ""
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if (refused := proxy.refuses(*request)) or proxy.swallows(*request):
                answer = b"" if refused else b'<CopyObjectResult><ETag>"0"</ETag></CopyObjectResult>'
                self.send_response(403 if refused else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                return
            host = proxy.address.removeprefix("http://")
            with contextlib.closing(http.client.HTTPConnection(host, timeout=60)) as connection:
                connection.request(self.command, self.path, body, dict(self.headers))
                response = connection.getresponse()
                status, headers, body = response.status, dict(response.getheaders()), response.read()
            if response.chunked:  # which is not passed on
                headers["Content-Length"] = str(len(body))
            changed = proxy.fault(self.command, self.path, status, headers, body)
            if changed is None:
                proxy.release.wait(60)
                self.close_connection = True
                return
            status, headers, body = changed
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                with contextlib.suppress(ConnectionError):  # of a client that has given up
                    self.wfile.write(body)
                self.close_connection = int(headers.get("Content-Length") or len(body)) != len(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.release.set()
            server.shutdown()
            thread.join()

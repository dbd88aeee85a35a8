"""A GCS service on 127.0.0.1: an emulator of its JSON API, which Triton reads, and in front of it the XML API.

The emulator keeps the objects. What it lacks of the XML API, which the library obstore speaks, is translated here:
listings, conditions by generation, and uploads in parts.
"""

import contextlib
import http.client
import http.server
import json
import sys
import threading
import uuid
from datetime import datetime
from email.utils import format_datetime
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.object_stores import free_port, running

_JSON = ("/storage/", "/upload/", "/download/", "/b/", "/batch/")


@contextlib.contextmanager
def gcs(folder, bucket):
    """Run the service during the block; yields the variables that lead obstore and Triton to it."""
    port = free_port()
    options = ["--host", "127.0.0.1", "--port", str(port), "--in-memory", "--default-bucket", bucket]
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", *options]
    with running(command, port, folder / "emulator.log"):
        handler = type("Handler", (_Front,), {"port": port, "parts": {}, "lock": threading.Lock()})
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield variables(folder, url)
            finally:
                server.shutdown()
                thread.join()


def variables(folder, url):
    """The variables that lead to a service, with an account in a file of a folder."""
    names = ("client_email", "private_key", "private_key_id")
    account = {"gcs_base_url": url, "disable_oauth": True, **dict.fromkeys(names, "")}
    (folder / "account.json").write_text(json.dumps(account))
    return {
        "GOOGLE_BASE_URL": url,
        "GOOGLE_SERVICE_ACCOUNT": str(folder / "account.json"),
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": url,
    }


class _Front(http.server.BaseHTTPRequestHandler):
    """Answers requests of the XML API, and passes on all others."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _handle(self):
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if parts.path.startswith(_JSON):
            self._reply(*self._emulator(self.command, self.path, body, dict(self.headers)))
            return
        bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self.lock:
            self._reply(*self._xml(bucket, name, query, body))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815

    def _reply(self, status, headers, body=b""):
        self.send_response(status)
        for key, value in headers.items():
            if key.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(key, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _emulator(self, method, path, body=b"", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return found

    def _resource(self, bucket, name):
        """What the emulator says of an object; None if there is none."""
        status, _, body = self._emulator("GET", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        return json.loads(body) if status == 200 else None

    def _xml(self, bucket, name, query, body):
        if self._emulator("GET", f"/storage/v1/b/{bucket}")[0] != 200:
            return 404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"
        if not name:
            return self._list(bucket, query)
        if "uploads" in query or "uploadId" in query:
            return self._in_parts(bucket, name, query, body)
        if source := self.headers.get("x-goog-copy-source"):
            found = self._get(*unquote(source).lstrip("/").split("/", 1))
            return (*self._put(bucket, name, found[2])[:1], {}) if found[0] == 200 else found
        if self.command == "PUT":
            return self._put(bucket, name, body)
        if self.command == "DELETE":
            status, _, _ = self._emulator("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
            return status, {}
        return self._get(bucket, name)

    def _list(self, bucket, query):
        path = f"/storage/v1/b/{bucket}/o?prefix={quote(query.get('prefix', ''), safe='')}"
        items = json.loads(self._emulator("GET", path)[2]).get("items", [])
        folders = set()
        if "delimiter" in query:
            start = len(query.get("prefix", ""))
            folders = {item["name"][: start + at + 1] for item in items if (at := item["name"][start:].find("/")) >= 0}
            items = [item for item in items if "/" not in item["name"][start:]]
        contents = "".join(
            f"<Contents><Key>{escape(item['name'])}</Key><LastModified>{item['updated']}</LastModified>"
            f"<ETag>{_tag(item)}</ETag><Size>{item['size']}</Size></Contents>"
            for item in items
        )
        contents += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        return 200, {}, f"<ListBucketResult>{contents}</ListBucketResult>".encode()

    def _get(self, bucket, name):
        item = self._resource(bucket, name)
        if item is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        headers = {"Range": self.headers["Range"]} if self.headers.get("Range") else {}
        path = f"/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"
        status, sent, body = self._emulator("GET", path, headers=headers)
        ranges = {key: value for key, value in sent.items() if key.lower() == "content-range"}
        return status, {**ranges, **_described(item), "Content-Length": str(len(body))}, body

    def _put(self, bucket, name, body):
        wanted = self.headers.get("x-goog-if-generation-match")
        item = self._resource(bucket, name)
        if wanted is not None and wanted != (str(item["generation"]) if item else "0"):
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        self._emulator("POST", path, body, {"Content-Type": "application/octet-stream"})
        return 200, _described(self._resource(bucket, name))

    def _in_parts(self, bucket, name, query, body):
        if "uploads" in query:
            number = uuid.uuid4().hex
            self.parts[number] = {}
            ids = f"<Bucket>{bucket}</Bucket><Key>{escape(name)}</Key><UploadId>{number}</UploadId>"
            return 200, {}, f"<InitiateMultipartUploadResult>{ids}</InitiateMultipartUploadResult>".encode()
        parts = self.parts[query["uploadId"]]
        if self.command == "PUT":
            parts[int(query["partNumber"])] = body
            return 200, {"ETag": f'"{query["partNumber"]}"'}
        status, headers = self._put(bucket, name, b"".join(parts[number] for number in sorted(parts)))[:2]
        result = f"<CompleteMultipartUploadResult><ETag>{headers['ETag']}</ETag></CompleteMultipartUploadResult>"
        return status, headers, result.encode()


def _tag(item):
    return escape(f'"{item["etag"]}"')


def _described(item):
    when = datetime.fromisoformat(item["updated"].replace("Z", "+00:00"))
    stamps = {"Last-Modified": format_datetime(when, usegmt=True), "x-goog-generation": str(item["generation"])}
    return {"ETag": f'"{item["etag"]}"', **stamps}

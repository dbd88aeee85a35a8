"""The client of registries: what it sends, what it repeats, and what it says of a registry that fails or lies."""

import contextlib
import hashlib
import http.server
import json
import sys
import threading

import pytest

from envpack.deployment.images import connection, registry as client
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.connection import PlainTextError, client_class
from envpack.deployment.images.documents import INDEX, LAYER, MANIFEST, Descriptor, encoded
from envpack.deployment.images.registry import connected
from envpack.support.errors import StorageError, UsageError
from tests.memory_registry import memory_registry
from tests.registries import certificate

CONTENT = bytes(range(256)) * 9000  # more than one piece
BLOB = Descriptor.of(LAYER, CONTENT)
IMAGE = encoded({"schemaVersion": 2, "config": BLOB.to_json(), "layers": []})


@pytest.fixture
def file(tmp_path):
    (tmp_path / "blob").write_bytes(CONTENT)
    return tmp_path / "blob"


@pytest.fixture
def there(address):
    with connected(address) as found:
        yield found


def test_a_blob_is_sent_once_and_comes_back(registry, there, file):
    assert not there.has_blob(BLOB)
    reported = []
    there.send_blob(BLOB, file, reported.append)
    there.send_blob(BLOB, file)
    assert sum(reported) == len(CONTENT)
    assert registry.stored("team/models") == {BLOB.digest: CONTENT}
    assert there.has_blob(BLOB)
    there.save_blob(BLOB, file.with_name("copy"))
    assert file.with_name("copy").read_bytes() == there.read_blob(BLOB, len(CONTENT)) == CONTENT
    with pytest.raises(StorageError, match=f"has more than {len(CONTENT) - 1} bytes"):
        there.read_blob(BLOB, len(CONTENT) - 1)


def test_a_manifest_is_written_under_its_reference_with_its_type(registry, there):
    digest = f"sha256:{hashlib.sha256(IMAGE).hexdigest()}"
    assert there.manifest("1") is None
    there.put_manifest(IMAGE, MANIFEST, "1")
    assert there.manifest("1") == there.manifest(digest) == IMAGE
    assert registry.types == {("team/models", digest): MANIFEST}
    assert there.manifest("sha256:" + "0" * 64) is None


def test_a_blob_of_another_repository_is_shared(registry, address, there, file):
    source = parse_image_address(f"{registry.host}/base:1")
    with connected(source) as other:
        other.send_blob(BLOB, file)
    sent = len(registry.writes())
    assert there.mount_blob(BLOB, source)
    assert registry.writes()[sent:] == ["POST"]
    assert registry.stored("team/models") == {BLOB.digest: CONTENT}
    elsewhere = parse_image_address("registry.example/base:1")
    assert not there.mount_blob(BLOB, elsewhere)
    assert len(registry.writes()) == sent + 1, "another registry cannot share its blobs"
    absent = Descriptor.of(LAYER, b"absent")
    assert not there.mount_blob(absent, source)
    registry.fault = lambda method, path, *answer: (405, {}, b"") if method == "POST" else answer
    assert not there.mount_blob(BLOB, source)


def artifact(number):
    return Descriptor(MANIFEST, f"sha256:{number:064}", 5, "application/x")


def test_artifacts_about_an_image_are_listed_under_a_tag(registry, there):
    digest = "sha256:" + "a" * 64
    assert there.referrers(digest) == ()
    for number in (1, 2, 1):
        there.add_referrer(digest, artifact(number))
    assert there.referrers(digest) == (artifact(1), artifact(2))
    document = json.loads(registry.manifests["team/models", digest.replace(":", "-")])
    assert (document["schemaVersion"], document["mediaType"], len(document["manifests"])) == (2, INDEX, 2)
    assert registry.writes() == ["PUT", "PUT"], "what is listed is not listed again"


def test_a_registry_that_lists_artifacts_itself_is_asked(registry, there):
    registry.lists_referrers = True
    digest = f"sha256:{hashlib.sha256(IMAGE).hexdigest()}"
    there.put_manifest(IMAGE, MANIFEST, "1")
    about = {"schemaVersion": 2, "artifactType": "application/x", "config": BLOB.to_json(), "layers": []}
    about["subject"] = {"mediaType": MANIFEST, "digest": digest, "size": len(IMAGE)}
    there.put_manifest(encoded(about), MANIFEST, "about")
    written = len(registry.writes())
    there.add_referrer(digest, artifact(1))
    assert len(registry.writes()) == written
    (found,) = there.referrers(digest)
    assert (found.artifact_type, found.size) == ("application/x", len(encoded(about)))


def test_a_list_of_artifacts_is_read_page_by_page(registry, there):
    digest = "sha256:" + "a" * 64

    def pages(method, path, *_):
        number = int(path.rpartition("last=")[2]) if "last=" in path else 0
        page = encoded({"schemaVersion": 2, "mediaType": INDEX, "manifests": [artifact(number).to_json()]})
        more = {"Link": f'</v2/team/models/referrers/{digest}?n=1&last={number + 1}>; rel="next"'} if number < 2 else {}
        return 200, more, page

    registry.fault = pages
    assert there.referrers(digest) == tuple(map(artifact, range(3)))


def test_a_list_of_artifacts_that_is_damaged_is_an_error(registry, there):
    registry.manifests["team/models", "sha256-" + "a" * 64] = b"{}"
    with pytest.raises(StorageError, match="the list of artifacts about sha256:a+ is damaged") as raised:
        there.referrers("sha256:" + "a" * 64)
    assert raised.value.kind == "registry-corrupt"


# Faults


def answer(status, *methods, body=b"", **headers):
    """A fault: this answer to all requests, or to those with these methods."""

    def fault(method, path, *found):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (status, named, body) if method in (methods or (method,)) and path != "/v2/" else found

    return fault


def cut(method, path, status, headers, body):
    return status, {"Content-Length": str(len(body) + 9)}, body


def shorter(method, path, status, headers, body):
    return (status, {}, body[:-9]) if method == "GET" else (status, headers, body)


def longer(method, path, status, headers, body):
    return (status, {}, body + b"more") if method == "GET" else (status, headers, body)


def altered(method, path, status, headers, body):
    return (status, {}, b"x" + body[1:]) if method == "GET" else (status, headers, body)


def unencrypted(method, path, *found):
    return (307, {"Location": "http://registry.example/blob"}, b"") if path != "/v2/" else found


def test_a_connection_that_breaks_off_in_a_blob_is_made_again(registry, there, file):
    registry.blobs["team/models", BLOB.digest] = CONTENT
    whole, broken = [], []

    def fault(method, path, status, headers, body):
        if method != "GET" or broken.count(path) == 2:
            return status, headers, body
        broken.append(path)
        return status, {**headers, "Content-Length": str(len(body))}, body[:-9]

    registry.fault = fault
    there.save_blob(BLOB, file, whole.append)
    assert (file.read_bytes(), sum(whole), len(broken)) == (CONTENT, len(CONTENT), 2)
    broken.clear()
    assert there.read_blob(BLOB, len(CONTENT)) == CONTENT


def read(there, file):
    return there.save_blob(BLOB, file)


def send(there, file):
    return there.send_blob(BLOB, file)


def look(there, file):
    return there.manifest("1")


def write(there, file):
    return there.put_manifest(IMAGE, MANIFEST, "1")


FAULTS = [
    (
        answer(401, "POST", WWW_Authenticate='Basic realm="x"'),
        send,
        "registry-unreachable",
        "it wants a password, which",
    ),
    (answer(403, "POST"), send, "registry-forbidden", "the registry refuses access, or there is no account for it"),
    (answer(403, "GET"), look, "registry-forbidden", "the registry refuses access"),
    (answer(404, "POST"), send, "registry-unreachable", "the registry cannot be used: it answers 404 Not Found"),
    (answer(503), send, "registry-unreachable", "the registry cannot be used: it answers 503 Service Unavailable"),
    (answer(202, "POST"), send, "registry-corrupt", "an answer lacks 'location'"),
    (answer(404, "HEAD"), send, "registry-corrupt", f"the blob {BLOB.digest} is not there after it was sent"),
    (
        answer(200, "HEAD", Content_Length="3"),
        send,
        "registry-corrupt",
        f"the blob {BLOB.digest} has 3 bytes instead of {len(CONTENT)}",
    ),
    (unencrypted, look, "registry-unreachable", "it leads to an address without encryption"),
    (answer(200, "GET", body=b"x" * ((16 << 20) + 1)), look, "registry-corrupt", "an answer is too long"),
    (answer(200, "GET", body=b"{}"), write, "registry-corrupt", "1 is not the manifest that was just written"),
    (shorter, read, "registry-corrupt", "DXFDigestMismatchError|ends 9 bytes too early"),
    (longer, read, "registry-corrupt", f"the blob {BLOB.digest} has more than {len(CONTENT)} bytes"),
    (altered, read, "registry-corrupt", "the registry answers wrongly: DXFDigestMismatchError"),
    (cut, look, "registry-unreachable", "it ends connections too early"),
]


def test_a_registry_that_fails_or_lies_is_named_in_one_line(registry, address, file):
    registry.blobs["team/models", BLOB.digest] = CONTENT
    registry.manifests["team/models", "1"] = IMAGE
    said = []
    for fault, use, kind, reason in FAULTS:
        registry.fault = fault
        with pytest.raises(StorageError, match=reason) as raised, connected(address) as there:
            use(there, file)
        said.append((raised.value.kind, raised.value.where, raised.value.exit_code))
        assert "\n" not in str(raised.value)
        assert kind == raised.value.kind, reason
    assert {where for _, where, _ in said} == {f"oci://{address}"}
    assert {code for *_, code in said} == {7}


@pytest.mark.parametrize(
    ("status", "attempts"), [(503, 3), (429, 3), (408, 3), (500, 3), (502, 3), (504, 3), (404, 1), (400, 1)]
)
def test_what_may_pass_is_tried_three_times(registry, there, status, attempts):
    registry.fault = answer(status)
    before = len(registry.requests)
    if status == 404:
        assert there.manifest("1") is None
    else:
        with pytest.raises(StorageError):
            there.manifest("1")
    assert len(registry.requests) - before == attempts


def test_a_request_that_succeeds_in_the_end_is_no_error(registry, there, monkeypatch):
    slept, left = [], [503, 503]
    monkeypatch.setattr(client, "_PAUSE", 3)
    monkeypatch.setattr(client.time, "sleep", slept.append)
    registry.manifests["team/models", "1"] = IMAGE
    registry.fault = lambda method, path, *found: (left.pop(), {}, b"") if left else found
    assert there.manifest("1") == IMAGE
    assert slept == [3, 6]


def test_a_registry_that_is_not_there_is_named():
    with memory_registry() as gone:
        address = parse_image_address(f"{gone.host}/models:1")
    with pytest.raises(StorageError, match="it refuses connections") as raised, connected(address) as there:
        there.manifest("1")
    assert raised.value.kind == "registry-unreachable"


def test_a_manifest_with_another_digest_is_refused(registry, there):
    registry.manifests["team/models", "sha256:" + "0" * 64] = IMAGE
    with pytest.raises(StorageError, match="the manifest sha256:0+ has another digest"):
        there.manifest("sha256:" + "0" * 64)


def test_a_tag_that_another_publication_has_just_moved_is_a_conflict(registry, there):
    def moved(method, path, *answer):
        if method == "PUT":
            registry.manifests["team/models", "1"] = b"{}"
        return answer

    registry.fault = moved
    with pytest.raises(StorageError, match="another publication to the tag 1 has just ended") as raised:
        there.put_manifest(IMAGE, MANIFEST, "1")
    assert raised.value.kind == "publication-conflict"


def test_requests_leave_this_machine_only_encrypted(monkeypatch):
    with client_class()("registry.example", "models", None, True) as other, pytest.raises(PlainTextError):
        other.request("get", "manifests/1")


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"days": -1}, "its certificate has expired"), ({"host": "127.0.0.9"}, "its certificate is for another name")],
)
def test_a_certificate_of_a_known_authority_is_rejected_for_its_own_reason(tmp_path, monkeypatch, options, reason):
    key, public = certificate(tmp_path, **options)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(public))
    with memory_registry((key, public)) as protected:
        address = parse_image_address(f"{protected.host}/models:1")
        with pytest.raises(StorageError, match=reason) as raised, connected(address) as there:
            there.manifest("1")
    assert "SSL_CERT_FILE" not in raised.value.hint


def test_without_the_library_the_extra_is_named(address, monkeypatch):
    monkeypatch.setitem(sys.modules, "dxf", None)
    with pytest.raises(UsageError) as raised, connected(address):
        pass
    assert raised.value.kind == "registry-client-missing"
    assert str(address) in raised.value.message


class Trickle(http.server.BaseHTTPRequestHandler):
    """Announces much, and sends a byte now and then."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        with contextlib.suppress(OSError):  # until the client has had enough
            while not self.server.ended.wait(0.02):
                self.wfile.write(b"x")

    do_HEAD = do_GET  # noqa: N815


@pytest.mark.parametrize("use", [look, read])
def test_an_answer_that_comes_too_slowly_is_given_up(monkeypatch, use, file):
    """Each packet comes in time."""
    monkeypatch.setattr(connection, "_LONGEST", 0.2)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Trickle) as server:
        server.ended = threading.Event()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = parse_image_address(f"127.0.0.1:{server.server_address[1]}/models:1")
            with pytest.raises(StorageError, match="it answers too slowly") as raised, connected(address) as there:
                use(there, file)
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
    assert raised.value.kind == "registry-unreachable"

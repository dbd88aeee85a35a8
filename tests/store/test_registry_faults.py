"""Registries that refuse, break off or lie: one clear line, and no tag that names half an image."""

import http.server
import threading

import pytest

from envpack.deployment.images import registry as client
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.fetch import pull_image
from envpack.deployment.images.send import publish_image
from envpack.deployment.plan import plan_deployment
from envpack.support.errors import StorageError, UsageError
from envpack.support.progress import NoProgress
from tests.object_stores import free_port
from tests.registries import Reader


@pytest.fixture
def plan(project, release):
    return plan_deployment(project)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client, "_PAUSE", 0)


@pytest.fixture
def address(registry_proxy, folder):
    return parse_image_address(f"{registry_proxy.url.removeprefix('http://')}/{folder}:1")


def unusable(plan, address, kind, reason):
    with pytest.raises(StorageError, match=reason) as raised:
        publish_image(plan, address)
    assert (raised.value.kind, raised.value.exit_code) == (kind, 7)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def answer(status, *names, **headers):
    """A fault: this answer to all requests, or to those with these methods."""

    def fault(method, path, *response):
        if names and method not in names:
            return response
        return status, {"Content-Length": "0", **{k.replace("_", "-"): v for k, v in headers.items()}}, b""

    return fault


REFUSALS = {
    "no right to write": (answer(403, "POST"), "registry-forbidden", "refuses access"),
    "a password without TLS": (
        answer(401, WWW_Authenticate='Basic realm="models"'),
        "registry-unreachable",
        "only sent over TLS",
    ),
    "not there": (answer(404, "POST"), "registry-unreachable", "404"),
    "out of order": (answer(503), "registry-unreachable", "503"),
    "full": (answer(500, "PUT"), "registry-unreachable", "500"),
    "no place to upload to": (answer(202, "POST"), "registry-corrupt", "Location|location"),
    "an upload elsewhere": (
        answer(202, "POST", Location="http://registry.example/upload"),
        "registry-unreachable",
        "without encryption",
    ),
    "a redirect elsewhere": (
        answer(307, "HEAD", Location="http://registry.example/blob"),
        "registry-unreachable",
        "without encryption",
    ),
    "blobs of another size": (
        lambda m, p, *r: (200, {"Content-Length": "3"}, b"") if m == "HEAD" and "/blobs/" in p else r,
        "registry-corrupt",
        "3 bytes instead of",
    ),
    "an endless answer": (
        lambda m, p, *r: (200, {}, b"x" * (17 << 20)) if m == "GET" and "/manifests/" in p else r,
        "registry-corrupt",
        "too long",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_registry_that_refuses_or_lies_is_named(plan, registry_proxy, registry, address, folder, name):
    fault, kind, reason = REFUSALS[name]
    registry_proxy.fault = fault
    unusable(plan, address, kind, reason)
    with pytest.raises(OSError, match="404"):
        Reader(registry, folder).manifest("1")


def test_a_registry_that_keeps_nothing_is_noticed(plan, registry_proxy, address):
    registry_proxy.fault = answer(404, "HEAD")
    unusable(plan, address, "registry-corrupt", "not there after it was sent")


def test_a_registry_that_keeps_another_manifest_is_noticed(plan, registry_proxy, address):
    registry_proxy.fault = lambda m, p, *r: (
        (200, {"Content-Length": "2"}, b"{}") if m == "GET" and "/manifests/" in p else r
    )
    unusable(plan, address, "registry-corrupt", "not the manifest that was just written")


def test_a_manifest_that_changes_on_the_way_is_noticed(plan, registry_proxy, address, tmp_path):
    published = publish_image(plan, address)
    registry_proxy.fault = lambda m, p, status, headers, body: (
        (status, headers, body.replace(b"early", b"EARLY")) if "/manifests/" in p else (status, headers, body)
    )
    pinned = parse_image_address(published.image, pinned=True)
    with pytest.raises(StorageError, match="another digest") as raised:
        pull_image(pinned, tmp_path, NoProgress())
    assert raised.value.kind == "registry-corrupt"


CHANGES = {
    "altered": lambda headers, body: (headers, bytes([body[0] ^ 1]) + body[1:]),
    "longer": lambda headers, body: (headers | {"Content-Length": str(len(body) + 9)}, body + b"and this."),
    "cut off": lambda headers, body: (headers, body[:-7]),
    "shorter": lambda headers, body: (headers | {"Content-Length": str(len(body) - 7)}, body[:-7]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_layer_that_is_not_what_was_sent_is_not_unpacked(plan, registry_proxy, address, tmp_path, name):
    publish_image(plan, address)

    def change(method, path, status, headers, body):
        return (status, *CHANGES[name](headers, body)) if "/blobs/" in path and body else (status, headers, body)

    registry_proxy.fault = change
    (tmp_path / "pulled").mkdir()
    with pytest.raises(StorageError) as raised:
        pull_image(address, tmp_path / "pulled", NoProgress())
    assert raised.value.kind in ("registry-corrupt", "registry-unreachable")
    assert not [path for path in (tmp_path / "pulled").rglob("*") if path.is_file()]


class Cuts(http.server.BaseHTTPRequestHandler):
    """Ends each connection without an answer."""

    def log_message(self, *_):
        pass

    def _cut(self):
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = _cut  # noqa: N815


def test_cut_connections_are_named(plan):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cuts) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = parse_image_address(f"127.0.0.1:{server.server_address[1]}/models:1")
            unusable(plan, address, "registry-unreachable", "ends connections too early")
        finally:
            server.shutdown()
            thread.join()


def test_an_upload_that_breaks_off_goes_on_where_it_was(plan, registry_proxy, registry, address, folder):
    uploads = []

    def fault(method, path, *response):
        if method == "PUT" and "/uploads/" in path:
            uploads.append(path)
            if len(uploads) > 2:
                return answer(403)(method, path, *response)
        return response

    registry_proxy.fault = fault
    unusable(plan, address, "registry-forbidden", "refuses access")
    registry_proxy.fault = lambda method, path, *response: response
    assert publish_image(plan, address).unchanged >= 2
    Reader(registry, folder).files(Reader(registry, folder).manifest("1")[0])


def test_a_fault_that_passes_is_overcome(plan, registry_proxy, address):
    failed = set()

    def fault(method, path, *response):
        if method in ("POST", "HEAD") and method not in failed:
            failed.add(method)
            return answer(503)(method, path, *response)
        return response

    registry_proxy.fault = fault
    assert publish_image(plan, address).sent
    assert failed == {"POST", "HEAD"}


def test_a_registry_that_is_not_there_is_named(plan):
    unusable(
        plan, parse_image_address(f"127.0.0.1:{free_port()}/models:1"), "registry-unreachable", "refuses connections"
    )


def test_a_host_that_has_no_address_is_named(plan):
    unusable(plan, parse_image_address("nowhere.invalid/models:1"), "registry-unreachable", "name cannot be resolved")


def test_without_the_client_the_extra_is_named(plan, address, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dxf", None)
    with pytest.raises(UsageError) as raised:
        publish_image(plan, address)
    assert raised.value.kind == "registry-client-missing"
    assert "oci" in raised.value.hint

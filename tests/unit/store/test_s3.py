"""An S3 service: conditions, settings of the cloud, and what one clear line says of each fault."""

import json
import sys
import urllib.request

import pytest
from moto.server import ThreadedMotoServer

from envpack.store import objects
from envpack.store.claims import probe
from envpack.store.location import connect, parse_location
from envpack.store.maintenance import list_store, verify_store
from envpack.store.objects import Objects
from envpack.store.shared import open_store
from envpack.support.errors import InputError, StorageError, UsageError
from envpack.support.progress import NoProgress
from tests.object_stores import BUCKET, OTHERS, VARIABLES, faulty, free_port

CONTENT = bytes(range(256)) * 20


@pytest.fixture(scope="module")
def service():
    """The address of moto's S3 in this process, with an empty bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT"), timeout=60).close()
    yield address
    server.stop()


@pytest.fixture(autouse=True)
def settings(monkeypatch, tmp_path):
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for retries in ("_HASTY", "_PATIENT"):  # the library waits before it repeats a request
        monkeypatch.setattr(objects, retries, 0)


@pytest.fixture
def proxy(service):
    with faulty(service) as found:
        yield found


@pytest.fixture
def there(proxy, request):
    return Objects(parse_location(f"s3://{proxy.url}/{BUCKET}/{abs(hash(request.node.name))}"), timeout=20)


def test_objects_are_written_read_listed_and_removed(there):
    tag = there.write("a/b", CONTENT)
    content, info = there.read("a/b", len(CONTENT))
    assert (content, info.path, info.size, info.tag) == (CONTENT, "a/b", len(CONTENT), tag)
    assert there.head("a/b") == info
    there.write("c", b"")
    assert sorted((found.path, found.size) for found in there.list()) == [("a/b", len(CONTENT)), ("c", 0)]
    assert [found.path for found in there.list("a")] == ["a/b"]
    assert there.read_part("a/b", 10, 20, len(CONTENT)) == CONTENT[10:30]
    assert there.read_part("a/b", 0, len(CONTENT), len(CONTENT)) == CONTENT
    assert there.upload("large", iter([CONTENT, CONTENT]), 2 * len(CONTENT))
    assert there.read("large", 1 << 20)[0] == CONTENT * 2
    there.delete(["a/b", "absent", "large"])
    there.delete([])
    assert [found.path for found in there.list()] == ["c"]
    assert (there.head("a/b"), there.read("a/b", 1)) == (None, None)


def test_a_very_large_object_is_sent_in_no_more_parts_than_a_store_takes(there, proxy, monkeypatch):
    monkeypatch.setattr(objects, "_MOST_PARTS", 2)
    size = (16 << 20) + 1
    assert objects.upload_requests(size) == 4
    there.upload("large", iter([bytes(size)]), size)
    assert sum("partNumber" in path for _, path in proxy.requests) == 2
    assert there.head("large").size == size


def test_whole_objects_are_requested_without_a_range(there, proxy):
    ranges = []
    there.write("a", CONTENT)

    def note(method, path, status, headers, body):
        ranges.append(headers.get("content-range"))
        return status, headers, body

    proxy.fault = note
    there.read_part("a", 0, len(CONTENT), len(CONTENT))
    there.read_part("a", 0, 5, len(CONTENT))
    assert ranges == [None, f"bytes 0-4/{len(CONTENT)}"]


def test_conditions_are_honoured(there):
    assert probe(there)[0]
    assert there.create("a", b"1")
    assert not there.create("a", b"2")
    tag = there.head("a").tag
    assert there.replace("a", b"3", tag)
    assert not there.replace("a", b"4", tag)
    assert not there.replace("absent", b"4", tag)
    assert there.read("a", 10)[0] == b"3"
    assert [found.path for found in there.list()] == ["a"], "no probe may stay"


def test_a_store_that_rejects_conditions_counts_as_one_without_them(there, proxy):
    refused = []

    def refuse(method, path, *answer):
        if method == "PUT" and refused:
            return 501, {"Content-Length": "0"}, b""
        refused.append(method)
        return answer

    proxy.fault = refuse
    assert not probe(there)[0]


def answer(status, body=b"", **headers):
    return lambda *_: (status, {"Content-Length": str(len(body)), **headers}, body)


def cut(method, path, status, headers, body):
    return status, headers, body[:-7]


def longer(method, path, status, headers, body):
    return status, {**headers, "Content-Length": str(len(body) + 9)}, body + b"and more."


def whole(method, path, status, headers, body):
    kept = {name: value for name, value in headers.items() if name.lower() in ("last-modified", "etag")}
    return 200, {**kept, "Content-Length": str(len(CONTENT))}, CONTENT


NO_BUCKET = b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"
FAULTS = [
    (answer(403), "store-forbidden", "the store refuses access, or there are no credentials for it"),
    (answer(401), "store-forbidden", "the store refuses access"),
    (answer(404, NO_BUCKET), "store-absent", "there is no such bucket or container"),
    (answer(503), "store-unreachable", "the store cannot be used: it answers 503 Service Unavailable"),
    (answer(400), "store-unreachable", "the store cannot be used: it answers 400 Bad Request"),
    (cut, "store-unreachable", "the store cannot be used: it ends its answers too early"),
    (longer, "store-corrupt", f"a in the store cannot be used: it is larger than the {len(CONTENT)} bytes that it may"),
]


def test_a_service_that_fails_is_named_in_one_line(there, proxy):
    there.write("a", CONTENT)
    for fault, kind, says in FAULTS:
        proxy.fault = fault
        with pytest.raises(StorageError) as raised:
            there.read("a", len(CONTENT))
        assert raised.value.message.startswith(says), raised.value
        assert (raised.value.kind, raised.value.where, raised.value.exit_code) == (kind, str(there.location), 7)
        assert "\n" not in str(raised.value)


def test_an_answer_that_nobody_expects_is_shown_in_one_line(there, proxy):
    proxy.fault = answer(200, b"no list")
    with pytest.raises(StorageError) as raised:
        there.list()
    assert raised.value.kind == "store-unreachable"
    assert raised.value.message.startswith("the store cannot be used: Generic S3 error: ")
    assert "\n" not in raised.value.message


def test_each_request_explains_its_refusal(there, proxy):
    proxy.fault = answer(403)
    for use in (
        lambda: there.head("a"),
        lambda: there.read("a", 1),
        lambda: there.read_part("a", 0, 1, 2),
        lambda: there.write("a", b""),
        lambda: there.create("a", b""),
        lambda: there.replace("a", b"", "tag"),
        lambda: there.upload("a", iter([b"x"]), 1),
        there.list,
    ):
        with pytest.raises(StorageError) as raised:
            use()
        assert raised.value.kind == "store-forbidden"


def test_a_part_that_is_missing_or_short_is_an_error(there, proxy):
    with pytest.raises(StorageError, match="a in the store cannot be used: it is missing") as raised:
        there.read_part("a", 0, 5, 10)
    assert raised.value.kind == "store-corrupt"
    there.write("a", b"four")
    with pytest.raises(StorageError, match="it ends 2 bytes too early"):
        there.read_part("a", 0, 6, 10)
    there.write("a", CONTENT)
    proxy.fault = whole
    with pytest.raises(StorageError, match="it does not answer requests for a part of an object"):
        there.read_part("a", 5, 6, len(CONTENT))


def test_a_service_that_is_not_there_or_does_not_answer_is_named(proxy):
    cases = {
        f"s3://http://127.0.0.1:{free_port()}/{BUCKET}": "it refuses connections",
        f"s3://http://nowhere.invalid/{BUCKET}": "its name cannot be resolved",
        f"s3://{proxy.url}/{BUCKET}": "it does not answer in time",
    }
    proxy.fault = lambda *_: None
    for url, reason in cases.items():
        with pytest.raises(StorageError, match=f"the store cannot be used: {reason}") as raised:
            Objects(parse_location(url), timeout=0.5).head("a")
        assert raised.value.kind == "store-unreachable"


def test_a_record_is_put_there_once_and_fetched(service, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    store = open_store(f"s3://{service}/{BUCKET}/record", push=True)
    assert store.add("package", "0", tmp_path / "file", sizes=[100, len(CONTENT) - 100], facts={"a": "b"}) == len(
        CONTENT
    )
    assert store.add("package", "1", tmp_path / "file", sizes=[100, len(CONTENT) - 100]) == 0
    record = open_store(f"s3://{service}/{BUCKET}/record").find("package", "0")
    assert record.facts == {"a": "b"}
    store.fetch(record, tmp_path / "new/fetched", NoProgress())
    assert (tmp_path / "new/fetched").read_bytes() == store.read(record, len(CONTENT)) == CONTENT
    with pytest.raises(StorageError, match=f"it announces {len(CONTENT)} bytes"):
        store.read(record, len(CONTENT) - 1)


# Settings of the cloud


def keys(name, **more):
    lines = {"aws_access_key_id": f"{name}-id", "aws_secret_access_key": f"{name}-key", **more}
    return "".join(f"{key} = {value}\n" for key, value in lines.items())


def connected(url="s3://bucket/folder"):
    return connect(parse_location(url), 30, 3)


@pytest.fixture
def aws(monkeypatch, tmp_path):
    """The user's folder for Amazon's files; no variable names an account."""
    for name in VARIABLES:
        monkeypatch.delenv(name)
    folder = tmp_path / "home/.aws"
    folder.mkdir(parents=True)
    return folder


def test_the_address_and_the_environment_decide_the_service(monkeypatch):
    store = connected("s3://http://127.0.0.1:9000/bucket/folder")
    assert (store.prefix, store.config["bucket"], store.config["endpoint"]) == (
        "folder",
        "bucket",
        "http://127.0.0.1:9000",
    )
    assert store.client_options["allow_http"] == "true"
    assert store.retry_config["max_retries"] == 3
    store = connected("s3://https://storage.example/bucket")
    assert (store.prefix, store.client_options["allow_http"]) == (None, "false")
    for name, value in (("AWS_ENDPOINT_URL", "http://h:1"), ("AWS_ENDPOINT_URL_S3", "http://h:1"), ("AWS_ENDPOINT", "http://h:1"),
                        ("AZURE_STORAGE_ENDPOINT", "http://h:1"), ("GOOGLE_BASE_URL", "http://h:1"),
                        ("AZURE_STORAGE_USE_EMULATOR", "True"), ("AZURE_STORAGE_USE_EMULATOR", "1")):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert connected().client_options["allow_http"] == "true", name
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://h")
    assert connected().client_options["allow_http"] == "false"


@pytest.mark.parametrize("service", ["minio:9000", "http://", "http://h:99999", "http://[::1", "ftp://h", "http://ü"])
@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS"])
def test_a_service_whose_address_is_none_is_refused_before_the_library_panics(monkeypatch, name, service):
    monkeypatch.setenv(name, service)
    with pytest.raises(UsageError, match="not like https://HOST:PORT") as raised:
        connected()
    assert (raised.value.kind, f" {name}," in raised.value.hint) == ("bad-store-address", True)


def test_authorities_that_cannot_be_read_are_no_fault_of_the_address(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with pytest.raises(InputError) as raised:
        connected()
    assert (raised.value.kind, raised.value.where) == ("bad-certificates", "/nonexistent.pem")


def test_the_time_limits():
    for timeout, connect_timeout in ((30, 10), (5, 5)):
        store = connect(parse_location("s3://bucket"), timeout, 3)
        options = store.client_options
        assert (options["timeout"], options["connect_timeout"]) == (f"{timeout}s", f"{connect_timeout}s")
        assert store.retry_config["max_retries"] == 3
        assert store.retry_config["retry_timeout"].total_seconds() == timeout


def test_keys_and_region_come_from_the_users_files(aws, monkeypatch):
    assert connected().config["region"] == "us-east-1"
    assert "access_key_id" not in connected().config
    (aws / "credentials").write_text(f"[default]\n{keys('one', aws_session_token='t')}\n[two]\n{keys('two')}")
    (aws / "config").write_text("[profile two]\nregion = eu-west-1\n")
    found = connected().config
    assert (found["access_key_id"], found["secret_access_key"], found["session_token"], found["region"]) == (
        "one-id", "one-key", "t", "us-east-1",
    )  # fmt: skip
    monkeypatch.setenv("AWS_PROFILE", "two")
    found = connected().config
    assert (found["access_key_id"], found["region"]) == ("two-id", "eu-west-1")
    assert "session_token" not in found
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-key")
    found = connected().config
    assert found.get("access_key_id") != "two-id", "variables come before the files"
    assert found.get("region") != "eu-west-1"


def test_the_files_may_be_elsewhere(aws, monkeypatch, tmp_path):
    (tmp_path / "mine").write_text(f"[default]\n{keys('mine')}")
    (aws / "credentials").write_text(f"[default]\n{keys('usual')}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "mine"))
    assert connected().config["access_key_id"] == "mine-id"
    (tmp_path / "mine").write_bytes(b"no sections \xff")
    assert "access_key_id" not in connected().config


def test_roles_need_boto3_and_are_left_out_without_it(aws, monkeypatch):
    (aws / "config").write_text("[default]\nrole_arn = arn:aws:iam::1:role/x\n")
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)
    assert "access_key_id" not in connected().config


def test_settings_that_are_incomplete_are_named(monkeypatch):
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"^az://container cannot be used: ") as raised:
        connected("az://container")
    assert raised.value.kind == "bad-store-address"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert connected("az://container/p").prefix == "p"
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps({"type": "other"}))
    with pytest.raises(UsageError, match="^gs://bucket cannot be used: "):
        connected("gs://bucket")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError, match="s3://bucket needs obstore, which is not installed") as raised:
        connected("s3://bucket")
    assert raised.value.kind == "obstore-missing"


def test_a_page_of_a_login_that_answers_every_request_is_no_empty_store(proxy):
    store = open_store(f"s3://{proxy.url}/{BUCKET}/login")
    assert (list_store(store).entries, verify_store(store).checked) == ((), 0)
    page = b"<html>log in</html>"
    proxy.fault = lambda *_: (200, {"Content-Length": str(len(page)), "Content-Type": "text/html"}, page)
    for command in (list_store, verify_store):
        with pytest.raises(StorageError, match="so the server is no object store"):
            command(store)

"""A real S3 service: conditions, credentials, large blobs, and what one clear line says of each of its faults."""

import json
import subprocess
import sys
import urllib.request

import pytest

from envpack.store.claims import probe
from envpack.store.location import parse_location, server_address
from envpack.store.shared import open_store
from envpack.support.errors import StorageError, UsageError
from envpack.support.progress import NoProgress
from tests.object_stores import BUCKET, free_port

CONTENT = bytes(range(256)) * 40_000  # more than two chunks


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    return tmp_path / "file"


def refused(function, *arguments):
    with pytest.raises(StorageError) as raised:
        function(*arguments)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
    return raised.value


def fetched(store, tmp_path):
    store.fetch(store.find("package", "0"), tmp_path / "fetched", NoProgress())
    return (tmp_path / "fetched").read_bytes()


def test_what_was_put_there_comes_back(url, file, tmp_path):
    store = open_store(url, push=True)
    sent = store.add("package", "0", file, sizes=[100, len(CONTENT) - 100])
    assert sent == len(CONTENT)
    assert store.add("package", "1", file, sizes=[100, len(CONTENT) - 100]) == 0
    assert fetched(open_store(url), tmp_path) == CONTENT


def test_the_service_honours_conditions(url):
    store = open_store(url, push=True)
    assert probe(store.objects)[0]
    assert store.objects.create("a", b"1")
    assert not store.objects.create("a", b"2")
    tag = store.objects.head("a").tag
    assert store.objects.replace("a", b"3", tag)
    assert not store.objects.replace("a", b"4", tag)
    assert store.objects.read("a", 10)[0] == b"3"


def test_a_service_that_ignores_conditions_is_recognised(unconditional, folder, file, tmp_path):
    store = open_store(f"s3://{unconditional}/{BUCKET}/{folder}", push=True)
    assert not probe(store.objects)[0]
    assert list(store.objects.list("probes")) == []
    for content in (b"first", b"second"):
        file.write_bytes(content)
        store.add("package", "0", file)
    assert fetched(store, tmp_path) == b"first"  # the first record stays all the same


def test_a_service_without_ranges_is_named(unconditional, folder, file, tmp_path):
    store = open_store(f"s3://{unconditional}/{BUCKET}/{folder}", push=True)
    store.add("package", "0", file)
    assert "does not answer requests for a part of an object" in refused(fetched, store, tmp_path).message


def test_the_address_of_the_service_may_be_in_the_environment(s3, folder, file, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    open_store(f"s3://{BUCKET}/{folder}", push=True).add("package", "0", file)
    assert fetched(open_store(f"s3://{s3}/{BUCKET}/{folder}"), tmp_path) == CONTENT


def test_the_address_of_the_service_may_be_in_a_profile(s3, folder, file, tmp_path, monkeypatch):
    (tmp_path / "config").write_text(f"[profile minio]\nendpoint_url = {s3}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "minio")
    open_store(f"s3://{BUCKET}/{folder}", push=True).add("package", "0", file)
    assert fetched(open_store(f"s3://{s3}/{BUCKET}/{folder}"), tmp_path) == CONTENT
    assert server_address(parse_location(f"s3://{BUCKET}/{folder}")) == f"s3://{s3}/{BUCKET}/{folder}"


def test_keys_may_be_in_the_users_files(faulty_url, file, tmp_path, monkeypatch, proxy):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    (tmp_path / "home/.aws").mkdir(parents=True)
    keys = "[default]\naws_access_key_id = one\naws_secret_access_key = word\n"
    (tmp_path / "home/.aws/credentials").write_text(f"{keys}\n[two]\n" + keys.replace("one", "two").partition("]\n")[2])
    (tmp_path / "home/.aws/config").write_text("[profile two]\nregion = eu-west-1\n")
    seen = []
    for profile in ("", "two"):
        monkeypatch.setenv("AWS_PROFILE", profile)
        open_store(faulty_url, push=True).add("package", "0", file)
        seen.append(proxy.account)
    assert seen == ["one us-east-1", "two eu-west-1"]


def test_a_missing_object_is_no_error_and_a_missing_bucket_is_one(s3, url):
    assert open_store(url).find("stub", "a") is None
    error = refused(open_store(f"s3://{s3}/absent/{BUCKET}").find, "stub", "a")
    assert error.kind == "store-absent"


def test_a_service_that_is_not_there_is_named():
    error = refused(open_store(f"s3://http://127.0.0.1:{free_port()}/{BUCKET}").find, "stub", "a")
    assert (error.kind, error.exit_code) == ("store-unreachable", 7)
    assert "refuses connections" in error.message


def test_a_host_that_has_no_address_is_named():
    error = refused(open_store(f"s3://http://nowhere.invalid/{BUCKET}").find, "stub", "a")
    assert error.kind == "store-unreachable"
    assert "name cannot be resolved" in error.message


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_named(proxy, faulty_url, status):
    proxy.fault = lambda method, path, *_: (status, {"Content-Length": "0"}, b"")
    assert refused(open_store(faulty_url).find, "stub", "a").kind == "store-forbidden"
    assert refused(open_store(faulty_url, push=True).objects.create, "a", b"x").kind == "store-forbidden"


def test_a_service_that_fails_is_asked_again_and_named(proxy, faulty_url):
    proxy.fault = lambda method, path, *_: (503, {"Content-Length": "0"}, b"")
    error = refused(open_store(faulty_url, timeout=2).find, "stub", "a")
    assert error.kind == "store-unreachable"
    assert "503 Service Unavailable" in error.message
    assert 1 < len(proxy.requests) < 20


def test_a_busy_service_is_given_time(proxy, faulty_url):
    """S3 answers 503 SlowDown to many clients at once, and wants them to wait for longer and longer."""
    answers = iter(range(8))
    proxy.fault = lambda method, path, *answer: (
        (503, {"Content-Length": "0"}, b"") if next(answers, None) is not None else answer
    )
    assert open_store(faulty_url).find("stub", "a") is None
    assert len(proxy.requests) == 9


def test_an_object_without_a_usable_name_is_named(s3, url, folder):
    request = urllib.request.Request(f"{s3}/{BUCKET}/{folder}/core//1/x.py", b"", method="PUT")
    urllib.request.urlopen(request, timeout=60).close()
    error = refused(open_store(url).objects.list)
    assert error.kind == "store-corrupt"
    assert f"{folder}/core//1/x.py" in error.message


def test_a_folder_that_a_console_made_is_no_object(s3, url, folder):
    urllib.request.urlopen(urllib.request.Request(f"{s3}/{BUCKET}/{folder}/", b"", method="PUT"), timeout=60).close()
    objects = open_store(url).objects
    objects.write("a", b"1")
    assert [info.path for info in objects.list()] == [info.path for info in objects.list_here()] == ["a"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1"])
def test_a_redirection_takes_no_token_to_another_host(proxy, faulty_url, monkeypatch, host):
    """`localhost` is the same service by another name."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    there = host if ":" in host else f"{host}:{proxy.url.rpartition(':')[2]}"
    seen = []

    def redirect(method, path, *_):
        seen.append(path)
        return 307, {"Location": f"http://{there}{path}", "Content-Length": "0"}, b""

    proxy.fault = redirect
    error = refused(open_store(faulty_url, timeout=2).find, "stub", "a")
    assert error.kind == "store-unreachable"
    if host == "localhost":
        assert "redirects to another host" in error.message
        assert set(seen) == {seen[0]}


def test_a_dead_proxy_is_named_as_the_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://me:word@127.0.0.1:{free_port()}")
    error = refused(open_store(f"s3://http://store.example:9000/{BUCKET}").find, "stub", "a")
    assert error.kind == "store-unreachable"
    assert "the proxy http://***@127.0.0.1:" in error.message
    assert "word" not in str(error)
    assert "NO_PROXY" in error.hint


def test_a_proxy_that_is_not_for_the_store_is_not_named(monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert "proxy" not in refused(open_store(f"s3://http://127.0.0.1:{free_port()}/{BUCKET}").find, "stub", "a").message


def test_a_service_that_does_not_answer_is_given_up(proxy, faulty_url):
    proxy.fault = lambda *_: None
    error = refused(open_store(faulty_url, timeout=0.5).find, "stub", "a")
    assert error.kind == "store-unreachable"
    assert "does not answer in time" in error.message


def test_a_download_that_was_cut_off_is_completed_by_the_next(proxy, faulty_url, file, tmp_path):
    open_store(faulty_url, push=True).add("package", "0", file)

    def break_down(method, path, status, headers, body):  # parts are requested at the same time, so in any order
        is_first = headers.get("content-range", "").startswith("bytes 0-")
        return (status, headers, body) if "blobs" not in path or is_first else (503, {"Content-Length": "0"}, b"")

    proxy.fault = break_down
    assert refused(fetched, open_store(faulty_url), tmp_path).kind == "store-unreachable"
    left = (tmp_path / "fetched").stat().st_size
    assert 0 < left < len(CONTENT)
    received = []

    def note(method, path, status, headers, body):
        received.extend([headers["content-range"]] if "blobs" in path else [])
        return status, headers, body

    proxy.fault = note
    assert fetched(open_store(faulty_url), tmp_path) == CONTENT
    assert received  # also requests of the first download that were still repeated, so their number is not fixed
    assert not [content_range for content_range in received if content_range.startswith("bytes 0-")]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda headers, body: (headers, body[:-7]), id="truncated"),
        pytest.param(lambda headers, body: (headers | {"Content-Length": str(len(body) - 7)}, body[:-7]), id="short"),
        pytest.param(lambda headers, body: (headers, bytes([body[0] ^ 1]) + body[1:]), id="altered"),
        pytest.param(lambda headers, body: (headers | {"Content-Length": "100000000"}, body), id="announced"),
    ],
)
def test_a_service_that_lies_is_noticed(proxy, faulty_url, file, tmp_path, change):
    open_store(faulty_url, push=True).add("package", "0", file)
    store = open_store(faulty_url, timeout=2)
    record = store.find("package", "0")

    def lie(method, path, status, headers, body):
        return (status, *change(headers, body)) if method == "GET" and "blobs" in path else (status, headers, body)

    proxy.fault = lie
    error = refused(store.fetch, record, tmp_path / "fetched", NoProgress())
    assert error.kind in ("store-corrupt", "store-unreachable")


MEMORY = """
import json, re, sys
from pathlib import Path
from envpack.store.shared import open_store
from envpack.support.progress import NoProgress
store = open_store(sys.argv[1], push=True)
file = Path(sys.argv[2])
store.add("package", "large", file, sizes=[int(size) for size in sys.argv[3:]], progress=NoProgress())
store.fetch(store.find("package", "large"), file.with_name("back"), NoProgress())
most = int(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1])
print(json.dumps([most >> 10, file.with_name("back").stat().st_size]))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 25])
def test_memory_is_bounded_whatever_is_transferred(url, tmp_path, count):
    """One large blob in a folder, and one blob again and again from S3: moto takes long to receive a large one."""
    size = 400 << 20
    (tmp_path / "store").mkdir()
    with (tmp_path / "large").open("wb") as content:
        content.truncate(size)
    sizes = [str(size // count)] * count
    where = url if count > 1 else f"file://{tmp_path}/store"
    program = [sys.executable, "-c", MEMORY, where, tmp_path / "large", *sizes]
    done = subprocess.run(program, capture_output=True, check=True)
    megabytes, received = json.loads(done.stdout)
    assert received == size
    assert megabytes < 300


def test_without_obstore_the_extra_is_named(url, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError) as raised:
        open_store(url).find("stub", "a")
    assert raised.value.kind == "obstore-missing"
    assert "store" in raised.value.hint

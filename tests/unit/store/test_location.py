"""Addresses of stores: which are accepted, and how a server reads them."""

import os

import pytest

from envpack.store.location import Location, connect, parse_location, server_address, server_fault
from envpack.store.shared import open_store
from envpack.support.errors import InputError, UsageError
from tests.tables import every_row


@every_row(
    ("url", "parts"),
    [
        ("s3://bucket", ("s3", "bucket", "", "")),
        ("s3://bucket/a/b/", ("s3", "bucket", "a/b", "")),
        ("gs://bucket/a", ("gs", "bucket", "a", "")),
        ("az://container/a", ("az", "container", "a", "")),
        ("file:///mnt/a%20b", ("file", "", "/mnt/a b", "")),
        ("gs://bucket/a\\b./c", ("gs", "bucket", "a\\b./c", "")),
        ("s3://http://127.0.0.1:9000/bucket/a", ("s3", "bucket", "a", "http://127.0.0.1:9000")),
        ("s3://http://127.0.0.1:9000/bucket/t/a/b", ("s3", "bucket", "t/a/b", "http://127.0.0.1:9000")),
        ("s3://https://storage.example.org/bucket", ("s3", "bucket", "", "https://storage.example.org")),
    ],
)
def test_the_parts_of_an_address(url, parts):
    location = parse_location(url)
    assert (location.scheme, location.bucket, location.prefix, location.endpoint) == parts


@every_row(
    "url",
    [
        "",
        "bucket/a",
        "s3://",
        "s3://bucket/a//b",
        "s3://bucket/a?versionId=1",
        "s3://bucket/a#b",
        "s3://bucket/\x07",
        "file:relative",
        "file://host/folder",
        "file:///",
        "file:///a/%2e%2e/b",
        "s3://http://127.0.0.1:9000/",
    ],
)
def test_other_addresses_are_refused(url):
    with pytest.raises(UsageError) as raised:
        parse_location(url)
    assert raised.value.kind == "bad-store-address"


EXAMPLES = "write file:///mnt/store, s3://bucket/folder, gs://bucket/folder or az://container/folder"


@every_row(
    ("url", "reason", "hint"),
    [
        ("http://bucket/a", "it is not the address of a store", EXAMPLES),
        ("s3://[bucket/a", "it is not the address of a store", EXAMPLES),
        ("s3:///a", "it names no bucket or container", EXAMPLES),
        ("s3://bucket/a/../b", "its path has an empty part, '.' or '..'", EXAMPLES),
        ("file://host/a", "it names no folder by its absolute path", "write file:///mnt/store, with three slashes"),
        ("file:///a/../b", "its path has an empty part, '.' or '..'", "write file:///mnt/store"),
        ("az://container/a\\b", "Azure alters names with a backslash or with '.' at the end", "give another folder"),
        ("az://container/v1./b", "Azure alters names with a backslash or with '.' at the end", "give another folder"),
        ("s3://b/{digest}", "it names no publication", "write the address that `envpack publish` printed"),
    ],
)
def test_each_refusal_says_what_is_wrong_and_what_to_write(url, reason, hint):
    with pytest.raises(UsageError) as raised:
        parse_location(url)
    error = raised.value
    assert (error.kind, error.message, error.hint) == ("bad-store-address", f"{url} cannot be used: {reason}", hint)


@every_row("url", ["s3://me:word@bucket/a", "s3://http://me:word@host/bucket/a", "az://c/a?sig=word"])
def test_credentials_in_an_address_are_refused_and_not_shown(url):
    with pytest.raises(UsageError) as raised:
        parse_location(url)
    assert raised.value.kind == "bad-store-address"
    assert "word" not in str(raised.value)


@pytest.fixture
def no_service(monkeypatch):
    """The user names no service of S3."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)


@pytest.mark.usefixtures("no_service")
@pytest.mark.parametrize(
    ("url", "variables", "address"),
    [
        ("s3://bucket/models", {}, "s3://bucket/models"),
        ("s3://bucket/models", {"AWS_ENDPOINT_URL": "http://host:9000/"}, "s3://http://host:9000/bucket/models"),
        ("s3://bucket/models", {"AWS_ENDPOINT_URL": "http://me:word@host:9000"}, "s3://http://host:9000/bucket/models"),
        (
            "s3://bucket/models",
            {"AWS_ENDPOINT_URL": "https://minio.example"},
            "s3://https://minio.example:443/bucket/models",
        ),
        ("s3://bucket/models", {"AWS_ENDPOINT": "http://host"}, "s3://http://host:80/bucket/models"),
        ("s3://http://host:1/bucket/models", {"AWS_ENDPOINT_URL": "x"}, "s3://http://host:1/bucket/models"),
        ("gs://bucket/models", {"AWS_ENDPOINT_URL": "http://host:9000"}, "gs://bucket/models"),
        ("az://c/models", {"AZURE_STORAGE_ACCOUNT_NAME": "me"}, "as://me/c/models"),
        ("az://c", {}, "as://ACCOUNT/c"),
        ("file:///srv/models", {}, "/srv/models"),
    ],
)
def test_the_address_for_a_server(url, variables, address, monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert server_address(parse_location(url)) == address


@pytest.mark.usefixtures("no_service")
@pytest.mark.parametrize(
    ("url", "unread"),
    [
        ("s3://http://host/bucket/models_2.0/{digest}", ""),
        ("s3://http://host/bucket", "s3://http://host:80/bucket/a b"),
        ("s3://http://host:9000/bucket/sp ace", "s3://http://host:9000/bucket/sp ace"),
        ("s3://http://host:9000/bucket/a+b", "s3://http://host:9000/bucket/a+b"),
        ("s3://http://host:9000/Bucket_1/a", "s3://http://host:9000/Bucket_1/a"),
        ("s3://http://minio_1:9000/bucket", "s3://http://minio_1:9000/bucket"),
        ("s3://bucket/sp ace", ""),
        ("gs://bucket/sp ace", ""),
        ("file:///srv/mo%20dels", "/srv/mo dels"),
        ("file:///srv/models", ""),
    ],
)
def test_what_no_server_reads_is_named(url, unread, monkeypatch):
    """The real server of 24.10 waits without an end for each of these addresses, and leaves such folders out."""
    folders = ["m", "m/1", "a b"] if unread.endswith("a b") else ["m", "m/1"]
    fault = server_fault(parse_location(url.replace("{digest}", "0")), folders)
    if not unread:
        assert fault is None
        return
    what, _ = fault
    assert f" {unread}: it takes HOST:PORT" in what or f" {unread}, which contains ' '" in what


def test_a_service_below_a_path_is_for_no_server(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://host/s3")
    assert server_fault(parse_location("s3://bucket/models"))[0].startswith("no server reads s3://https://host/s3")


def test_a_folder_that_is_missing_is_refused_unless_it_can_be_made(tmp_path):
    for below, push, fix in (
        ("a", False, "build with --set push=true, which makes its last folder"),
        ("a/b", True, f"make the folder around it: mkdir -p {tmp_path}/a"),
    ):
        with pytest.raises(InputError) as raised:
            open_store(f"file://{tmp_path}/{below}", push=push)
        assert (raised.value.kind, raised.value.hint) == ("store-folder-missing", f"correct the address; or {fix}")
    store = open_store(f"file://{tmp_path}/a", push=True)
    assert store.find("environment", "0") is None


def test_a_scheme_without_a_store_is_not_taken_for_azure():
    with pytest.raises(KeyError):
        connect(Location("new://bucket/folder", "new", "bucket", "folder"), 1, 0)

"""What a store says when it cannot be used, in one line and with what to do; and the objects of a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.store.faults import _reason, explained
from envpack.store.location import parse_location
from envpack.store.objects import Objects, _info, _tag
from envpack.support.connection_faults import proxy_hint
from envpack.support.errors import StorageError
from tests.tables import every_row

CHECK = "check the address and the network, and try again; a build also works without one, `--store none`"
ACCOUNT = "check with the cloud's own tools which account is used, and what it may do; check this machine's clock"
FORBIDDEN = "the store refuses access, or there are no credentials for it"


@every_row(
    ("text", "kind", "message", "hint"),
    [
        *(
            (text, "store-absent", "there is no such bucket or container", "correct the address, or create it;")
            for text in ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
        ),
        *(
            (text, "store-forbidden", FORBIDDEN, ACCOUNT)
            for text in (
                "status code: 401 x",
                "status code: 403 x",
                "Permission denied",
                "AccessDenied",
                "169.254.169.254",
            )
        ),
        (
            *('invalid path: Path "a//b" has', "store-corrupt", "an object there has a name that is no path: a//b"),
            "remove or rename it with the cloud's own tools; envpack writes no such names",
        ),
        (
            "status code: 404 Not Found",
            "store-unreachable",
            "the store cannot be used: it answers 404 Not Found",
            CHECK,
        ),
        ("non-partial response", "store-unreachable", "does not answer requests for a part of an object", CHECK),
        ("Connection refused", "store-unreachable", "the store cannot be used: it refuses connections", CHECK),
        ("dns error", "store-unreachable", "the store cannot be used: its name cannot be resolved", CHECK),
        (
            "InvalidCertificate(\n  UnknownIssuer,\n)",
            "store-unreachable",
            "the store cannot be used: its certificate is not trusted",
            "add the authority that signed it",
        ),
        (
            "https://cloud/certificate_classifier: kind: Request",
            "store-unreachable",
            "the store cannot be used: https://cloud/certificate_classifier: kind: Request",
            CHECK,
        ),
        ("OPERATION TIMEOUT", "store-unreachable", "the store cannot be used: it does not answer in time", CHECK),
        (
            "unexpected end of file",
            "store-unreachable",
            "the store cannot be used: it ends its answers too early",
            CHECK,
        ),
        ("odd\nsecond line", "store-unreachable", "the store cannot be used: odd", CHECK),
    ],
)
def test_each_error_of_the_library_is_one_line_with_a_remedy(text, kind, message, hint):
    error = explained(OSError(text), parse_location("s3://bucket/models"))
    assert (error.kind, error.where) == (kind, "s3://bucket/models")
    assert error.message.endswith(message)
    assert error.hint.startswith(hint)


@every_row(
    ("text", "kind", "message", "hint"),
    [
        (
            "Permission denied",
            "store-forbidden",
            "it refuses access to this user",
            "change its permissions, as its owner or root",
        ),
        (
            "Too many levels of symbolic links",
            "store-unreachable",
            "the store cannot be used: Too many",
            "look at the folder",
        ),
        (
            "Generic LocalFileSystem error: Unable to rename file: Operation not permitted (os error 1)",
            "store-unreachable",
            "the store cannot be used: its file system has no hard links",
            "give a folder of another file system; `envpack layout",
        ),
        (
            'invalid path: Error parsing Path "/m/a\nb": Encountered illegal character',
            "store-corrupt",
            "an object there has a name that is no path: /m/a\\nb",
            "remove or rename it; envpack",
        ),
        (
            "Generic LocalFileSystem error: Unable to copy data to file: File too large (os error 27)",
            "store-unreachable",
            "the store cannot be used: ",
            "raise the limit for the size of files",
        ),
    ],
)
def test_a_folder_is_on_no_network_and_in_no_cloud(tmp_path, text, kind, message, hint):
    error = explained(OSError(text), parse_location(f"file://{tmp_path}"))
    assert (error.kind, error.where) == (kind, f"file://{tmp_path}")
    assert error.message.startswith(message)
    assert error.hint.startswith(hint)


def test_a_file_that_refuses_access_is_named():
    text = "Generic LocalFileSystem error: Unable to open file /mnt/store/blobs/a b: Permission denied (os error 13)\nx"
    assert explained(OSError(text), parse_location("file:///mnt/store")).where == "/mnt/store/blobs/a b"


def test_a_full_disk_is_no_fault_of_the_store(tmp_path):
    error = explained(OSError("x: No space left on device"), parse_location(f"file://{tmp_path}"))
    assert (error.kind, error.where) == ("disk-full", f"file://{tmp_path}")
    # Not that nothing was changed: a part of what was to be written may be there.
    assert error.message == "the disk of this store is full"
    assert error.hint == "free some space there, and run the same command again"


def test_a_limit_of_this_machine_is_no_fault_of_the_store(tmp_path):
    text = "Generic S3 error: error sending request: tcp open error: Too many open files (os error 24)"
    error = explained(OSError(text), parse_location(f"file://{tmp_path}"))
    assert (error.kind, error.message.rpartition(": ")[2]) == ("system-limit", "Too many open files")
    error = explained(OSError("status code: 500: Too many open files"), parse_location(f"file://{tmp_path}"))
    assert error.kind == "store-unreachable"


@every_row(
    ("text", "reason"),
    [
        ("error sending request: kind: Connect, Connection refused", "it refuses connections"),
        ("tunnel failed", "it does not reach the store"),
    ],
)
def test_a_proxy_that_fails_is_named_without_its_password(monkeypatch, text, reason):
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://me:secret@proxy.example:3128")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    location = parse_location("s3://bucket/models")
    error = explained(OSError(text), location)
    assert error.message == f"the store cannot be used: the proxy http://***@proxy.example:3128: {reason}"
    assert error.hint == proxy_hint("the store")
    monkeypatch.setenv("no_proxy", "*")
    assert "proxy" not in explained(OSError(text), location).message


def test_a_reason_of_the_library_fits_a_line():
    assert "\n" not in _reason("a" * 500 + "\x1b[31m\nmore")
    assert "\x1b" not in _reason("\x1b[31mred")


@every_row(("found", "tag"), [("0x8D", '"0x8D"'), ('"0x8D"', '"0x8D"'), ('"abc"', '"abc"'), (None, "")])
def test_a_tag_is_as_headers_have_it(found, tag):
    assert _tag({"e_tag": found}) == tag
    assert _tag({}) == ""


# A folder


@pytest.fixture
def objects(tmp_path):
    return Objects(parse_location(f"file://{tmp_path}"))


def test_an_object_is_replaced_only_while_it_is_as_it_was(objects, tmp_path):
    first = objects.write("a/b", b"1")
    assert objects.replace("a/b", b"22", first) is True
    assert objects.replace("a/b", b"333", first) is False
    assert objects.replace("a/none", b"4", first) is False
    assert (tmp_path / "a/b").read_bytes() == b"22"
    assert objects.head("a/b").size == 2
    assert objects.head("a/none") is None


def test_an_object_is_created_once(objects):
    assert (objects.create("a", b"1"), objects.create("a", b"2")) == (True, False)
    content, info = objects.read("a", 1)
    assert (content, info.path, info.size, info.tag != "") == (b"1", "a", 1, True)
    assert objects.read("none", 1) is None


def test_objects_are_listed_by_folder(objects):
    for path in ("top", "a/one", "a/b/two", "c/three"):
        objects.write(path, b"x")
    assert sorted(info.path for info in objects.list()) == ["a/b/two", "a/one", "c/three", "top"]
    assert sorted(info.path for info in objects.list("a")) == ["a/b/two", "a/one"]
    assert [info.path for info in objects.list_here()] == ["top"]
    assert [info.path for info in objects.list_here("a")] == ["a/one"]
    assert sorted(objects.folders()) == ["a", "c"]


def test_what_is_gone_already_does_not_keep_the_rest(objects):
    for path in ("a", "b", "c"):
        objects.write(path, b"x")
    objects.delete([])
    objects.delete(["none"])
    objects.delete(["none", "a", "gone", "b"])
    assert [info.path for info in objects.list()] == ["c"]


def test_an_object_is_read_up_to_a_limit(objects):
    objects.upload("a", iter([b"12", b"345"]), 5)
    assert objects.read("a", 5)[0] == b"12345"
    with pytest.raises(StorageError) as raised:
        objects.read("a", 4)
    error = raised.value
    assert error.kind == "store-corrupt"
    assert error.message == "a in the store cannot be used: it is larger than the 4 bytes that it may have"
    assert error.hint.startswith("run the command again; if it stays,")


def test_a_part_is_as_long_as_it_was_asked_for(objects):
    objects.write("a", b"12345")
    assert objects.read_part("a", 1, 3, 5) == b"234"
    assert objects.read_part("a", 0, 5, 5) == b"12345"
    with pytest.raises(StorageError, match="it ends 2 bytes too early"):
        objects.read_part("a", 3, 4, 9)
    with pytest.raises(StorageError, match="it is missing"):
        objects.read_part("none", 0, 1, 2)


def test_what_a_store_says_of_an_object_is_read(objects):
    objects.write("a", b"12345")
    ((meta,),) = [*objects._obstore.list(objects._hasty)]
    assert _info(meta) == objects.head("a")


def test_reading_a_folder_that_does_not_exist_finds_nothing_and_creates_nothing(tmp_path):
    objects = Objects(parse_location(f"file://{tmp_path}/absent"))
    assert objects.head("a") is objects.read("a", 10) is None
    assert list(objects.list()) == list(objects.list("a")) == list(objects.list_here()) == list(objects.folders()) == []
    objects.delete(["a", "b"])
    with pytest.raises(StorageError, match="a in the store cannot be used: it is missing"):
        objects.read_part("a", 0, 1, 1)
    assert list(tmp_path.iterdir()) == []
    assert objects.create("a", b"content")
    assert (tmp_path / "absent/a").read_bytes() == b"content"


def test_an_object_that_another_process_removes_meanwhile_is_absent(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("content")
    stat = Path.stat

    def last(path, **options):
        status = stat(path, **options)
        if path == tmp_path / "a":
            path.unlink()
        return status

    monkeypatch.setattr(Path, "stat", last)
    assert Objects(parse_location(f"file://{tmp_path}")).read("a", 10) is None


def test_a_pipe_in_the_place_of_an_object_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a")
    objects = Objects(parse_location(f"file://{tmp_path}"))
    for read in (lambda: objects.read("a", 10), lambda: objects.read_part("a", 0, 1, 1)):
        with pytest.raises(StorageError, match="a in the store cannot be used: it is no file") as raised:
            read()
        assert raised.value.kind == "store-corrupt"


FORKS = """import os, sys
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.support.errors import UsageError

def use(objects):
    try:
        return [entry.path for entry in objects.list()]
    except UsageError as error:
        return error.message

location = parse_location(sys.argv[1])
objects = Objects(location)
if os.fork() == 0:
    print(use(objects), flush=True)
    os._exit(0)
os.wait()
print(use(objects), flush=True)
if os.fork() == 0:
    print(use(objects), flush=True)
    print(use(Objects(location)), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_process_that_was_forked_after_the_first_use_is_refused(tmp_path):
    """It waited for ever."""
    (tmp_path / "object").touch()
    command = [sys.executable, "-c", FORKS, f"file://{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    refused = "this process was forked from one that has used a store, and can use none"
    assert done.stdout.splitlines() == ["['object']", "['object']", refused, refused], done.stderr

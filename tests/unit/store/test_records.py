"""Records of a store: what is written can be read, and what is damaged is refused."""

import json
import os
import stat

import pytest

from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.store.records import Blob, Record, blob_at, parse_record, record_at
from envpack.support.errors import StorageError

RECORD = Record("stub", "cp38-x86_64-0", (Blob("a" * 64, 3), Blob("b" * 64, 4)), {"python": "3.8"})


def changed(**fields):
    return json.dumps(json.loads(RECORD.content()) | fields).encode()


def test_a_record_is_read_as_it_was_written():
    found = parse_record(RECORD.content(), "stub", "cp38-x86_64-0")
    assert (found, found.facts, found.size) == (RECORD, RECORD.facts, 7)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        changed(schema=2),
        changed(kind="environment"),
        changed(key="other"),
        changed(facts=[]),
        changed(blobs=[]),
        changed(blobs={}),
        changed(blobs=[["a" * 64, 1]] * 20_001),
        changed(blobs=[["A" * 64, 1]]),
        changed(blobs=[["a" * 63, 1]]),
        changed(blobs=[["a" * 64, 0]]),
        changed(blobs=[["a" * 64, -1]]),
        changed(blobs=[["a" * 64, True]]),
        changed(blobs=[["a" * 64, 1.0]]),
        changed(blobs=[["a" * 64, 1, 2]]),
        changed(blobs=[["a" * 64, 65 << 30]]),
    ],
)
def test_a_damaged_record_is_refused(content, store):
    with pytest.raises(ValueError, match=r"."):
        parse_record(content, "stub", "cp38-x86_64-0")
    store.objects.write(RECORD.path, content)
    with pytest.raises(StorageError) as raised:
        store.find("stub", RECORD.key)
    assert raised.value.kind == "store-corrupt"
    assert RECORD.path in str(raised.value)


def test_a_record_that_is_too_large_is_not_read(store):
    store.objects.write(RECORD.path, b" " * (5 << 20))
    with pytest.raises(StorageError, match="larger than") as raised:
        store.find("stub", RECORD.key)
    assert raised.value.kind == "store-corrupt"


def test_only_our_own_names_are_records_and_blobs():
    assert record_at(RECORD.path) == ("stub", "cp38-x86_64-0")
    assert blob_at(RECORD.blobs[0].path) == "a" * 64
    for path in ("records/other/a.json", "records/stub/a/b.json", "records/stub/..json", "records/stub/a.txt"):
        assert record_at(path) is None
    for path in (f"blobs/ab/{'a' * 64}", f"blobs/aa/{'a' * 63}", f"x/blobs/aa/{'a' * 64}"):
        assert blob_at(path) == ""


def test_the_first_record_of_a_key_stays(store, tmp_path):
    for content in (b"first", b"second"):
        (tmp_path / "file").write_bytes(content)
        store.add("package", "0" * 64, tmp_path / "file")
    assert store.read(store.find("package", "0" * 64), 10) == b"first"


def test_every_user_can_read_what_is_written_to_a_folder_whatever_the_umask(tmp_path):
    umask = os.umask(0o077)
    try:
        objects = Objects(parse_location(f"file://{tmp_path}/store"))
        objects.write("m/a", b"content")
        assert objects.create("m/1/triton_python_backend_stub", b"content")
    finally:
        os.umask(umask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"store": 0o755, "m": 0o755, "1": 0o755, "a": 0o644, "triton_python_backend_stub": 0o755}


def test_a_folder_that_somebody_closed_stays_closed(tmp_path):
    (tmp_path / "store/m").mkdir(parents=True)
    (tmp_path / "store/m").chmod(0o700)
    Objects(parse_location(f"file://{tmp_path}/store")).write("m/1/a", b"content")
    assert [stat.S_IMODE((tmp_path / "store" / name).stat().st_mode) for name in ("m", "m/1")] == [0o700, 0o755]

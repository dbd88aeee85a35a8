"""Blobs: sent once, received in order, checked before use, continued where a killed process stopped."""

import io

import pytest

from envpack.store import blobs, objects as module
from envpack.store.blobs import blobs_of, download, upload
from envpack.store.objects import Objects
from envpack.support.errors import StorageError
from envpack.support.progress import NoProgress
from tests.steps import Steps

CONTENT = bytes(range(256)) * 4000
SIZES = (100, 700_000, 323_900)


class Counting(Objects):
    """Counts what is sent and requested."""

    def __init__(self, location):
        super().__init__(location)
        self.sent, self.requested = [], []

    def write(self, path, content):
        self.sent.append(path)
        return super().write(path, content)

    def read_part(self, path, start, size, of):
        self.requested.append((path, start, size))
        return super().read_part(path, start, size, of)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    for each in (blobs, module):
        monkeypatch.setattr(each, "CHUNK", 100_000)


@pytest.fixture
def objects(store):
    return Counting(store.location)


@pytest.fixture
def stored(objects, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    found = blobs_of(io.BytesIO(CONTENT), SIZES)
    assert upload(objects, tmp_path / "file", found, NoProgress()) == len(CONTENT)
    return found


@pytest.fixture
def target(tmp_path):
    return tmp_path / "target"


def test_what_was_sent_is_received(objects, stored, target):
    steps = Steps()
    download(objects, stored, target, steps)
    assert target.read_bytes() == CONTENT
    assert steps.advanced[-1] == (len(CONTENT), len(CONTENT), "bytes", 0)
    assert [done for done, *_ in steps.advanced] == sorted({done for done, *_ in steps.advanced})


def test_what_the_store_has_is_not_sent_again(objects, stored, tmp_path):
    objects.sent.clear()
    assert upload(objects, tmp_path / "file", stored, NoProgress()) == 0
    assert objects.sent == []


def test_a_blob_of_another_length_is_sent_again(objects, stored, tmp_path):
    objects.write(stored[1].path, b"half")
    assert upload(objects, tmp_path / "file", stored, NoProgress()) == SIZES[1]


def test_large_blobs_are_sent_in_parts(objects, tmp_path, target, monkeypatch):
    monkeypatch.setattr(blobs, "_SMALL", 1000)
    (tmp_path / "file").write_bytes(CONTENT)
    found = blobs_of(io.BytesIO(CONTENT), SIZES)
    upload(objects, tmp_path / "file", found, NoProgress())
    assert objects.sent == [found[0].path]
    download(objects, found, target, NoProgress())
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(("size", "whole"), [(8 << 20, True), ((8 << 20) + 1, False)])
def test_blobs_of_up_to_eight_mebibytes_are_sent_in_one_request(objects, tmp_path, size, whole):
    (tmp_path / "file").write_bytes(bytes(size))
    upload(objects, tmp_path / "file", blobs_of(io.BytesIO(bytes(size)), [size]), NoProgress())
    assert bool(objects.sent) is whole


@pytest.mark.parametrize("left", [1, 50, 100, 101, 350_100, 700_100, len(CONTENT) - 1, len(CONTENT)])
def test_a_download_goes_on_where_a_killed_one_stopped(objects, stored, target, left):
    target.write_bytes(CONTENT[:left])
    download(objects, stored, target, NoProgress())
    assert target.read_bytes() == CONTENT
    assert sum(size for _, _, size in objects.requested) == len(CONTENT) - left


@pytest.mark.parametrize("left", [50, 100, 350_100, 700_100, len(CONTENT), len(CONTENT) + 5])
def test_what_a_killed_download_left_is_not_trusted(objects, stored, target, left):
    target.write_bytes(b"x" * left)
    download(objects, stored, target, NoProgress())
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_blob_of_another_content_is_refused(objects, stored, target, index):
    content = bytearray(objects.read_part(stored[index].path, 0, SIZES[index], SIZES[index]))
    content[-1] ^= 1
    objects.write(stored[index].path, bytes(content))
    with pytest.raises(StorageError, match="SHA-256") as raised:
        download(objects, stored, target, NoProgress())
    assert raised.value.kind == "store-corrupt"
    assert stored[index].path in str(raised.value)
    assert target.read_bytes() == CONTENT[: sum(SIZES[:index])]  # only what is right is kept


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_blob_that_is_too_short_is_refused(objects, stored, target, content):
    objects.write(stored[1].path, content)
    with pytest.raises(StorageError) as raised:
        download(objects, stored, target, NoProgress())
    assert raised.value.kind in ("store-corrupt", "store-unreachable")


def test_a_missing_blob_is_refused(objects, stored, target):
    objects.delete([stored[1].path])
    with pytest.raises(StorageError, match="missing") as raised:
        download(objects, stored, target, NoProgress())
    assert (raised.value.kind, raised.value.exit_code) == ("store-corrupt", 7)


def test_a_download_that_does_not_fit_is_refused_before_it_begins(objects, stored, target, monkeypatch):
    monkeypatch.setattr(blobs, "_free", lambda folder: (64 << 20) + len(CONTENT) - 1)
    with pytest.raises(StorageError) as raised:
        download(objects, stored, target, NoProgress())
    assert raised.value.kind == "disk-full"
    assert objects.requested == []
    monkeypatch.setattr(blobs, "_free", lambda folder: (64 << 20) + len(CONTENT))
    download(objects, stored, target, NoProgress())
    assert target.read_bytes() == CONTENT

"""The index of a store's records: what it knows is not read one by one, and what it does not is."""

import json

import pytest

from envpack.store import records as module
from envpack.store.records import RecordIndex
from envpack.support.errors import StorageError

from .conftest import requests_to

PLACE = "index/records.json"


@pytest.fixture
def objects(store):
    for number in range(3):
        store.objects.write(f"records/{number}", f"content {number}".encode())
    return store.objects


def present(objects):
    return sorted(objects.list("records"), key=lambda info: info.path)


def read_all(objects, *, empty=False):
    index = RecordIndex(objects, empty=empty)
    contents = [index.content(info) for info in present(objects)]
    index.save(present(objects))
    return contents


CONTENTS = [b"content 0", b"content 1", b"content 2"]


@pytest.fixture
def saved(objects, monkeypatch):
    """A store whose index is as it should be."""
    monkeypatch.setattr(module, "_WORTH", 3)
    assert read_all(objects) == CONTENTS
    return objects


def test_an_index_is_written_once_it_is_worth_it(objects, monkeypatch):
    for worth, written in ((4, False), (3, True)):
        monkeypatch.setattr(module, "_WORTH", worth)
        assert read_all(objects) == CONTENTS
        assert (objects.head(PLACE) is not None) is written
    document = json.loads(objects.read(PLACE, 1 << 20)[0])
    assert document["schema"] == 1
    tags = {info.path: info.tag for info in present(objects)}
    assert document["records"] == {f"records/{n}": [tags[f"records/{n}"], f"content {n}"] for n in range(3)}


def test_what_the_index_knows_is_read_with_it_alone(saved, store):
    asked = requests_to(store)
    assert read_all(saved) == CONTENTS
    assert asked == [PLACE]
    assert read_all(saved, empty=True) == CONTENTS
    assert asked[1:] == [f"records/{number}" for number in range(3)]


def test_a_record_that_was_written_since_is_read_anew(saved, store):
    saved.write("records/1", b"changed")
    asked = requests_to(store)
    assert read_all(saved) == [b"content 0", b"changed", b"content 2"]
    assert asked == [PLACE, "records/1"]


def test_a_record_that_is_gone_has_no_content_and_leaves_the_index(saved):
    gone = present(saved)[1]
    saved.delete([gone.path])
    assert RecordIndex(saved, empty=True).content(gone) is None
    read_all(saved, empty=True)
    assert sorted(json.loads(saved.read(PLACE, 1 << 20)[0])["records"]) == ["records/0", "records/1", "records/2"], (
        "two are not worth another index"
    )


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"schema": 2, "records": {}}',
        '{"schema": 1}',
        '{"schema": 1, "records": 5}',
        '{"schema": 1, "records": {"records/0": 5}}',
    ],
)
def test_a_damaged_index_knows_nothing(saved, content):
    saved.write(PLACE, content.encode())
    assert read_all(saved) == CONTENTS


def test_an_index_that_is_too_large_is_neither_read_nor_written(saved, monkeypatch):
    size = saved.head(PLACE).size
    monkeypatch.setattr(module, "_MOST", size - 1)
    assert RecordIndex(saved, empty=False)._known == {}
    saved.delete([PLACE])
    read_all(saved)
    assert saved.head(PLACE) is None
    monkeypatch.setattr(module, "_MOST", size)
    read_all(saved)
    assert len(RecordIndex(saved, empty=False)._known) == 3


def test_a_store_that_cannot_be_used_is_an_error(saved, monkeypatch):
    def fail(*_):
        raise StorageError("store-forbidden", "not allowed", "ask the owner")

    with monkeypatch.context() as context:
        context.setattr(saved, "write", fail)
        assert read_all(saved, empty=True) == CONTENTS, "who may only read writes no index"
    monkeypatch.setattr(saved, "read", fail)
    with pytest.raises(StorageError, match="not allowed"):
        RecordIndex(saved, empty=False)

"""What a store holds is compared with its digests, and what is damaged removed."""

import pytest

from envpack.store import objects
from envpack.store.maintenance import StoreCheck, verify_store
from envpack.support.progress import NoProgress
from tests.steps import Steps

from .conftest import paths


def test_what_is_damaged_is_found_and_removed(store, add, monkeypatch):
    monkeypatch.setattr(objects, "CHUNK", 2)
    for key, content in (("a", b"abcde"), ("b", b"fghij"), ("c", b"klmno"), ("d", b"pqrst")):
        add("stub", key, content)
    store.objects.write("records/stub/future.json", b'{"schema": 2}')
    assert verify_store(store) == StoreCheck(4, (), removed=False)
    blobs = {key: store.find("stub", key).blobs[0].path for key in "abc"}
    store.objects.write(blobs["b"], b"fghiJ")
    store.objects.delete([blobs["c"]])
    store.objects.write("records/stub/d.json", b"{")
    damaged = (blobs["b"], *(f"records/stub/{key}.json" for key in "bcd"))
    assert verify_store(store) == StoreCheck(3, damaged, removed=False)
    assert verify_store(store, repair=True) == StoreCheck(3, damaged, removed=True)
    assert verify_store(store).damaged == ()
    assert paths(store, "records") == ["records/stub/a.json", "records/stub/future.json"]


@pytest.mark.parametrize("tagged", [True, False])
def test_what_others_have_mended_or_removed_meanwhile_is_not_damaged(store, add, tmp_path, monkeypatch, tagged):
    """A verification takes hours, and a repair would remove what others have put in the place of what was damaged.

    What was removed and put there again has its tag again, if the store's tags are those of the content.
    """
    if not tagged:
        monkeypatch.setattr(objects, "_tag", lambda _: "the same")
    for key in ("mended", "removed", "shorter", "damaged"):
        add("stub", key, key.encode())
    blobs = {key: store.find("stub", key).blobs[0].path for key in ("mended", "removed", "shorter", "damaged")}
    for key in ("mended", "damaged"):
        store.objects.write(blobs[key], key.upper().encode())
    store.objects.write("records/stub/unreadable.json", b"{")
    add("stub", "lost", b"lost")
    store.objects.delete([store.find("stub", "lost").blobs[0].path])

    class Others(NoProgress):
        def advance(self, done, *_):
            if done == len("".join(blobs)):
                store.objects.delete(["records/stub/removed.json", "records/stub/unreadable.json", blobs["removed"]])
                for key in ("mended", "lost"):
                    (tmp_path / "file").write_text(key)
                    store.add("stub", key, tmp_path / "file", again=True)

    damaged = (blobs["damaged"], "records/stub/damaged.json")
    assert verify_store(store, repair=True, progress=Others()) == StoreCheck(4, damaged, removed=True)
    assert paths(store, "records") == [f"records/stub/{key}.json" for key in ("lost", "mended", "shorter")]
    assert verify_store(store) == StoreCheck(3, (), removed=False)


@pytest.mark.parametrize("content", [None, b"abc"])
def test_a_blob_that_is_removed_or_cut_while_it_is_read_is_no_error(store, add, monkeypatch, content):
    add("stub", "a", b"abcde")
    add("stub", "b", b"fghij")
    blob, real = store.find("stub", "a").blobs[0].path, store.objects.read_part

    def read_part(path, *rest):
        if path == blob:
            store.objects.delete([blob])
            if content:
                store.objects.write(blob, content)
        return real(path, *rest)

    monkeypatch.setattr(store.objects, "read_part", read_part)
    damaged = ([blob] if content else []) + ["records/stub/a.json"]
    assert verify_store(store) == StoreCheck(2, tuple(damaged), removed=False)


def test_the_progress_is_that_of_the_bytes(store, add):
    for key, content in (("a", b"abcde"), ("b", b"fghij")):
        add("stub", key, content)
    progress = Steps()
    verify_store(store, progress=progress)
    assert progress.advanced == [(5, 10, "bytes", 0), (10, 10, "bytes", 0)]

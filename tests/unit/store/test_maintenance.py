"""What a store holds, and what pruning it takes away: nothing that is named, in use, or of somebody else."""

import os
import time
from pathlib import Path

import pytest

from envpack.lock import Lock, write_lock
from envpack.requirements import CondaPackage, Target
from envpack.store import list_store, maintenance, prune_store, verify_store
from envpack.support.errors import InputError
from envpack.support.progress import NoProgress

LOCK = Lock(
    Target("linux-64", "3.8", "2.35"),
    ("https://example.org/conda",),
    (
        CondaPackage(
            name="python",
            version="3.8.18",
            build="0",
            subdir="linux-64",
            url="file:///python.conda",
            sha256="1" * 64,
        ),
    ),
    (),
)


class Details(NoProgress):
    def __init__(self):
        self.seen = []

    def detail(self, text):
        self.seen.append(text)


@pytest.fixture
def add(store, tmp_path):
    def put(kind, key, *pieces, days=0.0, **facts):
        (tmp_path / "file").write_bytes(b"".join(pieces))
        store.add(kind, key, tmp_path / "file", sizes=[len(piece) for piece in pieces], facts=facts)
        record = store.find(kind, key)
        for path in (record.path, *(blob.path for blob in record.blobs)):
            age(store, path, days)

    return put


def age(store, path, days):
    used = time.time() - days * 86400
    os.utime(store.location.folder / path, (used, used))


def paths(store, folder=""):
    return sorted(found.path for found in store.objects.list(folder))


def test_entries_are_listed_and_shared_blobs_count_once(store, add):
    add("environment", "e" * 32, b"abc", b"de", python="3.8.18", packages=["python 3.8.18", "numpy 1.24.4"])
    add("environment", "f" * 32, b"abc", b"f", days=3, python="3.9.1", packages=[])
    add("stub", "cp38-x86_64-0", b"stub", python="3.8")
    content = list_store(store)
    assert [(entry.kind, entry.label, entry.complete) for entry in content.entries] == [
        ("environment", "ffffffff Python 3.9.1: no packages", True),
        ("environment", "eeeeeeee Python 3.8.18: numpy", True),
        ("stub", "cp38-x86 Python 3.8", True),
    ]
    assert (sum(entry.size for entry in content.entries), content.size, content.loose, content.foreign) == (
        10,
        10,
        0,
        0,
    )


def test_only_what_is_old_is_removed_and_shared_blobs_stay(store, add):
    add("environment", "e" * 32, b"abc", b"old", days=40)
    add("environment", "f" * 32, b"abc", b"new", days=20)
    pruned = prune_store(store, 30)
    assert ([entry.key for entry in pruned.entries], pruned.size) == (["e" * 32], 3)
    assert paths(store, "records") == [f"records/environment/{'f' * 32}.json"]
    assert len(paths(store, "blobs")) == 2
    assert prune_store(store, 30).entries == ()


def test_a_dry_run_removes_nothing(store, add):
    add("stub", "old", b"abc", days=40)
    before = paths(store)
    pruned = prune_store(store, 30, dry_run=True)
    assert ([entry.key for entry in pruned.entries], pruned.size) == (["old"], 3)
    assert paths(store) == before


def test_a_use_is_noted_once_a_day_by_a_machine_that_may_write(store, add):
    add("stub", "young", b"abc", days=0.5)
    add("stub", "old", b"abc", days=40)
    store.push = False
    store.find("stub", "old")
    assert paths(store, "uses") == []
    store.push = True
    for key in ("young", "old"):
        store.find("stub", key)
    assert paths(store, "uses") == ["uses/stub/old"]
    assert [entry.key for entry in prune_store(store, 30).entries] == []
    age(store, "uses/stub/old", 31)
    assert [entry.key for entry in prune_store(store, 30).entries] == ["old"]
    assert paths(store, "uses") == []


def test_what_a_lockfile_names_stays(store, add, tmp_path):
    (tmp_path / "models/core").mkdir(parents=True)
    write_lock(LOCK, tmp_path / "models/core/envpack.lock")
    add("environment", LOCK.key, b"named", days=40)
    add("environment", LOCK.environment_key(strip=True), b"stripped", days=40)
    add("package", "1" * 64, b"python", days=40)
    add("lock", "a" * 32, b"lock", days=40, environment=LOCK.key)
    add("lock", "b" * 32, b"other lock", days=40, environment="other")
    add("environment", "e" * 32, b"other", days=40)
    removed = {entry.key for entry in prune_store(store, 30, locks=[tmp_path / "models"]).entries}
    assert removed == {"b" * 32, "e" * 32}


def test_a_folder_of_lockfiles_that_is_missing_is_refused(store, add, tmp_path):
    add("stub", "old", b"abc", days=40)
    with pytest.raises(InputError) as raised:
        prune_store(store, 30, locks=[tmp_path / "absent"])
    assert raised.value.kind == "locks-missing"
    assert store.find("stub", "old")


def test_an_incomplete_entry_is_shown_and_removed_whatever_its_age(store, add):
    add("environment", "e" * 32, b"abc", b"def")
    store.objects.delete([store.find("environment", "e" * 32).blobs[0].path])
    assert [entry.complete for entry in list_store(store).entries] == [False]
    assert [entry.key for entry in prune_store(store, 30).entries] == ["e" * 32]


def test_young_blobs_stay_because_their_record_may_be_on_the_way(store, add):
    add("stub", "old", b"abc", days=40)
    age(store, store.find("stub", "old").blobs[0].path, 0)
    assert prune_store(store, 30).size == 0
    assert len(paths(store, "blobs")) == 1


def test_blobs_stay_while_another_machine_puts_something_into_the_store(store, add):
    add("stub", "old", b"abc", days=40)
    details = Details()
    with store.claimed("stub", "new", "it", NoProgress()):
        assert prune_store(store, 30, progress=details).size == 0
    assert "blobs stay: another machine puts something into the store" in details.seen
    assert prune_store(store, 30).size == 3


@pytest.mark.parametrize("path", ["records/stub/new.json", "records/future/key.json", "records/notes.txt"])
def test_blobs_stay_if_a_record_cannot_be_read(store, add, path):
    add("stub", "old", b"abc", days=40)
    store.objects.write(path, b'{"schema": 2}')
    age(store, path, 400)
    details = Details()
    assert prune_store(store, 30, progress=details).size == 0
    assert [text for text in details.seen if "of another version of envpack" in text]
    assert path in paths(store)
    assert list_store(store).foreign == 1


def test_nothing_of_others_is_removed(store, add):
    names = ["notes.txt", "blobs/notes.txt", "other/blob", f"blobs/ab/{'a' * 64}"]
    for name in names:
        store.objects.write(name, b"mine")
        age(store, name, 400)
    prune_store(store, 0)
    assert paths(store) == sorted(names)


def test_what_dead_machines_left_is_removed(store):
    for name, days in (("claims/stub/a/1", 2), ("probes/b", 2), ("claims/stub/c/1", 0.5)):
        store.objects.write(name, b"")
        age(store, name, days)
    prune_store(store, 30)
    assert paths(store) == ["claims/stub/c/1"]


def test_a_damaged_blob_is_found(store, add, monkeypatch):
    monkeypatch.setattr(maintenance, "_CHUNK", 2)
    add("stub", "a", b"abcde")
    add("stub", "b", b"fghij")
    assert verify_store(store) == (2, ())
    path = store.find("stub", "b").blobs[0].path
    Path(store.location.folder, path).write_bytes(b"fghiJ")
    assert verify_store(store) == (2, (path,))

"""What a store holds, and what pruning it takes away: nothing that is named, in use, or of somebody else."""

import threading

import pytest

from envpack.lock.lockfile import Lock, named_by_locks, write_lock
from envpack.requirements.model import CondaPackage
from envpack.requirements.target import Target
from envpack.store import maintenance, records
from envpack.store.claims import PRUNE, PRUNE_EXPIRY, pruned_since, prunes, reserved
from envpack.store.maintenance import list_store, prune_store, verify_store
from envpack.store.shared import open_store
from envpack.support.errors import InputError, StorageError, UsageError
from envpack.support.progress import NoProgress
from tests.steps import Steps
from tests.waiting import soon

from .conftest import age

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


def paths(store, folder=""):
    """The paths of all objects but the claims of those who pruned."""
    return sorted(found.path for found in store.objects.list(folder) if not found.path.startswith(PRUNE))


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


def test_a_negative_age_removes_nothing(store, add):
    add("stub", "new", b"abc", days=0)
    with pytest.raises(UsageError, match="days is -1"):
        prune_store(store, -1)
    assert paths(store, "records") == ["records/stub/new.json"]


def test_a_dry_run_counts_only_what_would_go(store, add):
    """Blobs of the last hour stay, because their record may be on the way; and all do while a machine pushes."""
    add("stub", "old", b"abc", days=40)
    store.objects.write("blobs/aa/" + "a" * 64, b"young")
    with reserved(store.objects, "claims/stub/new/", patience=0, say=print):
        assert prune_store(store, 30, dry_run=True).size == 0
    assert prune_store(store, 30, dry_run=True).size == 3
    assert prune_store(store, 30).size == 3


def test_a_use_is_noted_once_a_day_also_by_a_machine_that_only_fetches(url, store, add):
    add("stub", "young", b"abc", days=0.5)
    add("stub", "old", b"abc", days=40)
    reader = open_store(url)
    for key in ("young", "old"):
        reader.find("stub", key)
    assert paths(store, "uses") == ["uses/stub/old"]
    assert [entry.key for entry in prune_store(store, 30).entries] == []
    age(store, "uses/stub/old", 31)
    assert [entry.key for entry in prune_store(store, 30).entries] == ["old"]
    assert paths(store, "uses") == []


def test_a_use_that_was_noted_today_is_not_noted_again(url, store, add):
    add("stub", "old", b"abc", days=40)
    for days, is_noted in ((0, False), (0.5, False), (2, True)):
        open_store(url).find("stub", "old")
        age(store, "uses/stub/old", days)
        before = store.objects.head("uses/stub/old").modified
        open_store(url).find("stub", "old")
        assert (store.objects.head("uses/stub/old").modified > before) is is_noted


def test_a_machine_that_may_not_write_reads_all_the_same(url, store, add, monkeypatch):
    for key in ("a", "b"):
        add("stub", key, b"abc", days=40)
    reader, tried = open_store(url), []

    def refuse(path, content):
        tried.append(path)
        raise StorageError("store-forbidden", "refused")

    monkeypatch.setattr(reader.objects, "write", refuse)
    assert all(reader.find("stub", key) for key in ("a", "b"))
    assert len(tried) == 1


def test_a_key_is_looked_up_once(url, store, add, monkeypatch):
    add("stub", "there", b"abc")
    reader, asked = open_store(url), []
    read = reader.objects.read
    monkeypatch.setattr(reader.objects, "read", lambda path, most: asked.append(path) or read(path, most))
    for _ in range(3):
        assert reader.find("stub", "there")
        assert reader.find("stub", "absent") is None
    assert asked == ["records/stub/there.json", "records/stub/absent.json"]


def test_age_is_by_the_stores_clock(store, add, monkeypatch):
    """This machine's may be wrong."""
    add("stub", "young", b"abc", days=1)
    monkeypatch.setattr(maintenance.time, "time", lambda: 4e9)
    assert prune_store(store, 30).entries == ()
    assert prune_store(store, 30, dry_run=True).entries == ()


def test_objects_are_removed_in_batches(store, add, monkeypatch):
    for number in range(20):
        add("stub", f"key{number}", b"%d" % number, days=40)
        store.objects.write(f"uses/stub/key{number}", b"")
        age(store, f"uses/stub/key{number}", 40)
    batches = []
    delete = store.objects.delete
    monkeypatch.setattr(store.objects, "delete", lambda names: batches.append(len(names)) or delete(names))
    assert len(prune_store(store, 30).entries) == 20
    assert sorted(batches)[-2:] == [20, 40], "blobs at once, and records with their uses"
    assert paths(store, "records") == paths(store, "uses") == paths(store, "blobs") == []


class Removing:
    """A store in which another machine prunes at a moment of a push."""

    def __init__(self, url, moment):
        self.other, self.moment = open_store(url, push=True, expiry=0.6), moment

    def at(self, moment):
        if moment == self.moment:
            self.moment = None
            prune_store(self.other, 0)


@pytest.mark.parametrize(
    "moment", ["before a blob is looked for", "after it was found", "before the record is written"]
)
def test_no_blob_is_removed_that_an_unfinished_push_counts_on(url, store, add, tmp_path, monkeypatch, moment):
    add("stub", "old", b"shared", days=40)
    pruner = Removing(url, moment)
    head, record = store.objects.head, store._record

    def looked_for(path):
        pruner.at("before a blob is looked for")
        found = head(path)
        if path.startswith("blobs/"):
            pruner.at("after it was found")
        return found

    def recorded(*words, **more):
        pruner.at("before the record is written")
        record(*words, **more)

    monkeypatch.setattr(store.objects, "head", looked_for)
    monkeypatch.setattr(store, "_record", recorded)
    (tmp_path / "file").write_bytes(b"shared")
    store.add("stub", "new", tmp_path / "file")
    assert pruner.moment is None
    assert verify_store(store).damaged == ()
    assert [entry.complete for entry in list_store(store).entries if entry.key == "new"] == [True]


def test_a_push_waits_for_a_prune_that_goes_on(url, store, add, tmp_path):
    """The prune removes what an earlier one made incomplete, too."""
    with reserved(store.objects, PRUNE, patience=0, say=print, expiry=60) as claim:
        (tmp_path / "file").write_bytes(b"content")
        thread = threading.Thread(target=lambda: store.add("stub", "new", tmp_path / "file"))
        thread.start()
        assert soon(lambda: store.objects.head("records/stub/new.json"))
        store.objects.delete([*paths(store, "blobs"), "records/stub/new.json"])
        assert thread.is_alive()
        assert claim.held
    thread.join(60)
    assert verify_store(store).damaged == ()
    assert paths(store, "records") == ["records/stub/new.json"]


def test_a_push_outlasts_several_prunes(url, store, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "_GRACE", -10)
    other, record, pruned = open_store(url, push=True), store._record, []

    def recorded(*words, **more):
        if len(pruned) < 3:
            pruned.append(prune_store(other, 0))
        record(*words, **more)

    monkeypatch.setattr(store, "_record", recorded)
    (tmp_path / "file").write_bytes(b"content")
    store.add("stub", "new", tmp_path / "file")
    assert len(pruned) == 3
    assert verify_store(store).damaged == ()
    assert [entry.complete for entry in list_store(store).entries] == [True]


def test_a_prune_whose_removal_failed_goes_on_until_it_expires(store, add, monkeypatch):
    """The removal may still be on its way, and come after a push that counts on the blob."""
    monkeypatch.setattr("envpack.store.claims.PRUNE_EXPIRY", 1.0)
    add("stub", "old", b"abc", days=40)
    delete = store.objects.delete

    def removed(names):
        delete(names)
        if "records/stub/old.json" in names:
            raise StorageError("store-unreachable", "the answer is lost", "")

    monkeypatch.setattr(store.objects, "delete", removed)
    with pytest.raises(StorageError, match="the answer is lost"):
        prune_store(store, 30)
    before = prunes(store.objects, store.clock)
    assert before == {1: True}
    assert pruned_since(store.objects, before, store.clock)
    assert not pruned_since(store.objects, prunes(store.objects, store.clock), store.clock)


def test_nothing_is_removed_that_would_come_after_the_claim(store, add, monkeypatch):
    """A removal that is sent when the claim is about to expire may arrive when others count on the blob."""
    add("stub", "old", b"abc", days=40)
    monkeypatch.setattr(maintenance, "_LATE", PRUNE_EXPIRY)
    with pytest.raises(StorageError, match="stood still for too long"):
        prune_store(store, 30)
    assert store.objects.head("records/stub/old.json")


def test_one_machine_prunes_at_a_time(store, add, monkeypatch):
    add("stub", "old", b"abc", days=40)
    monkeypatch.setattr(maintenance, "_PATIENCE", 0)
    steps = Steps()
    with reserved(store.objects, PRUNE, patience=0, say=print):
        assert prune_store(store, 30, progress=steps).entries == ()
    assert "nothing is removed: another machine prunes the store" in steps.seen
    assert len(prune_store(store, 30).entries) == 1


def test_what_a_lockfile_names_stays(store, add, tmp_path):
    (tmp_path / "models/core").mkdir(parents=True)
    write_lock(LOCK, tmp_path / "models/core/envpack.lock")
    add("environment", LOCK.key, b"named", days=40)
    add("environment", LOCK.environment_key(strip=True), b"stripped", days=40)
    add("package", "1" * 64, b"python", days=40)
    add("lock", "a" * 32, b"lock", days=40, environment=LOCK.key)
    add("lock", "b" * 32, b"other lock", days=40, environment="other")
    add("environment", "e" * 32, b"other", days=40)
    removed = {entry.key for entry in prune_store(store, 30, named=named_by_locks([tmp_path / "models"])).entries}
    assert removed == {"b" * 32, "e" * 32}


def test_the_lockfile_of_a_model_that_is_a_link_counts(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "models/core").symlink_to("../elsewhere")
    (tmp_path / "elsewhere/again").symlink_to("../models")
    write_lock(LOCK, tmp_path / "elsewhere/envpack.lock")
    assert LOCK.key in named_by_locks([tmp_path / "models"])


def test_lockfiles_that_cannot_be_found_are_not_taken_for_absent(tmp_path, permissions_for_root):
    (tmp_path / "models/core").mkdir(parents=True)
    write_lock(LOCK, tmp_path / "models/core/envpack.lock")
    (tmp_path / "models/core").chmod(0o000)
    with pytest.raises(PermissionError) as raised:
        named_by_locks([tmp_path / "models"])
    assert raised.value.filename == str(tmp_path / "models/core")


def test_a_folder_of_lockfiles_that_is_missing_is_refused(tmp_path):
    with pytest.raises(InputError) as raised:
        named_by_locks([tmp_path / "absent"])
    assert raised.value.kind == "locks-missing"


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
    steps = Steps()
    with store.claimed("stub", "new", "it", NoProgress()):
        assert prune_store(store, 30, progress=steps).size == 0
    assert "blobs stay: another machine puts something into the store" in steps.seen
    assert prune_store(store, 30).size == 3


@pytest.mark.parametrize("path", ["records/stub/new.json", "records/future/key.json", "records/notes.txt"])
def test_blobs_stay_if_a_record_cannot_be_read(store, add, path):
    add("stub", "old", b"abc", days=40)
    store.objects.write(path, b'{"schema": 2}')
    age(store, path, 400)
    steps = Steps()
    assert prune_store(store, 30, progress=steps).size == 0
    assert [text for text in steps.seen if "of another version of envpack" in text]
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


def test_what_a_killed_machine_has_not_written_to_its_end_is_removed(store, add):
    add("stub", "a", b"abcde")
    blob = store.find("stub", "a").blobs[0].path
    old, new, foreign = (store.location.folder / path for path in (f"{blob}#1", f"{blob}#2", "blobs/ab/notes#1"))
    foreign.parent.mkdir(parents=True)
    for file, days in ((old, 2), (new, 0.5), (foreign, 2)):
        file.write_bytes(b"abc")
        age(store, file, days)
    assert prune_store(store, 30, dry_run=True).size == 3
    assert old.exists()
    assert prune_store(store, 30).size == 3
    assert [file.exists() for file in (old, new, foreign)] == [False, True, True]


class TestTheIndex:
    """A list of many records is a few requests."""

    @pytest.fixture
    def read(self, store, add, monkeypatch):
        """The paths that were read since the last look, of a store with many records."""
        monkeypatch.setattr(records, "_WORTH", 5)
        for number in range(6):
            add("stub", f"key{number}", b"%d" % number, python="3.8")
        asked, real = [], store.objects.read
        monkeypatch.setattr(store.objects, "read", lambda path, most: asked.append(path) or real(path, most))

        def since():
            found, asked[:] = list(asked), []
            return found

        list_store(store)
        since()
        return since

    def test_what_did_not_change_is_read_from_it(self, store, add, read):
        assert [entry.key for entry in list_store(store).entries] == [f"key{number}" for number in range(6)]
        assert read() == ["index/records.json"]
        add("stub", "new", b"new", python="3.9")
        read()
        assert "new" in {entry.key for entry in list_store(store).entries}
        assert read() == ["index/records.json", "records/stub/new.json"]

    def test_verify_reads_the_records_themselves(self, store, read):
        verify_store(store)
        assert len([path for path in read() if path.startswith("records/")]) == 6

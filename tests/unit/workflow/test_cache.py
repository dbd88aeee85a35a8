"""What is in the cache, and what pruning takes away."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from envpack.archive.folder import locked_destination
from envpack.environment.inventory import Entry, write_inventory
from envpack.environment.store import MANIFEST, SCHEMA
from envpack.support.entry_locks import being_made, in_use, ingredients_in_use, lock_of, mark_used
from envpack.support.errors import UsageError
from envpack.support.replacement import replaced_file, replaced_folder
from envpack.support.temp_dirs import partial_folder
from envpack.workflow.cache import list_cache, prune_cache
from tests.steps import Steps

DAY = 86400
OLD, NEW, DEAD, ALIVE = ("0" * 32, "1" * 32, "d" * 32, "a" * 32)  # names as entries have


def entry(cache, kind, name, *, days, content=b"x" * 5000):
    folder = cache / kind / name
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(content)
    used = time.time() - days * DAY
    lock = lock_of(cache / kind if kind == "conda-index" else folder)
    lock.touch()
    for path in (folder, lock):
        os.utime(path, (used, used))
    return folder


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def names(entries):
    return {(found.kind, found.path.name) for found in entries}


def test_entries_are_listed_with_their_size_on_disk_and_shared_files_count_once(cache):
    one = entry(cache, "stubs", "one", days=1)
    two = entry(cache, "stubs", "two", days=2)
    (two / "file").unlink()
    os.link(one / "file", two / "file")
    os.utime(two, (0, 0))
    (cache / "stubs/one.lock").touch()
    found = list_cache(cache)
    assert names(found) == {("stubs", "one"), ("stubs", "two")}
    assert [item.path.name for item in found] == ["two", "one"]  # the longest unused first
    folders = sum(os.lstat(path).st_blocks * 512 for path in (one, two))
    assert sum(item.size for item in found) == folders + os.lstat(one / "file").st_blocks * 512


def test_files_in_folders_count(cache):
    folder = entry(cache, "stubs", "one", days=1)
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/file").write_bytes(b"x" * 100_000)
    (found,) = list_cache(cache)
    assert found.size >= 105_000


def test_pruning_removes_what_was_not_used_for_some_days(cache):
    entry(cache, "environments", "old", days=40)
    entry(cache, "environments", "new", days=20)
    entry(cache, "bytecode", "old", days=40)
    pruned = prune_cache(30, cache=cache)
    assert names(pruned.entries) == {("environments", "old"), ("bytecode", "old")}
    assert pruned.size >= 10_000
    assert names(list_cache(cache)) == {("environments", "new")}


def test_hidden_entries_and_locks_are_not_listed_but_solutions_are_called_locks(cache):
    for kind in ("stubs", "solutions"):
        for name in ("plain", ".hidden"):
            entry(cache, kind, name, days=1)
        (cache / kind / "x.lock").touch()
    (cache / "environments").mkdir()
    entry(cache, "conda-index", "x", days=1)
    assert names(list_cache(cache)) == {
        ("stubs", "plain"),
        ("solutions", "plain"),
        ("solutions", "x.lock"),
        ("conda-index", "conda-index"),
    }


def test_an_entry_whose_use_was_written_down_stays(cache):
    old = entry(cache, "environments", "old", days=40)
    mark_used(old)
    assert prune_cache(30, cache=cache).entries == ()


def test_the_time_at_which_files_were_read_is_no_use(cache):
    """Listing reads the manifest; with it, environments would never expire."""
    old = environment(cache, "old", ["numpy"], days=40)
    os.utime(old / MANIFEST, (time.time(), time.time() - 40 * DAY))
    mark_used(old)
    os.utime(lock_of(old), (time.time(), time.time() - 40 * DAY))
    list_cache(cache)
    assert names(prune_cache(30, cache=cache, dry_run=True).entries) == {("environments", "old")}
    assert names(prune_cache(30, cache=cache).entries) == {("environments", "old")}


def test_an_entry_that_was_not_used_for_exactly_so_long_is_removed(cache, monkeypatch):
    old = entry(cache, "stubs", "old", days=0)
    for path in (old, lock_of(old)):
        os.utime(path, (1000, 1000))
    monkeypatch.setattr("time.time", lambda: 1000 + 30.0 * DAY)
    assert names(prune_cache(30, cache=cache).entries) == {("stubs", "old")}


def test_an_entry_that_was_used_after_it_was_listed_stays(cache, monkeypatch):
    old = entry(cache, "environments", "old", days=40)
    listed = list_cache(cache)
    mark_used(old)
    monkeypatch.setattr("envpack.workflow.cache.list_cache", lambda _: listed)
    assert prune_cache(30, cache=cache).entries == ()


def test_a_negative_age_removes_nothing(cache):
    mark_used(entry(cache, "environments", NEW, days=0))
    with pytest.raises(UsageError, match="days is -0.5"):
        prune_cache(-0.5, cache=cache)
    assert len(list_cache(cache)) == 1


def test_a_removed_entry_leaves_no_lock(cache):
    for kind in ("environments", "stubs", "solutions", "conda-index"):
        mark_used(entry(cache, kind, "one", days=40))
    (cache / "stubs/one.lock").touch()  # of an earlier version
    (cache / f"environments/.{OLD}.lock").touch()
    prune_cache(0, cache=cache)
    assert [path for path in cache.rglob("*") if not path.is_dir()] == []


def test_an_archive_goes_with_what_lies_beside_it(cache):
    """Its index is younger, since it is read for other archives: it must not outlive what it points into."""
    folder = cache / "archives"
    folder.mkdir(parents=True)
    for name in (f"{OLD}.tar.gz", f"{OLD}.tar.gz.json", f"{OLD}.tar.gz.segments", f"{NEW}.tar", f"{NEW}.tar.json"):
        (folder / name).write_bytes(b"x" * 5000)
    used = time.time() - 40 * DAY
    os.utime(folder / f"{OLD}.tar.gz", (used, used))
    assert names(list_cache(cache)) == {("archives", f"{OLD}.tar.gz"), ("archives", f"{NEW}.tar")}
    pruned = prune_cache(30, cache=cache)
    assert names(pruned.entries) == {("archives", f"{OLD}.tar.gz")}
    assert pruned.size >= 15_000
    assert sorted(file.name for file in folder.iterdir() if file.suffix != ".lock") == [f"{NEW}.tar", f"{NEW}.tar.json"]
    prune_cache(0, cache=cache)  # a plain archive has no index
    assert [file.name for file in folder.iterdir() if file.suffix != ".lock"] == []


def test_what_lies_beside_an_archive_that_is_gone_is_an_entry_like_others(cache):
    (cache / "archives").mkdir(parents=True)
    (cache / f"archives/{OLD}.tar.gz.segments").write_text("{}")
    assert names(prune_cache(0, cache=cache).entries) == {("archives", f"{OLD}.tar.gz.segments")}


def test_what_cannot_be_removed_now_is_removed_by_the_next_run(cache, monkeypatch):
    def refuse(*_, **options):
        raise PermissionError

    folder = entry(cache, "bytecode", OLD, days=40)
    with monkeypatch.context() as patched:
        patched.setattr("os.rmdir", refuse)
        assert names(prune_cache(30, cache=cache).entries) == {("bytecode", OLD)}
    assert not folder.exists()
    assert list_cache(cache) == ()
    prune_cache(30, cache=cache)
    assert [path.name for path in (cache / "bytecode").iterdir() if path.is_dir()] == []


def test_entries_of_other_users_stay(cache, monkeypatch):
    entry(cache, "stubs", OLD, days=40)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    steps = Steps()
    for dry_run in (True, False):
        assert prune_cache(30, cache=cache, dry_run=dry_run, progress=steps).entries == ()
    assert steps.seen == ["those of other users stay: 1 entry"] * 2
    assert names(list_cache(cache)) == {("stubs", OLD)}


def environment(cache, key, packages, *, days):
    folder = entry(cache, "environments", key, days=days)
    package = {"version": "1", "source": "pip", "license": "", "url": "", "sha256": "", "size": 0}
    manifest = {
        "schema": SCHEMA, "key": key, "python": "3.9.1", "minor": "3.9", "glibc": "", "glibcxx": "", "size": 0,
        "platform": "linux-64", "content": "", "stand_ins": 0,
        "packages": [{"name": name, **package} for name in packages],
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(manifest))
    os.utime(folder, (0, time.time() - days * DAY))
    return folder


def test_an_environment_is_listed_with_its_packages(cache):
    environment(cache, "0123456789", ["python", "numpy", "six"], days=1)
    environment(cache, "9876543210", ["python"], days=1)
    entry(cache, "environments", "damaged", days=1)
    assert {found.label for found in list_cache(cache)} == {
        "01234567 Python 3.9.1: numpy, six",
        "98765432 Python 3.9.1: no packages",
        "damaged",
    }


@pytest.mark.parametrize("how", [in_use, being_made])
def test_what_another_process_makes_or_uses_stays(cache, how):
    folder = entry(cache, "environments", "busy", days=40)
    with how(folder):
        os.utime(lock_of(folder), (0, 0))
        assert prune_cache(30, cache=cache).entries == ()
    assert (folder / "file").is_file()


def test_what_environments_are_made_of_stays_while_one_is_built(cache):
    kinds = ("bytecode", "channel", "conda-index", "conda-packages", "needs", "prefixes", "solutions", "wheels")
    for kind in (*kinds, "stubs"):
        entry(cache, kind, "one", days=40)
    with ingredients_in_use(cache):
        assert names(prune_cache(0, cache=cache).entries) == {("stubs", "one")}
    assert {kind for kind, _ in names(prune_cache(0, cache=cache).entries)} == set(kinds)


def test_what_zig_compiled_for_itself_is_one_entry_that_stays_while_a_stub_is_compiled(cache):
    runtime = entry(cache, "zig", "o", days=40).parent
    os.utime(runtime, (0, 0))
    assert [(found.kind, found.path, found.label) for found in list_cache(cache)] == [("zig", runtime, "zig")]
    with in_use(runtime, recorded=False):
        assert prune_cache(30, cache=cache).entries == ()
    assert names(prune_cache(30, cache=cache).entries) == {("zig", "zig")}
    assert not runtime.exists()


def test_locks_of_places_outside_go_unless_they_are_held(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(cache))
    with locked_destination(tmp_path / "released"):
        pass
    with locked_destination(tmp_path / "held"):
        (held,) = (file for file in (cache / "locks").iterdir() if not is_free(file))
        assert len(list((cache / "locks").iterdir())) == 2
        assert list_cache(cache) == ()
        assert prune_cache(30, cache=cache).entries == ()
        assert list((cache / "locks").iterdir()) == [held]
    prune_cache(30, cache=cache)
    assert list((cache / "locks").iterdir()) == []


def is_free(lock):
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


COMPILE = """
import sys
from pathlib import Path
from envpack.support.progress import NoProgress
from envpack.stub.recipe import ensure_entry

def make(folder):
    (folder / "half").write_text("of it")
    print("started", flush=True)
    sys.stdin.read()
    (folder / "half").rename(folder / "whole")

ensure_entry(Path(sys.argv[1], "stubs/one"), make, NoProgress())
"""
PLACE = """
import os, sys
from pathlib import Path
os.environ["ENVPACK_CACHE_DIR"] = sys.argv[1]
from envpack.archive import folder
from envpack.environment.store import read_environment

def fill(*arguments):
    print("started", flush=True)
    sys.stdin.read()
    linked(*arguments)

linked, folder._fill = folder._fill, fill
folder.place_folder(read_environment(Path(sys.argv[1], "environments/one")), Path(sys.argv[1]).parent / "placed")
"""


@pytest.fixture
def process(cache):
    """Runs a program up to the moment in which it says that it started; it ends when its input does."""
    children = []

    def start(program):
        command = [sys.executable, "-c", program, cache]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert children[-1].stdout.readline() == b"started\n"
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_pruning_does_not_disturb_a_compilation(cache, process):
    compiling = process(COMPILE)
    prune_cache(0, cache=cache)
    compiling.communicate()
    assert compiling.returncode == 0
    assert (cache / "stubs/one/whole").read_text() == "of it"
    assert names(prune_cache(0, cache=cache).entries) == {("stubs", "one")}


def test_pruning_does_not_remove_what_is_being_placed(cache, process, tmp_path):
    folder = environment(cache, "one", ["python"], days=40)
    write_inventory(folder, [Entry("file", "file", "python", 5000, "0" * 64)])
    placing = process(PLACE)
    assert prune_cache(0, cache=cache).entries == ()
    placing.communicate()
    assert placing.returncode == 0
    assert (tmp_path / "placed/file").samefile(folder / "file")
    assert {kind for kind, _ in names(prune_cache(0, cache=cache).entries)} == {"environments", "selections"}
    assert (tmp_path / "placed/file").stat().st_size == 5000


def test_a_user_waits_until_pruning_has_removed_an_entry_and_does_not_find_it(cache, monkeypatch):
    folder, used, rename = entry(cache, "stubs", "one", days=40), [], Path.rename
    waits = threading.Event()

    def use():
        with in_use(folder):
            used.append(folder.exists())

    user = threading.Thread(target=use)

    def renamed(path, target):
        user.start()
        assert waits.wait(60)
        return rename(path, target)

    pause = time.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: waits.set() or pause(seconds))
    monkeypatch.setattr(Path, "rename", renamed)
    assert names(prune_cache(0, cache=cache).entries) == {("stubs", "one")}
    user.join(60)
    assert used == [False]


def test_what_killed_processes_left_is_removed_and_what_living_ones_make_is_not(cache):
    entry(cache, "environments", f".{DEAD}.abcdefg8.partial", days=0)
    (cache / "archives").mkdir(exist_ok=True)
    (cache / f"archives/.{DEAD}.tar.gz.abcdefg8.partial").touch()
    (cache / "archives/.note.partial").touch()
    for folder in (cache, cache / "wheels"):
        (folder / ".envpack.abcdefg8.partial/lib").mkdir(parents=True)
    with (
        replaced_folder(cache / f"environments/{ALIVE}") as made,
        replaced_file(cache / f"archives/{ALIVE}.tar.gz") as alive,
        partial_folder(cache / "wheels") as built,
    ):
        prune_cache(30, cache=cache)
        assert [*cache.glob(".envpack.*"), *cache.glob("wheels/.envpack.*")] == [built]
        assert {path.name for path in (cache / "archives").glob(".*.partial")} == {alive.name, ".note.partial"}
        assert list((cache / "environments").glob(".*.partial")) == [made]
    left = {path.name for path in (cache / "environments").iterdir() if path.is_dir()}
    assert left == {ALIVE}


def test_what_envpack_did_not_make_stays(cache):
    """ENVPACK_CACHE_DIR may name a folder in which others keep files under the same names."""
    theirs = [
        *("archives/2023/backup.tar", "wheels/mine-1.0-py3-none-any.whl", "environments/prod/x", "stubs/api.pyi"),
        *("zig/main.zig", "pythons/mine/p", "needs/.app.lock", ".app.lock"),
        *(".x.abcdefgh.partial", "locks/.y.abcdefgh.partial"),
    ]
    for name in theirs:
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text("theirs")
    theirs.append("archives/.app.lock")
    (cache / "archives/.app.lock").touch()  # empty, as ours are
    entry(cache, "archives", f"{OLD}.tar.gz", days=40)
    assert names(prune_cache(0, cache=cache, dry_run=True).entries) == {("archives", f"{OLD}.tar.gz")}
    assert names(prune_cache(0, cache=cache).entries) == {("archives", f"{OLD}.tar.gz")}
    assert sorted(str(file.relative_to(cache)) for file in cache.rglob("*") if file.is_file()) == sorted(theirs)

"""Who makes, uses or removes an entry of the cache holds its lock; all with real processes."""

import fcntl
import os
import subprocess
import sys
import threading

import pytest

from envpack.support.entry_locks import being_made, ensured, in_use, kept, last_used, lock_of, mark_used, removable

HOLDER = """
import sys
from pathlib import Path
from envpack.support import entry_locks

with getattr(entry_locks, sys.argv[1])(Path(sys.argv[2])):
    print("holds", flush=True)
    sys.stdin.read()
"""
HOUR = 3600


@pytest.fixture
def entry(tmp_path):
    folder = tmp_path / "cache/entry"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def held(entry):
    """Starts a process that holds the lock of the entry, as a maker or a user, until its input ends."""
    children = []

    def start(how):
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, how, entry], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        children.append(child)
        assert child.stdout.readline() == b"holds\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def released(child):
    child.communicate()


@pytest.mark.parametrize("how", ["in_use", "being_made"])
def test_nothing_is_removed_that_another_process_makes_or_uses(entry, held, how):
    child = held(how)
    with removable(entry) as free:
        assert not free
    released(child)
    with removable(entry) as free:
        assert free


def test_users_do_not_wait_for_each_other(entry, held):
    held("in_use")
    with in_use(entry):
        pass


@pytest.mark.parametrize(("first", "second"), [("in_use", being_made), ("being_made", in_use)])
def test_a_maker_and_a_user_wait_for_each_other(entry, held, first, second, monkeypatch):
    child, waited = held(first), []

    def pause(_):
        waited.append(child.poll())
        released(child)

    monkeypatch.setattr("time.sleep", pause)
    with second(entry):
        assert child.returncode == 0
    assert waited == [None]


def test_a_maker_says_once_that_it_waits(entry, held, monkeypatch):
    child, said, rounds = held("in_use"), [], []

    def pause(_):
        rounds.append(1)
        if len(rounds) == 3:
            released(child)

    monkeypatch.setattr("time.sleep", pause)
    with being_made(entry, lambda: said.append("waits")):
        pass
    assert said == ["waits"]


def test_a_lock_that_was_removed_with_its_entry_does_not_count(entry):
    """The maker waits for a file that has no name any more when it gets the lock; another would not see it there."""
    waits, done, free = threading.Event(), threading.Event(), []

    def make():
        with being_made(entry, waits.set):
            free.append(lock_of(entry).exists())
            with removable(entry) as other:
                free.append(other)
        done.set()

    with removable(entry):
        maker = threading.Thread(target=make)
        maker.start()
        assert waits.wait(60)
        entry.rmdir()
    assert done.wait(60)
    assert free == [True, False]


def test_the_lock_goes_with_its_entry(entry):
    with in_use(entry):
        pass
    with removable(entry):
        pass
    assert lock_of(entry).exists()
    with removable(entry):
        entry.rmdir()
    assert list(entry.parent.iterdir()) == []


def old(*paths):
    for path in paths:
        os.utime(path, (0, 0))


@pytest.mark.parametrize("use", [in_use, being_made])
def test_a_use_is_written_down(entry, use):
    with use(entry):
        pass
    old(entry, lock_of(entry))
    assert last_used(entry) == 0
    with use(entry):
        pass
    assert last_used(entry) > HOUR


def test_a_use_without_lock_is_written_down(entry):
    old(entry)
    mark_used(entry)
    assert last_used(entry) > HOUR


def test_nothing_is_written_down_for_an_entry_that_does_not_exist(entry):
    mark_used(entry.with_name("other"))
    assert list(entry.parent.iterdir()) == [entry]
    assert last_used(entry.with_name("other")) == 0


def test_to_ask_whether_an_entry_can_be_removed_is_no_use_of_it(entry):
    old(entry)
    with removable(entry):
        pass
    with removable(entry):
        pass
    assert last_used(entry) == 0


def test_reading_an_entry_is_no_use_of_it(entry):
    (entry / "file").write_text("content")
    old(entry)
    os.utime(entry / "file")
    os.utime(entry, (2 * HOUR, HOUR))
    assert last_used(entry) == HOUR


def test_an_entry_that_was_removed_before_it_was_locked_is_found_again(entry):
    found = []

    def find():
        found.append(1)
        if len(found) == 2:
            entry.mkdir()
        return entry

    entry.rmdir()
    with kept(find, lambda path: path) as path, removable(entry) as free:
        assert (path, free) == (entry, False)
    assert len(found) == 2


def test_an_entry_is_made_if_it_is_not_there_and_kept(entry):
    made = []

    def make():
        made.append(1)
        entry.mkdir()

    entry.rmdir()
    for _ in range(2):
        with ensured(entry, entry.exists, make), removable(entry) as free:
            assert not free
    assert made == [1]


def test_an_entry_that_another_process_has_made_meanwhile_is_not_made_again(entry):
    answers = [False, True, True]
    with ensured(entry, lambda: answers.pop(0), lambda: pytest.fail("made again")):
        pass


@pytest.mark.usefixtures("permissions_for_root")
def test_a_user_who_may_not_write_to_the_cache_can_use_it(entry, held):
    """An entry with a lock file is locked even so; one without is used without a lock."""
    mark_used(entry)
    lock_of(entry).chmod(0o444)
    entry.with_name("other").mkdir()
    entry.parent.chmod(0o555)
    for path in (entry, entry.with_name("other")):
        with in_use(path):
            mark_used(path)
    with in_use(entry):
        handle = os.open(lock_of(entry), os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
    assert sorted(path.name for path in entry.parent.iterdir()) == [".entry.lock", "entry", "other"]
    with pytest.raises(PermissionError), being_made(entry):
        pass

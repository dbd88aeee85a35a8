"""Who makes, uses or removes an entry of the cache holds its lock; all with real processes."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from functools import partial

import pytest

from envpack.support.entry_locks import (
    being_made,
    ensured,
    in_use,
    ingredients_in_use,
    ingredients_removable,
    kept,
    last_used,
    lock_of,
    mark_used,
    removable,
)
from envpack.support.errors import StorageError
from envpack.support.processes import stoppable
from tests.descriptors import open_in

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


def test_what_fails_meanwhile_leaves_no_lock(entry):
    def fail():
        raise ZeroDivisionError

    entry.rmdir()
    with pytest.raises(ZeroDivisionError), ensured(entry, entry.exists, fail):
        pass
    with removable(entry) as free:
        assert free


def test_the_first_entry_of_a_cache_makes_the_folders_above_it(tmp_path):
    with being_made(tmp_path / "new/cache/entry"):
        pass
    assert lock_of(tmp_path / "new/cache/entry").exists()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, None], ids=["interrupted", "stopped"])
def test_waiting_can_be_interrupted_and_leaves_nothing_open(entry, held, monkeypatch, interruption):
    held("being_made")
    before = open_in(entry.parent)

    def pause(_):
        if interruption:
            raise interruption
        programs.stop()

    monkeypatch.setattr("time.sleep", pause)
    with pytest.raises(KeyboardInterrupt), stoppable() as programs, in_use(entry):
        pytest.fail("it is held")
    assert open_in(entry.parent) == before


def test_a_lock_that_goes_with_its_entry_is_closed_by_those_who_waited_for_it(entry, monkeypatch):
    with removable(entry) as free, monkeypatch.context() as patched:
        assert free
        before = open_in(entry.parent)
        patched.setattr("time.sleep", lambda _: lock_of(entry).unlink() or release())
        release = partial(fcntl.flock, next(handles_of(lock_of(entry))), fcntl.LOCK_UN)
        with in_use(entry):
            assert len(open_in(entry.parent)) == len(before) + 1


def handles_of(file):
    return (int(fd) for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == str(file))


def test_an_entry_that_another_process_removes_with_its_lock_is_no_error(entry):
    with removable(entry) as free:
        assert free
        entry.rmdir()
        lock_of(entry).unlink()


@pytest.mark.parametrize("use", [in_use, being_made])
def test_the_umask_decides_who_can_write_to_a_lock(entry, use):
    """A group that shares a cache has 002."""
    umask = os.umask(0o002)
    try:
        with use(entry):
            pass
        mark_used(entry.parent)
    finally:
        os.umask(umask)
    assert [stat.S_IMODE(lock_of(path).stat().st_mode) for path in (entry, entry.parent)] == [0o664, 0o664]


def test_a_file_system_without_locks_is_used_without_them(entry, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    for use in (in_use, being_made):
        with use(entry):
            pass
    with removable(entry) as free:
        assert free


def test_what_environments_are_made_of_has_one_lock(tmp_path):
    (tmp_path / "cache").mkdir()
    with ingredients_in_use(tmp_path / "cache"), ingredients_removable(tmp_path / "cache") as free:
        assert not free
    with ingredients_removable(tmp_path / "cache") as free:
        assert free


def test_a_lock_that_cannot_be_opened_to_write_is_used_and_one_that_cannot_be_made_is_not(entry, monkeypatch):
    """As for a user who may not write to the cache; root may."""
    mark_used(entry)
    real, other = os.open, entry.with_name("other")

    def refused(path, flags, *mode):
        if flags & os.O_CREAT or (flags & os.O_RDWR and os.path.exists(path)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *mode)

    with monkeypatch.context() as patched:
        patched.setattr("os.open", refused)
        with in_use(entry), in_use(other):
            patched.undo()
            with removable(entry) as free:
                assert not free
    with monkeypatch.context() as patched, pytest.raises(PermissionError):
        patched.setattr("os.open", refused)
        with being_made(entry), being_made(other):
            pytest.fail("it cannot be made")


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
    with pytest.raises(PermissionError), being_made(entry.with_name("other")):
        pass


@pytest.mark.usefixtures("permissions_for_root")
def test_the_lock_of_another_user_keeps_an_entry_without_the_right_to_write_to_it(entry, held):
    """Nor is it opened to be created, which fs.protected_regular refuses in a folder of mode 1777."""
    mark_used(entry)
    lock_of(entry).chmod(0o444)
    with being_made(entry), removable(entry) as free:
        assert not free


def test_a_broken_link_in_place_of_a_lock_is_an_error(entry):
    lock_of(entry).symlink_to("nowhere")
    with pytest.raises(FileExistsError), being_made(entry):
        pass


def test_what_never_becomes_complete_is_not_made_for_ever(tmp_path):
    made = []
    with (
        pytest.raises(StorageError, match="is incomplete after five attempts") as raised,
        ensured(tmp_path / "entry", lambda: False, lambda: made.append(1)),
    ):
        pytest.fail("it is not there")
    assert (raised.value.kind, raised.value.where) == ("file-unusable", str(tmp_path / "entry"))
    assert len(made) == 5

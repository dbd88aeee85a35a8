"""An entry of the cache is whole or not there, whatever happens to who makes it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from envpack.stub.recipe import ensure_entry, is_intact
from envpack.support.errors import StorageError
from envpack.support.progress import NoProgress

SLOW = """
import sys, time
from pathlib import Path
from envpack.support.progress import NoProgress
from envpack.stub.recipe import ensure_entry

def make(folder):
    (folder / "half").write_text("of it")
    print("making", flush=True)
    sys.stdin.read()

ensure_entry(Path(sys.argv[1]), make, NoProgress())
"""


class Making:
    """Fills entries, and counts."""

    def __init__(self, content="content"):
        self.content, self.times = content, 0

    def __call__(self, folder):
        self.times += 1
        (folder / "deep").mkdir()
        (folder / "deep/file").write_text(self.content)


@pytest.fixture
def slow(tmp_path):
    """A process in the middle of making the entry `tmp_path / "cache/entry"`; it goes on when its input ends."""
    command = [sys.executable, "-c", SLOW, tmp_path / "cache/entry"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"making\n"
        yield child
        child.kill()


def test_an_entry_is_made_once(tmp_path):
    make = Making()
    assert ensure_entry(tmp_path / "cache/entry", make, NoProgress())
    assert not ensure_entry(tmp_path / "cache/entry", make, NoProgress())
    assert make.times == 1
    assert (tmp_path / "cache/entry/deep/file").read_text() == "content"


def test_an_entry_is_read_only(tmp_path):
    ensure_entry(tmp_path / "entry", Making(), NoProgress())
    files = [path for path in (tmp_path / "entry").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o444}


@pytest.mark.parametrize("damage", ["changed", "missing", "added", "manifest", "empty manifest"])
def test_a_damaged_entry_is_made_again(tmp_path, damage):
    entry, make = tmp_path / "entry", Making()
    ensure_entry(entry, make, NoProgress())
    manifest = entry / "sha256.json"
    match damage:
        case "changed":
            (entry / "deep/file").chmod(0o644)
            (entry / "deep/file").write_text("CONTENT")
        case "missing":
            (entry / "deep/file").unlink()
        case "added":
            (entry / "deep/other").touch()
        case "manifest":
            manifest.chmod(0o644)
            manifest.write_text("{")
        case "empty manifest":
            manifest.chmod(0o644)
            manifest.write_text("{}")
    assert not is_intact(entry)
    assert ensure_entry(entry, make, NoProgress())
    assert make.times == 2
    assert is_intact(entry)
    assert [path.name for path in entry.rglob("*") if path.is_file()] == ["sha256.json", "file"]


def test_who_fails_leaves_nothing_and_the_next_one_succeeds(tmp_path):
    entry = tmp_path / "entry"

    def fail(folder):
        (folder / "half").touch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ensure_entry(entry, fail, NoProgress())
    assert [path.name for path in tmp_path.iterdir()] == [".entry.lock"]
    assert ensure_entry(entry, Making(), NoProgress())


def test_the_second_waits_for_the_first_and_takes_what_that_has_made(tmp_path, slow):
    make, details, waits = Making(), [], threading.Event()

    class Noted(NoProgress):
        def detail(self, text):
            details.append(text)
            waits.set()

    results = []
    entry = tmp_path / "cache/entry"
    second = threading.Thread(target=lambda: results.append(ensure_entry(entry, make, Noted())))
    second.start()
    assert waits.wait(60)
    assert not entry.exists()
    slow.stdin.close()
    second.join(60)
    assert results == [False]
    assert make.times == 0
    assert (entry / "half").read_text() == "of it"
    assert details == ["wait for another process that makes the same entry"]


def test_a_kill_leaves_no_entry_and_its_remains_are_removed(tmp_path, slow):
    entry = tmp_path / "cache/entry"
    os.kill(slow.pid, signal.SIGKILL)
    slow.wait()
    assert not entry.exists()
    assert list(entry.parent.rglob("half"))
    assert ensure_entry(entry, Making(), NoProgress())
    assert sorted(path.name for path in entry.parent.iterdir()) == [".entry.lock", "entry"]


def test_a_read_only_cache_gives_what_it_has_and_says_that_it_takes_nothing(tmp_path, mount):
    cache = tmp_path / "cache"
    mount(cache, "size=1m")
    ensure_entry(cache / "there", Making(), NoProgress())
    subprocess.run(["mount", "-o", "remount,ro", str(cache)], check=True)
    assert not ensure_entry(cache / "there", Making(), NoProgress())
    with pytest.raises(StorageError) as caught:
        ensure_entry(cache / "new", Making(), NoProgress())
    assert caught.value.kind == "not-writable"
    assert caught.value.message == "cannot be read or written: Read-only file system"
    assert caught.value.hint == "mount its file system for writing, or set ENVPACK_CACHE_DIR if it is in the cache"


def test_a_full_disk_is_named_and_leaves_no_entry(tmp_path, mount):
    cache = tmp_path / "cache"
    mount(cache, "size=64k")
    with pytest.raises(StorageError) as caught:
        ensure_entry(cache / "entry", Making("x" * 100_000), NoProgress())
    assert caught.value.kind == "disk-full"
    assert [path.name for path in Path(cache).iterdir()] == [".entry.lock"]


def test_a_cache_whose_programs_cannot_run_is_refused_before_anything_is_made(tmp_path, mount):
    cache, making = tmp_path / "cache", Making()
    mount(cache, "noexec,size=1m")
    with pytest.raises(StorageError) as caught:
        ensure_entry(cache / "stubs/entry", making, NoProgress())
    assert (caught.value.kind, caught.value.where, making.times) == ("noexec", str(cache / "stubs"), 0)
    assert caught.value.hint == "set ENVPACK_CACHE_DIR to a folder on another one, or mount it without noexec"

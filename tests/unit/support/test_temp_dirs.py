"""Temporary folders of killed processes are removed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from envpack.support.replacement import temp_dir

HOLD = """
import time
from envpack.support.replacement import temp_dir
with temp_dir("engine") as folder:
    (folder / "credentials.json").write_text("secret")
    print(folder, flush=True)
    time.sleep(60)
"""
LONG_AGO = time.time() - 3600


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(tmp_path):
    """Another process with a folder that is an hour old."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, text=True) as process:
        folder = Path(process.stdout.readline().strip())
        os.utime(folder, (LONG_AGO, LONG_AGO))
        yield process, folder
        process.kill()


def test_folder_is_private_and_removed_afterwards(temporary):
    with temp_dir("engine") as folder:
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "request.json").touch()
    assert list(temporary.iterdir()) == []


def test_folder_of_a_killed_process_is_removed_by_the_next_process(other):
    process, folder = other
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (folder / "credentials.json").exists()
    with temp_dir("engine"):
        assert not folder.exists()


def test_folder_in_use_stays_at_any_age(other):
    _, folder = other
    with temp_dir("engine"):
        assert (folder / "credentials.json").exists()


def test_new_folder_stays_because_it_may_not_be_locked_yet(temporary):
    folder = Path(tempfile.mkdtemp(prefix="envpack-scratch-engine-"))
    with temp_dir("engine"):
        assert folder.is_dir()


def test_a_link_of_that_name_is_not_followed(temporary):
    precious = temporary / "precious"
    precious.mkdir()
    link = temporary / "envpack-scratch-engine-x"
    link.symlink_to(precious)
    os.utime(link, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    with temp_dir("engine"):
        assert precious.is_dir()


def test_a_pipe_of_that_name_is_not_opened(temporary):
    """Nobody writes to it, so that opening it would never end."""
    pipe = temporary / "envpack-scratch-engine-x"
    os.mkfifo(pipe)
    os.utime(pipe, (LONG_AGO, LONG_AGO))
    with temp_dir("engine"):
        assert pipe.exists()


def aged(temporary, name, seconds):
    folder = temporary / name
    folder.mkdir()
    used = time.time() - seconds
    os.utime(folder, (used, used))
    return folder


def test_only_folders_older_than_a_minute_and_of_this_prefix_are_removed(temporary):
    young, old = aged(temporary, "envpack-scratch-a", 50), aged(temporary, "envpack-scratch-b", 61)
    others = aged(temporary, "envpack-other", 3600)
    with temp_dir("engine") as folder:
        assert folder.name.startswith("envpack-scratch-engine-")
        assert (young.exists(), old.exists(), others.exists()) == (True, False, True)


def test_folders_of_other_users_stay(temporary, monkeypatch):
    folder = aged(temporary, "envpack-scratch-a", 3600)
    monkeypatch.setattr("os.getuid", lambda: folder.stat().st_uid + 1)
    with temp_dir("engine"):
        assert folder.exists()


def test_no_file_stays_open(temporary, other):
    (temporary / "envpack-scratch-x").mkdir()
    os.utime(temporary / "envpack-scratch-x", (LONG_AGO, LONG_AGO))
    before = sorted(os.listdir("/proc/self/fd"))
    with temp_dir("engine"):
        assert len(os.listdir("/proc/self/fd")) == len(before) + 1  # the lock
    assert sorted(os.listdir("/proc/self/fd")) == before

"""Temporary folders of killed processes are removed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from envpack.support import replacement
from envpack.support.temp_dirs import temp_dir

HOLD = """
import time
from envpack.support.temp_dirs import temp_dir
with temp_dir("engine") as folder:
    (folder / "credentials.json").write_text("secret")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(tmp_path):
    """Another process with a folder."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, text=True) as process:
        folder = Path(process.stdout.readline().strip())
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


def test_folder_in_use_stays(other):
    _, folder = other
    with temp_dir("engine"):
        assert (folder / "credentials.json").exists()


def test_a_folder_has_its_name_only_while_it_is_locked(temporary, monkeypatch):
    """Another process would remove it in between."""
    seen = []
    monkeypatch.setattr(replacement, "try_lock", lambda handle: seen.extend(temporary.glob("envpack-*")) or True)
    with temp_dir("engine") as folder:
        assert folder.is_dir()
    assert seen == []


def test_read_only_folders_are_removed(temporary):
    with temp_dir("engine") as folder:
        (folder / "a/b").mkdir(parents=True)
        (folder / "a").chmod(0o500)
    assert list(temporary.iterdir()) == []


def test_a_link_of_that_name_is_not_followed(temporary):
    precious = temporary / "precious"
    precious.mkdir()
    link = temporary / "envpack-scratch-engine-x"
    link.symlink_to(precious)
    with temp_dir("engine"):
        assert precious.is_dir()


def test_a_pipe_of_that_name_is_not_opened(temporary):
    """Nobody writes to it, so that opening it would never end."""
    pipe = temporary / "envpack-scratch-engine-x"
    os.mkfifo(pipe)
    with temp_dir("engine"):
        assert pipe.exists()


def made(temporary, name):
    folder = temporary / name
    folder.mkdir()
    return folder


def test_only_folders_of_this_prefix_are_removed(temporary):
    stale, other = made(temporary, "envpack-scratch-a"), made(temporary, "envpack-other")
    with temp_dir("engine") as folder:
        assert folder.name.startswith("envpack-scratch-engine-")
        assert (stale.exists(), other.exists()) == (False, True)


def test_folders_of_other_users_stay(temporary, monkeypatch):
    folder = made(temporary, "envpack-scratch-a")
    monkeypatch.setattr("os.getuid", lambda: folder.stat().st_uid + 1)
    with temp_dir("engine"):
        assert folder.exists()


def test_no_file_stays_open(temporary, other):
    (temporary / "envpack-scratch-x").mkdir()
    before = sorted(os.listdir("/proc/self/fd"))
    with temp_dir("engine"):
        assert len(os.listdir("/proc/self/fd")) == len(before) + 1  # the lock
    assert sorted(os.listdir("/proc/self/fd")) == before

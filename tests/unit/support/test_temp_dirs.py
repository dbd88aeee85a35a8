"""Temporary folders of killed processes are removed, also those in a folder that is filled."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from envpack.support import replacement, temp_dirs
from envpack.support.errors import InputError
from envpack.support.temp_dirs import check_fillable, filled_folder, partial_folder, remove_partial_folders, temp_dir
from tests.descriptors import open_in

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


def test_folder_of_a_process_that_was_killed_while_it_removed_it_is_removed_too(temporary):
    program = HOLD.replace("time.sleep(60)", "os.unlink = lambda *_, **__: os.kill(os.getpid(), 9)")
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.run([sys.executable, "-c", f"import os{program}"], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [*temporary.rglob("credentials.json")]
    with temp_dir("engine") as folder:
        assert [*temporary.iterdir()] == [folder]


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


def test_a_folder_that_cannot_be_locked_stays_when_locks_work_again(temporary, monkeypatch):

    def removed_by_another(_):
        shutil.rmtree(temporary / "envpack-scratch-a", ignore_errors=True)
        return True

    monkeypatch.setattr(temp_dirs, "try_lock", removed_by_another)
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


def test_a_folder_that_another_process_removes_meanwhile_leaves_nothing(temporary, monkeypatch):
    made(temporary, "envpack-scratch-a")
    locks = iter([(temporary / "envpack-scratch-a").rmdir])
    monkeypatch.setattr(temp_dirs, "try_lock", lambda _: next(locks, bool)() is None or True)
    with temp_dir("engine") as folder:
        assert list(temporary.iterdir()) == [folder]


@pytest.mark.parametrize("moment", ["open", "flock"])
def test_a_folder_that_another_process_removes_before_it_is_locked_is_made_again(tmp_path, moment, monkeypatch):
    """It may be taken for that of a killed process until then."""
    module = {"open": os, "flock": fcntl}[moment]
    step, removed = getattr(module, moment), []

    def after_removal(*arguments):
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].rmdir()
        return step(*arguments)

    monkeypatch.setattr(module, moment, after_removal)
    with partial_folder(tmp_path) as folder:
        monkeypatch.undo()
        assert list(tmp_path.iterdir()) == [folder]
        remove_partial_folders(tmp_path)
        assert folder not in removed
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_no_file_stays_open(temporary, other):
    (temporary / "envpack-scratch-x").mkdir()
    with temp_dir("engine") as folder:
        assert open_in(temporary) == [str(folder)]  # the lock
    assert open_in(temporary) == []


@pytest.mark.parametrize("place", ["absent", "empty", "link"])
def test_a_folder_is_filled_and_one_that_exists_stays(tmp_path, place):
    """It may be a mount point, or the working folder of a shell; and a link is the user's."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    destination = tmp_path / place
    before = destination.stat().st_ino if destination.exists() else None
    check_fillable(destination)
    with filled_folder(destination) as folder:
        (folder / "1").mkdir()
        (folder / "1/model.py").write_text("code")
    assert [path.name for path in destination.iterdir()] == ["1"]
    assert (destination / "1/model.py").read_text() == "code"
    assert (tmp_path / "link").is_symlink()
    if before:
        assert destination.stat().st_ino == before


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path):
    (tmp_path / ".envpack.abcdefgh.partial/1").mkdir(parents=True)
    check_fillable(tmp_path)
    with partial_folder(tmp_path) as of_another:
        check_fillable(tmp_path)
        with filled_folder(tmp_path) as folder:
            (folder / "file").touch()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([of_another.name, "file"])


def test_a_folder_stays_empty_if_its_content_cannot_be_written(tmp_path):
    with pytest.raises(ValueError, match="no"), filled_folder(tmp_path) as folder:
        (folder / "file").write_text("half")
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "message"),
    [("full", "this folder is not empty"), ("file", "this exists, and is no folder"), ("dangling", "this exists, and")],
)
def test_only_an_empty_place_is_filled(tmp_path, place, message):
    (tmp_path / "full/content").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(InputError, match=message) as raised:
        check_fillable(tmp_path / place)
    assert (raised.value.kind, raised.value.where) == ("not-empty", str(tmp_path / place))

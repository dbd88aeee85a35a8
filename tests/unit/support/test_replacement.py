"""Files and folders change in one step, or not at all."""

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from envpack.support.replacement import (
    link_or_copy,
    remove_folder,
    remove_leftovers,
    replace_link,
    replaced_file,
    replaced_folder,
    temporaries_of,
    write_text,
)
from tests.tables import every_row


def test_a_file_is_replaced_with_the_mode_asked_for(tmp_path):
    file = tmp_path / "config.pbtxt"
    file.write_text("old")
    write_text(file, "new", mode=0o600)
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def flushed(monkeypatch):
    """Files that were flushed to the disk, with the content and the neighbours that they had then."""
    found = []

    def fsync(handle):
        file = Path(os.readlink(f"/proc/self/fd/{handle}"))
        found.append((file.read_text(), {other.name: other.read_text() for other in file.parent.glob("[!.]*")}))

    monkeypatch.setattr("os.fsync", fsync)
    return found


def test_the_whole_content_is_on_the_disk_before_the_old_file_is_replaced(tmp_path, flushed):
    (tmp_path / "config.pbtxt").write_text("old")
    write_text(tmp_path / "config.pbtxt", "new")
    assert flushed == [("new", {"config.pbtxt": "old"})]


def test_a_file_that_shows_whether_it_is_complete_need_not_be_flushed(tmp_path, flushed):
    with replaced_file(tmp_path / "index", durable=False) as partial:
        partial.write_text("new")
    assert (flushed, (tmp_path / "index").read_text()) == ([], "new")


def test_content_that_does_not_reach_the_disk_keeps_the_old_file(tmp_path, monkeypatch):
    def fsync(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "config.pbtxt").write_text("old")
    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(tmp_path / "config.pbtxt", "new")
    assert caught.value.filename == str(tmp_path / "config.pbtxt")
    assert (tmp_path / "config.pbtxt").read_text() == "old"
    assert os.listdir(tmp_path) == ["config.pbtxt"]


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    file = tmp_path / "env.tar.gz"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt), replaced_file(file) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["env.tar.gz"]


def test_a_failure_after_the_temporary_file_is_gone_is_the_error(tmp_path):
    with pytest.raises(KeyError), replaced_file(tmp_path / "file") as partial:
        partial.unlink()
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_a_folder_is_exchanged_for_a_new_one(tmp_path):
    folder = tmp_path / "python3.10"
    folder.mkdir()
    (folder / "old").touch()
    with replaced_folder(folder) as partial:
        (partial / "new").touch()
        assert os.listdir(folder) == ["old"]
        assert (partial.name[:12], partial.suffix) == (".python3.10.", ".partial")  # known to who removes leftovers
    assert os.listdir(folder) == ["new"]
    assert folder.stat().st_mode & 0o777 == 0o755
    assert os.listdir(tmp_path) == ["python3.10"]


def test_a_failure_keeps_the_old_folder(tmp_path):
    folder = tmp_path / "python3.10"
    folder.mkdir()
    (folder / "old").touch()
    with pytest.raises(OSError, match="full"), replaced_folder(folder) as partial:
        (partial / "new").touch()
        raise OSError("disk is full")
    assert os.listdir(folder) == ["old"]
    assert os.listdir(tmp_path) == ["python3.10"]


@every_row("replaced", [replaced_file, replaced_folder])
def test_an_error_names_the_destination_and_no_temporary_file(replaced):
    place = Path("/proc/sys/place")  # where not even root may write
    with pytest.raises(OSError, match="No such file|not permitted|denied") as caught, replaced(place):
        pass
    assert caught.value.filename == str(place)


def test_an_error_of_what_is_written_names_the_place_that_it_would_have(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, replaced_folder(tmp_path / "place") as partial:
        (partial / "absent/file").touch()
    assert caught.value.filename == str(tmp_path / "place/absent/file")
    with pytest.raises(FileNotFoundError) as caught, replaced_folder(tmp_path / "place"):
        (tmp_path / "absent/file").touch()
    assert caught.value.filename == str(tmp_path / "absent/file")
    with pytest.raises(FileNotFoundError) as caught, replaced_folder(tmp_path / "place") as partial:
        os.link("/bin/true", partial / "absent/file")
    assert (caught.value.filename, caught.value.filename2) == ("/bin/true", str(tmp_path / "place/absent/file"))


def test_a_link_or_a_copy_replaces_the_target(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("new")
    for _ in range(2):
        link_or_copy(str(source), str(target))
        assert target.samefile(source)

    def refuse(*_):
        raise OSError(refuse.code, "refused")

    monkeypatch.setattr("os.link", refuse)
    for code in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
        refuse.code = code
        link_or_copy(str(source), str(target))
        assert (target.read_text(), target.samefile(source)) == ("new", False)
    refuse.code = errno.ENOSPC
    with pytest.raises(OSError, match="refused"):
        link_or_copy(str(source), str(target))


def test_a_copy_of_a_link_is_a_link(tmp_path, monkeypatch):
    (tmp_path / "source").symlink_to("nowhere")
    monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError(errno.EXDEV, "")))
    link_or_copy(str(tmp_path / "source"), str(tmp_path / "target"))
    assert os.readlink(tmp_path / "target") == "nowhere"


def test_a_link_is_replaced_in_one_step(tmp_path):
    for target in ("one", "two"):
        replace_link(tmp_path / "link", target)
        assert os.readlink(tmp_path / "link") == target
        assert os.listdir(tmp_path) == ["link"]


def test_a_folder_that_cannot_be_exchanged_is_an_error(tmp_path):
    """A folder becomes no file: renameat2 exchanges both only on one file system that exists."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="No such file") as caught, replaced_folder(tmp_path / "folder") as partial:
        partial.rename(tmp_path / "moved")
    assert caught.value.filename == str(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "moved"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [os.mkfifo, Path.touch, os.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_a_folder_takes_the_place_of_whatever_is_no_entry(tmp_path, make):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/precious").touch()
    make(tmp_path / "entry")
    with replaced_folder(tmp_path / "entry") as partial:
        (partial / "file").touch()
    assert [path.name for path in (tmp_path / "entry").iterdir()] == ["file"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "entry"]
    assert (tmp_path / "elsewhere/precious").exists()


def test_kill_9_in_the_middle_keeps_the_old_file(tmp_path):
    file = tmp_path / "env.tar.gz"
    file.write_text("old")
    code = (
        "import pathlib, sys, time\n"
        "from envpack.support.replacement import replaced_file\n"
        "with replaced_file(pathlib.Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half'); print('writing', flush=True); time.sleep(60)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, file], stdout=subprocess.PIPE, text=True)
    with writer:
        assert writer.stdout.readline() == "writing\n"
        writer.send_signal(signal.SIGKILL)
    assert file.read_text() == "old"


def test_what_a_killed_writer_has_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    file = tmp_path / "stub"
    (tmp_path / ".stub.killed00.partial").write_text("half")
    (tmp_path / ".stub2.killed00.partial").write_text("of another file")
    with replaced_file(file) as first:
        assert not (tmp_path / ".stub.killed00.partial").exists()
        first.write_text("first")
        write_text(file, "second")
        assert first.read_text() == "first"
    assert file.read_text() == "first"
    assert sorted(os.listdir(tmp_path)) == [".stub2.killed00.partial", "stub"]


def test_of_folders_too_what_is_left_is_removed_but_for_the_only_one(tmp_path):
    folder = tmp_path / "model"
    for left in (".model.killed00.partial/1", ".model.replaced.partial/1", ".model2.killed00.partial"):
        (tmp_path / left).mkdir(parents=True)
    with replaced_folder(folder) as first:
        with replaced_folder(folder) as second:
            (second / "second").touch()
        replace_link(tmp_path / "link", "model")
        assert first.is_dir()
        (first / "first").touch()
    assert sorted(os.listdir(tmp_path)) == [".model.replaced.partial", ".model2.killed00.partial", "link", "model"]
    assert os.listdir(folder) == ["first"]


def test_a_rewritten_text_keeps_owner_mode_and_attributes(tmp_path):
    file = tmp_path / "config.pbtxt"
    file.write_text("old")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 2345)
    attributes = {}
    with contextlib.suppress(OSError):  # not every file system has them
        os.setxattr(file, "user.origin", b"https://models.example")
        attributes = {"user.origin": b"https://models.example"}
    before = file.stat()
    write_text(file, "new")
    after = file.stat()
    assert (file.read_text(), after.st_mode, after.st_uid, after.st_gid) == (
        "new", before.st_mode, before.st_uid, before.st_gid,
    )  # fmt: skip
    assert {name: os.getxattr(file, name) for name in attributes} == attributes


def test_who_may_not_give_a_file_to_its_owner_gives_it_to_its_group(tmp_path, monkeypatch):
    """Else its group, which may be all that lets the owner read it, has no access any more."""

    def chown(path, owner, group):
        if owner != -1:
            raise PermissionError
        given.append(group)

    given, file = [], tmp_path / "config.pbtxt"
    file.write_text("old")
    monkeypatch.setattr("os.chown", chown)
    write_text(file, "new")
    assert given == [file.stat().st_gid]


def test_writers_at_the_same_time_do_not_take_each_others_temporary_file(tmp_path):
    """Each begins by removing what killed processes left."""
    failures = []

    def write(number):
        try:
            for _ in range(25):
                write_text(tmp_path / "file", str(number))
                replace_link(tmp_path / "link", str(number))
        except OSError as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_temporaries_of_a_longer_name_belong_to_another_file(tmp_path):
    """``python3.10`` and ``python3.10.tar.gz`` lie beside each other."""
    with replaced_file(tmp_path / "python3.10.tar.gz") as other, replaced_file(tmp_path / "python3.10") as own:
        assert list(temporaries_of(tmp_path / "python3.10")) == [own]
        assert list(temporaries_of(tmp_path / "python3.10.tar.gz")) == [other]
    assert list(temporaries_of(tmp_path / "missing/python3.10")) == []


@pytest.fixture
def without_exchange(monkeypatch):
    """A file system that cannot exchange two folders in one step, such as NFS."""

    class Libc:
        def renameat2(self, *_):
            ctypes.set_errno(errno.EINVAL)
            return -1

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Libc())


def test_a_folder_is_replaced_where_folders_cannot_be_exchanged(tmp_path, without_exchange):
    folder = tmp_path / "python3.10"
    folder.mkdir()
    (folder / "old").touch()
    with replaced_folder(folder) as partial:
        (partial / "new").touch()
    assert os.listdir(folder) == ["new"]
    assert os.listdir(tmp_path) == ["python3.10"]


def test_a_kill_between_the_two_steps_leaves_the_old_folder_to_be_restored(tmp_path, without_exchange, monkeypatch):
    folder = tmp_path / "python3.10"
    folder.mkdir()
    (folder / "old").touch()
    rename = Path.rename

    def killed(path, target):
        if target == folder and path.name != ".python3.10.replaced.partial":
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt), replaced_folder(folder):
            pass
    remove_leftovers(folder)
    assert os.listdir(folder) == ["old"]
    assert os.listdir(tmp_path) == ["python3.10"]
    (tmp_path / ".python3.10.replaced.partial").mkdir()  # killed after both
    remove_leftovers(folder)
    assert os.listdir(tmp_path) == ["python3.10"]


@pytest.mark.parametrize("replaced", [replaced_file, replaced_folder])
def test_what_a_process_with_another_cache_writes_is_no_leftover(tmp_path, replaced):
    """Two machines that share a folder have no lock in common."""
    with replaced(tmp_path / "place") as temporary:
        remove_leftovers(tmp_path / "place")
        assert temporary.exists()
    assert os.listdir(tmp_path) == ["place"]


def test_what_of_a_folder_cannot_be_removed_has_another_name(tmp_path, monkeypatch):
    def rmdir(*_, **options):
        raise PermissionError

    (tmp_path / "folder/inner").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr("os.rmdir", rmdir)
        remove_folder(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_folder_is_removed_whole_or_not_at_all(tmp_path, monkeypatch):
    """One that is half removed has lost what says whose it is."""
    folder = tmp_path / "python3.10"
    folder.mkdir()
    (folder / "envpack-environment.json").touch()

    def killed(path, **_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_folder(folder)
    (left,) = tmp_path.iterdir()
    assert list(temporaries_of(folder)) == [left]
    assert os.listdir(left) == ["envpack-environment.json"]
    folder.mkdir()
    remove_folder(folder)
    assert not folder.exists()

"""What the system says of files and disks, in the words of an error."""

import errno
import os
import resource
import shutil
from pathlib import Path

import pytest

from envpack.support.errors import StorageError, refused_by_system, storage_errors, system_error
from envpack.support.processes import run
from tests.tables import every_row


@every_row(
    ("number", "where", "kind", "message", "hint"),
    [
        (
            errno.ENOSPC,
            "/srv/x",
            "disk-full",
            "the disk, or your quota of it, is full; no file is half-written",
            "free some space, or inodes if df -i shows none; ENVPACK_CACHE_DIR moves the cache, TMPDIR temporary files",
        ),
        (
            errno.EDQUOT,
            None,
            "disk-full",
            "a disk, or your quota of it, is full",
            "free some space on the disks of the repository, the cache",
        ),
        (errno.EACCES, "/srv/x", "not-writable", "cannot be read or written: Permission", "change its permissions, or"),
        (errno.EROFS, "/srv/x", "not-writable", "cannot be read or written: Read-only", "mount its file system for"),
        (errno.EPERM, "/srv/x", "not-writable", "cannot be read or written: Operation not", "let this user own and"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_what_helps(number, where, kind, message, hint):
    error = system_error(OSError(number, os.strerror(number), where))
    assert (error.kind, error.where) == (kind, where or "")
    assert error.message.startswith(message)
    assert error.hint.startswith(hint)


@every_row(("number", "what"), [(errno.EIO, "Input/output error"), (errno.EPERM, "Operation not permitted")])
def test_a_link_that_a_file_system_cannot_have_is_named_by_its_place(number, what):
    """The system names what the link says first, which is no path."""
    error = OSError(number, os.strerror(number), "python3.10", None, "/mount/cache/bin/python3")
    found = system_error(error)
    assert (found.kind, found.where) == ("file-unusable", "/mount/cache/bin/python3")
    assert found.message == f"no symbolic link can be made here: {what}"
    assert found.hint.startswith("use a file system that has them, or --format tar.gz")
    with pytest.raises(StorageError, match="no symbolic link"), storage_errors(Path("/mount")):
        raise OSError(errno.EPERM, "Operation not permitted", "python3.10", None, "/mount/cache/bin/python3")


def test_a_program_lacks_room_where_there_is_less_of_it(tmp_path, mount, monkeypatch):
    small = tmp_path / "small"
    mount(small, "size=64k")
    monkeypatch.setenv("TMPDIR", str(small))
    full = "tar: write error: No space left on device"
    assert refused_by_system(full, tmp_path / "cache/entry").where == str(small)
    assert refused_by_system(full, small).where == str(small)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert refused_by_system(full, small / "entry").where == str(small / "entry")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    assert refused_by_system(full, tmp_path).where == str(tmp_path)


@pytest.fixture
def small_files():
    """No file may have more than 1,000 bytes; Python ignores the signal of this limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_be_so_large_names_the_limit(tmp_path, small_files):
    with pytest.raises(OSError, match="File too large") as raised, (tmp_path / "file").open("wb", 0) as file:
        file.write(bytes(1000))
        file.write(bytes(1))
    error = system_error(raised.value)
    assert (error.kind, error.message) == ("file-unusable", "a file cannot be read or written: File too large")
    assert "ulimit -f" in error.hint


def test_a_file_that_cannot_be_copied_is_named_by_its_copy(tmp_path, small_files):
    with pytest.raises(OSError, match="File too large") as raised:
        shutil.copyfile("/bin/true", tmp_path / "copy")
    error = system_error(raised.value)
    assert (error.kind, error.where) == ("file-unusable", str(tmp_path / "copy"))
    assert "ulimit -f" in error.hint


@every_row(
    "said",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        BaseException("OS can't spawn worker thread: Resource temporarily unavailable (os error 11)"),  # obstore's
        BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), "tritonserver"),  # a program that is not started
        ValueError("Unable to compress Zstandard data: Allocation error : not enough memory"),
    ],
)
def test_a_limit_that_a_library_reports_is_no_bug(said):
    assert system_error(said).kind == "system-limit"
    assert system_error(ValueError("a number is needed")) is None


@every_row(
    ("script", "reason"),
    [
        ("kill -KILL $$", "a program ended by SIGKILL"),
        (
            "echo 'c++: fatal error: Killed signal terminated program cc1plus'; exit 1",
            "Killed signal terminated program",
        ),
        ("echo 'memory allocation of 4096 bytes failed' >&2; kill -ABRT $$", "memory allocation of 4096 bytes failed"),
    ],
)
def test_a_program_that_reached_a_limit_is_told_from_one_that_failed(tmp_path, script, reason):
    error = run(["/bin/sh", "-c", script], env={}).refused_by_system(tmp_path)
    assert (error.kind, error.message.rpartition(": ")[2]) == ("system-limit", reason)
    assert run(["/bin/sh", "-c", "kill -TERM $$"], env={}).refused_by_system(tmp_path) is None

"""Output goes where a user names it: to a file, a link, a device, a pipe or standard output."""

import errno
import os
import subprocess
import sys
import threading

import pytest

from envpack.support import replacement
from envpack.support.errors import InputError
from envpack.support.replacement import check_output, write_output


def test_a_regular_file_is_replaced(tmp_path):
    for text in ("one", "two"):
        write_output(tmp_path / "page.html", text.encode())
        assert (tmp_path / "page.html").read_text() == text
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    (tmp_path / "link").symlink_to("none/page.html")
    os.mkfifo(tmp_path / "closed/pipe")
    monkeypatch.setattr(replacement.os, "access", lambda *asked: asked != (str(tmp_path / "closed"), os.W_OK))
    for file in (tmp_path / "page.html", tmp_path / "closed/pipe", tmp_path.joinpath("/dev/null")):
        check_output(file)
    for file, folder, message in (
        (tmp_path / "none/page.html", "none", "this folder does not exist, or this user may not enter it"),
        (tmp_path / "link", "none", "this folder does not exist, or this user may not enter it"),
        (tmp_path / "closed", "closed", "this is a folder"),
        (tmp_path / "closed/page.html", "closed", "no file can be made in this folder"),
    ):
        with pytest.raises(InputError) as raised:
            check_output(file)
        error = raised.value
        assert (error.kind, error.where, error.message) == ("output-missing", str(tmp_path / folder), message)


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "real").mkdir()
    for there in (False, True):
        if there:
            (tmp_path / "real/page.html").write_text("old")
        (tmp_path / f"link{there}").symlink_to("real/page.html")
        write_output(tmp_path / f"link{there}", b"new")
        assert (tmp_path / "real/page.html").read_text() == "new"
        assert (tmp_path / f"link{there}").is_symlink()
        (tmp_path / "real/page.html").unlink()


def test_devices_are_written_to_and_stay(tmp_path):
    before = os.stat("/dev/null")
    write_output(tmp_path.joinpath("/dev/null"), b"nothing")
    assert os.stat("/dev/null").st_ino == before.st_ino
    with pytest.raises(OSError, match="No space") as caught:
        write_output(tmp_path.joinpath("/dev/full"), b"much")
    assert caught.value.errno == errno.ENOSPC


def test_a_device_node_of_the_users_own_is_not_replaced(tmp_path):
    node = tmp_path / "full"
    try:
        os.mknod(node, 0o666 | 0o020000, os.makedev(1, 7))
        os.close(os.open(node, os.O_WRONLY))
    except PermissionError:
        pytest.skip("only root makes device nodes")
    with pytest.raises(OSError, match="No space"):
        write_output(node, b"text")
    assert node.is_char_device()


def test_a_pipe_is_written_to_if_somebody_reads_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        write_output(tmp_path / "pipe", b"nobody reads")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    text, read = b"x" * 300_000, []  # more than a pipe holds
    os.set_blocking(reader, True)

    def drain():
        while piece := os.read(reader, 1 << 16):
            read.append(piece)

    writer = threading.Thread(target=write_output, args=(tmp_path / "pipe", text))
    writer.start()
    while not read:  # an empty read before the writer has opened the pipe is no end
        drain()
    writer.join()
    drain()
    assert b"".join(read) == text


@pytest.mark.parametrize("target", ["file", "pipe"])
def test_standard_output_stays_what_it_is(tmp_path, target):
    program = (
        "import pathlib; from envpack.support.replacement import write_output\n"
        "print('before'); write_output(pathlib.Path('/dev/stdout'), b'page\\n'); print('after')"
    )
    if target == "pipe":
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)
        assert done.stdout == "before\npage\nafter\n"
        return
    with open(tmp_path / "out", "a") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\npage\nafter\n"


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError):
        write_output(tmp_path, b"text")

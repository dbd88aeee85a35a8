"""Files and folders change in one step, or not at all."""

import os
import signal
import subprocess
import sys
import time

import pytest

from envpack.support.replacement import replaced_file, replaced_folder, write_text


def test_a_file_is_replaced_with_the_mode_asked_for(tmp_path):
    file = tmp_path / "config.pbtxt"
    file.write_text("old")
    write_text(file, "new", mode=0o600)
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    file = tmp_path / "env.tar.gz"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt), replaced_file(file) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["env.tar.gz"]


def test_a_folder_is_exchanged_for_a_new_one(tmp_path):
    folder = tmp_path / "python3.10"
    folder.mkdir()
    (folder / "old").touch()
    with replaced_folder(folder) as partial:
        (partial / "new").touch()
        assert os.listdir(folder) == ["old"]
    assert os.listdir(folder) == ["new"]
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
        time.sleep(0.05)
        writer.send_signal(signal.SIGKILL)
    assert file.read_text() == "old"


def test_what_a_killed_writer_has_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    file = tmp_path / "stub"
    (tmp_path / ".stub.killed.partial").write_text("half")
    (tmp_path / ".stub.folder.partial").mkdir()
    (tmp_path / ".stub2.killed.partial").write_text("of another file")
    with replaced_file(file) as first:
        assert not (tmp_path / ".stub.killed.partial").exists()
        first.write_text("first")
        write_text(file, "second")
        assert first.read_text() == "first"
    assert file.read_text() == "first"
    assert sorted(os.listdir(tmp_path)) == [".stub.folder.partial", ".stub2.killed.partial", "stub"]

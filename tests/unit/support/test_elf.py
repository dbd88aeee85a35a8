"""Removing debug information, from files that others share."""

import os
import shutil
import subprocess

import pytest

from envpack.support.elf import strip_environment
from envpack.support.errors import EnvironmentBuildError

COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.fixture
def program(tmp_path):
    """A program with debug information, which an installer's cache has too."""
    if not COMPILER or not shutil.which("strip"):
        pytest.skip("no C compiler, or no binutils")
    source = tmp_path / "program.c"
    source.write_text("int unused_name(void) { return 1; }\nint main(void) { return 42; }\n")
    (tmp_path / "cache").mkdir()
    subprocess.run([COMPILER, "-g", "-o", tmp_path / "cache/program", source], check=True)
    (tmp_path / "env/bin").mkdir(parents=True)
    os.link(tmp_path / "cache/program", tmp_path / "env/bin/program")
    (tmp_path / "env/bin/script").write_text("#!/bin/sh\n")
    return tmp_path / "env/bin/program"


def test_programs_get_smaller_and_still_run_and_the_cache_keeps_its_file(program, tmp_path):
    before = (tmp_path / "cache/program").read_bytes()
    assert strip_environment(tmp_path / "env") == {program}
    assert program.stat().st_size < len(before)
    assert subprocess.run([program], check=False).returncode == 42
    assert (tmp_path / "cache/program").read_bytes() == before


def test_what_is_stripped_already_is_left_alone(program, tmp_path):
    strip_environment(tmp_path / "env")
    before = program.read_bytes()
    assert strip_environment(tmp_path / "env") == set()
    assert program.read_bytes() == before


def test_without_binutils_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentBuildError) as caught:
        strip_environment(tmp_path)
    assert caught.value.kind == "strip-missing"

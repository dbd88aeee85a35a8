"""A file that is no stub of ours is refused with the reason, never run."""

import shutil

import pytest

from envpack.stub import inspect_stub
from envpack.support.errors import StubError


def _refusal(path):
    with pytest.raises(StubError) as caught:
        inspect_stub(path)
    assert caught.value.kind == "not-a-stub"
    assert caught.value.where == str(path)
    return caught.value.message


def test_a_missing_file(tmp_path):
    assert "no such file" in _refusal(tmp_path / "triton_python_backend_stub")


def test_a_script(tmp_path):
    file = tmp_path / "stub"
    file.write_text("#!/bin/sh\necho never run\n")
    assert "not a readable ELF file" in _refusal(file)


def test_a_program_of_somebody_else(tmp_path):
    file = tmp_path / "stub"
    shutil.copy("/bin/true", file)
    assert "not compiled by envpack" in _refusal(file)


def test_a_truncated_program(tmp_path):
    whole = shutil.which("true")
    file = tmp_path / "stub"
    with open(whole, "rb") as program:
        file.write_bytes(program.read(200))
    assert _refusal(file)

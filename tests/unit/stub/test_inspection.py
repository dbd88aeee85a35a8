"""A file that is no stub of ours is refused with the reason, never run."""

import shutil

import pytest

from envpack.stub import inspection
from envpack.stub.inspection import inspect_stub
from envpack.support.errors import StubError
from tests.unit.stub.elf_files import write_stub


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


def test_a_file_larger_than_any_stub_is_not_read(tmp_path):
    file = tmp_path / "stub"
    with file.open("wb") as content:
        content.truncate(20 << 30)
    assert "larger than" in _refusal(file)


def test_the_copies_of_a_stub_are_parsed_once(tmp_path, monkeypatch):
    """Each model has one, and a build looks at it several times."""
    parsed, read = [], inspection._read
    monkeypatch.setattr(inspection, "_read", lambda file, path: parsed.append(path) or read(file, path))
    monkeypatch.setattr(inspection, "_known", {})
    monkeypatch.setattr(inspection, "_MOST_KNOWN", 1)
    first, other = write_stub(tmp_path / "a/stub"), write_stub(tmp_path / "b/stub", "3.11")
    copy = shutil.copy(first, tmp_path / "copy")
    assert [inspect_stub(file).python for file in (first, copy, first, other, other)] == ["3.10"] * 3 + ["3.11"] * 2
    assert parsed == [first, other]
    write_stub(copy, "3.12")
    assert inspect_stub(copy).python == "3.12"
    assert len(inspection._known) == 1

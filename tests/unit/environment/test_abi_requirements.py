import shutil
import sys
from pathlib import Path

import pytest

from envpack.environment.abi_requirements import environment_needs
from envpack.environment.inventory import Owners, take_inventory
from envpack.support.elf import required_abi

LIBRARY = Path(sys.executable).resolve()  # a program; that makes no difference


@pytest.fixture
def prefix(tmp_path):
    (tmp_path / "env/lib").mkdir(parents=True)
    shutil.copy(LIBRARY, tmp_path / "env/lib/first.so")
    (tmp_path / "env/lib/link.so").symlink_to("first.so")
    (tmp_path / "env/lib/text.so").write_text("no library")
    return tmp_path / "env"


def needs_of(prefix):
    entries = take_inventory(prefix, Owners({"lib/first.so": "x"}, (), {}))
    return environment_needs(prefix, entries, prefix.parent / "needs")


def test_what_the_newest_needs_and_who_needs_it(prefix):
    needs = needs_of(prefix)
    assert needs.glibc.version == required_abi([LIBRARY]).glibc.version != ""
    assert needs.glibc.file == prefix / "lib/first.so"


def test_no_file_is_asked_again(prefix, monkeypatch):
    requirements = needs_of(prefix)
    monkeypatch.setattr("envpack.environment.abi_requirements.is_elf", lambda file: pytest.fail(f"opens {file}"))
    assert needs_of(prefix) == requirements


def test_other_content_is_asked(prefix):
    needs_of(prefix)
    (prefix / "lib/first.so").write_text("no library either")
    assert needs_of(prefix).glibc.version == ""


@pytest.mark.parametrize("damage", ["", "{", "[]", "[1, 2]", "null"])
def test_a_damaged_answer_is_asked_for_again(prefix, damage):
    requirements = needs_of(prefix)
    for kept in (prefix.parent / "needs").iterdir():
        kept.write_text(damage)
    assert needs_of(prefix) == requirements

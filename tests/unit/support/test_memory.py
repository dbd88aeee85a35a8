"""What is kept in the cache is what was written there, or nothing."""

import pytest

from envpack.support import memory as module
from envpack.support.memory import remember, remembered
from tests.tables import every_row

FOUND = {"a file": [4, "0" * 64], "byte \udcff": []}


@pytest.fixture
def memory(tmp_path):
    return tmp_path / "folder/memory.json"


def test_what_was_written_is_remembered(memory):
    assert remembered(memory) == {}
    remember(memory, FOUND)
    assert remembered(memory) == FOUND


@every_row("damage", [("0", "1"), ("}", ""), ("\n", ""), ("4", "5"), ("a", "\xff"), ("", "x")])
def test_a_damaged_memory_is_empty(memory, damage):
    remember(memory, FOUND)
    memory.write_bytes(memory.read_text().replace(*damage, 1).encode("latin-1"))
    assert remembered(memory) == {}


def test_a_cache_that_cannot_be_written_to_keeps_what_it_has(memory, monkeypatch):
    remember(memory, FOUND)

    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr(module, "replaced_file", refuse)
    remember(memory, {})
    assert remembered(memory) == FOUND

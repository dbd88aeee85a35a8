"""The table of rooms in the stub's README agrees with the #include lines of its sources."""

import re

from envpack.stub.recipe import source_folder
from tests.tables import every_row

SOURCES = source_folder() / "stub_src"


def room_of(path):
    """The room that a path relative to stub_src belongs to: its folder, or the file itself at the top."""
    folder, separator, name = path.rpartition("/")
    return folder + separator or name


def included():
    """What each room includes of the others."""
    rooms = {}
    for file in sorted(SOURCES.rglob("*")):
        if file.suffix in {".h", ".cc"}:
            room = room_of(file.relative_to(SOURCES).as_posix())
            names = re.findall(r'^#include "(.+)"', file.read_text(encoding="utf-8"), re.MULTILINE)
            rooms.setdefault(room, set()).update({room_of(name) for name in names} - {room})
    return rooms


def documented():
    """The rows of the README's table: room → what it may include."""
    text = (SOURCES / "README.md").read_text(encoding="utf-8")
    table = text.partition("| room | content | includes |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\S+)` \|.*\|([^|]*)\|$", table, re.MULTILINE)
    return {room: set(re.findall(r"`(\S+?)`", cell)) for room, cell in rows}


ROOMS = included()


def test_every_room_is_in_the_table():
    assert set(documented()) == set(ROOMS)


@every_row("room", sorted(documented()))
def test_a_room_includes_what_the_table_says(room):
    assert ROOMS[room] == documented()[room]


def test_no_two_rooms_include_each_other():
    below = dict(ROOMS)
    while below:
        lowest = {room for room, targets in below.items() if not targets & set(below)}
        assert lowest, f"a circle among {sorted(below)}"
        below = {room: targets for room, targets in below.items() if room not in lowest}


def test_a_header_that_nobody_may_include_is_found(tmp_path, monkeypatch):
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm/queue.h").write_text('#include "abi/wire.h"\n#include "shm/sync.h"\n')
    monkeypatch.setattr("tests.unit.stub.test_rooms.SOURCES", tmp_path)
    assert included() == {"shm/": {"abi/"}}

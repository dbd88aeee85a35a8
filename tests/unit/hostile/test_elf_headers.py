"""Libraries with damaged headers are read, or count as no libraries; soon, whatever their tables say."""

import struct

import pytest
from hypothesis import given, strategies as st

from envpack.inspection.facts import read_environment_facts, read_stub_requirements
from envpack.stub.target import machine_of
from envpack.support.elf import is_elf, parse_elf, provided_glibcxx, required_abi
from envpack.support.errors import EnvpackError
from tests.hostile import hostile, read_or_refused
from tests.unit.stub.elf_files import write_library

_SECTIONS, _ENTRY = 40, 64  # offset of the table of sections in the header; size of one of its rows
_VERSIONS_NEEDED = 0x6FFFFFFE


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    file = tmp_path_factory.mktemp("whole") / "lib.so"
    write_library(file)
    return file.read_bytes()


def rows(library):
    """Where the rows of the table of sections begin."""
    (table,), (count,) = struct.unpack_from("<Q", library, _SECTIONS), struct.unpack_from("<H", library, 60)
    return range(table, table + count * _ENTRY, _ENTRY)


def read_all(root, content):
    """Everything that reads libraries, on the same content."""
    (root / "lib").mkdir(exist_ok=True)
    for name in ("libpython3.10.so.1.0", "libstdc++.so.6"):
        (root / "lib" / name).write_bytes(content)
    file = root / "lib/libpython3.10.so.1.0"
    assert is_elf(file) == content.startswith(b"\x7fELF")
    assert required_abi([file]).glibc.replace(".", "").isdigit() or not required_abi([file]).glibc
    for read in (read_environment_facts, lambda _: machine_of(file), lambda _: read_stub_requirements(file)):
        with read_or_refused():
            read(root)


@hostile
@given(data=st.data())
def test_damaged_tables(tmp_path, library, data):
    content = bytearray(library)
    where = st.integers(0, 63) | st.sampled_from(rows(library)).flatmap(lambda row: st.integers(row, row + _ENTRY - 1))
    for place in data.draw(st.lists(where | st.integers(0, len(library) - 1), min_size=1, max_size=6)):
        content[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0xFF]) | st.integers(0, 255))
    read_all(tmp_path, bytes(content[: data.draw(st.none() | st.integers(0, len(content)))]))


@pytest.mark.thorough
@pytest.mark.timeout(60)
def test_a_table_without_end_is_given_up(tmp_path, library):
    """Its number of rows is four thousand millions, and each names itself as the next."""
    content = bytearray(library)
    (row,) = (row for row in rows(library) if struct.unpack_from("<I", library, row + 4) == (_VERSIONS_NEEDED,))
    struct.pack_into("<I", content, row + 44, 0xFFFFFFFF)  # sh_info, the number of rows
    (start,) = struct.unpack_from("<Q", library, row + 24)
    struct.pack_into("<I", content, start + 12, 0)  # vn_next
    read_all(tmp_path, bytes(content))


def test_a_good_library_is_read(tmp_path, library):
    (tmp_path / "lib.so").write_bytes(library)
    needed = required_abi([tmp_path / "lib.so"])
    assert (needed.glibc[:2], needed.file) == ("2.", tmp_path / "lib.so")
    with (tmp_path / "lib.so").open("rb") as content:
        assert provided_glibcxx(parse_elf(content)) == ""
    with pytest.raises(EnvpackError):
        read_stub_requirements(tmp_path / "lib.so")

"""A stub whose file is cut off or damaged is refused by `envpack inspect` in one line, wherever the damage is."""

import struct
import sys

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from envpack.cli.main import run
from envpack.stub.inspection import inspect_stub
from envpack.support.errors import StubError
from tests.faults.command_line import Ended, assert_refused
from tests.unit.stub.elf_files import EM_386, EM_AARCH64, write_header

# The file is written again for each example; that is what is meant.
EXAMPLES = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def whole(stub):
    return stub.read_bytes()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "triton_python_backend_stub"


def borders(content):
    """Where the parts of a 64-bit ELF file begin and end."""
    sections, size, count = (*struct.unpack_from("<Q", content, 40), *struct.unpack_from("<HH", content, 58))
    ends = {0, 4, 16, 64, sections, len(content)}
    for place in range(sections, sections + size * count, size):
        start, length = struct.unpack_from("<QQ", content, place + 24)
        ends |= {place, start, start + length}
    return sorted(ends)


def test_a_stub_that_ends_at_the_border_of_a_part_or_beside_it_is_refused(whole, file, capsys):
    lengths = {border + beside for border in borders(whole) for beside in (-1, 0, 1)}
    cut = sorted(length for length in lengths if 0 <= length < len(whole))
    assert len(cut) > 60
    for length in cut:
        file.write_bytes(whole[:length])
        code = run(["inspect", "--json", str(file)])
        assert_refused(Ended(code, *capsys.readouterr()), 5, "not-a-stub", str(file), "envpack stub")


@EXAMPLES
@given(data=st.data())
def test_a_stub_that_ends_anywhere_is_refused(whole, file, data):
    file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(StubError) as caught:
        inspect_stub(file)
    assert (caught.value.kind, caught.value.where) == ("not-a-stub", str(file))
    assert "\n" not in caught.value.message


@EXAMPLES
@given(data=st.data())
def test_a_stub_with_wrong_bytes_where_its_parts_are_described_is_read_or_refused(whole, file, data):
    """Most of what is read is the header, the table of sections at the end, and the facts."""
    content = bytearray(whole)
    facts = whole.index(b'"libpython"')
    (sections,) = struct.unpack_from("<Q", whole, 40)
    where = st.one_of(st.integers(0, 63), st.integers(sections, len(whole) - 1), st.integers(facts - 200, facts + 200))
    for place in data.draw(st.lists(where, min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    try:
        inspect_stub(file)
    except StubError as error:
        assert error.kind == "not-a-stub"  # noqa: PT017 - no error is right as well, and any other is not


@pytest.mark.parametrize(("machine", "bits"), [(EM_386, 32), (EM_AARCH64, 64)])
def test_a_program_for_another_machine_is_refused(file, capsys, machine, bits):
    write_header(file, machine, bits)
    code = run(["inspect", "--json", str(file)])
    assert_refused(Ended(code, *capsys.readouterr()), 5, "not-a-stub", "not compiled by envpack")


def test_the_interpreter_and_its_library_are_refused(target, capsys):
    for foreign in (sys.executable, target.library):
        code = run(["inspect", "--json", str(foreign)])
        assert_refused(Ended(code, *capsys.readouterr()), 5, "not-a-stub", "not compiled by envpack")


def test_a_device_is_refused_and_not_waited_for(capsys):
    code = run(["inspect", "--json", "/dev/zero"])
    assert_refused(Ended(code, *capsys.readouterr()), 5, "not-a-stub", "it is not a file")

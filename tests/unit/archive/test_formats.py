"""What each format of a placed environment costs, from its metadata."""

import pytest

from envpack.archive.manifest import Format, format_costs

FILES, SIZE = 10_000, 300_000_000
UNPACKED = {"unpacked": {"files": FILES, "size": SIZE}}
TAR = SIZE + FILES * 768


def test_a_folder_is_shipped_as_it_is_and_not_unpacked():
    folder, zipped, plain = format_costs({**UNPACKED, "size": 1})
    assert folder == Format("dir", SIZE, 0, 0.0)
    assert (zipped.form, zipped.size, zipped.unpacked) == ("tar.gz", int(TAR * 0.36), SIZE)
    assert (plain.form, plain.size, plain.unpacked) == ("tar", TAR, SIZE)


def test_unpacking_takes_time_by_file_and_by_byte_and_more_if_zipped():
    def seconds(files, size):
        return tuple(cost.unpack_seconds for cost in format_costs({"unpacked": {"files": files, "size": size}}))

    assert seconds(FILES, SIZE) == (0.0, 2.1, 1.3)
    assert seconds(100_000, 0) == (0.0, 4.3, 4.3)
    assert seconds(0, 10**9) == (0.0, 5.5, 2.8)


@pytest.mark.parametrize(("form", "sizes"), [("tar.gz", (5, TAR)), ("tar", (int(TAR * 0.36), 5))])
def test_an_archive_that_exists_has_its_own_size(form, sizes):
    _, zipped, plain = format_costs({**UNPACKED, "form": form, "size": 5})
    assert (zipped.size, plain.size) == sizes


@pytest.mark.parametrize("metadata", [{}, {"unpacked": {}}, {"form": "tar"}])
def test_unknown_sizes_count_as_none(metadata):
    assert [(cost.size, cost.unpacked, cost.unpack_seconds) for cost in format_costs(metadata)] == [(0, 0, 0.0)] * 3

"""Segments of archives in the store: found by name, verified while they are copied, and never trusted otherwise."""

import gzip
import json
import os
import random
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from envpack.archive import segments
from envpack.archive.segments import (
    DamagedSegmentError,
    Segment,
    by_package,
    compressed,
    compressor,
    copy_segment,
    find_segments,
    index_of,
    write_index,
)
from envpack.environment.inventory import OWN, Entry

CONTENT = bytes(range(256)) * 40


def archive(tmp_path, name="a.tar.gz", positions=(("x", 0, 100), ("y", 100, 5000)), *, time=1):
    """An archive of `CONTENT` with an index of these segments."""
    file = tmp_path / name
    file.write_bytes(CONTENT)
    write_index(file, {key: Segment(at, size, zlib.crc32(CONTENT[at : at + size])) for key, at, size in positions})
    os.utime(index_of(file), (time, time))
    return file


def copied(found):
    pieces = []
    checksum = copy_segment(*found, lambda piece: pieces.append(bytes(piece)))
    return b"".join(pieces), checksum


def test_segments_are_found_and_copied(tmp_path):
    file = archive(tmp_path)
    found = find_segments(tmp_path, ["y", "z"])
    expected = zlib.crc32(CONTENT[100:5100])
    assert found == {"y": (file, Segment(100, 5000, expected))}
    assert copied(found["y"]) == (CONTENT[100:5100], expected)


@pytest.mark.parametrize("buffer", [1, 999, 5000, 6000])
def test_a_segment_is_copied_in_pieces(tmp_path, monkeypatch, buffer):
    monkeypatch.setattr(segments, "_BUFFER", buffer)
    archive(tmp_path)
    assert copied(find_segments(tmp_path, ["y"])["y"])[0] == CONTENT[100:5100]


def test_the_newest_archive_precedes_and_then_the_first_by_name(tmp_path):
    for name, time in (("a.tar.gz", 1), ("c.tar.gz", 2), ("b.tar.gz", 2)):
        archive(tmp_path, name, time=time)
    assert find_segments(tmp_path, ["x"])["x"][0].name == "b.tar.gz"


def test_segments_come_from_several_archives_and_hidden_ones_do_not_count(tmp_path):
    archive(tmp_path, "a.tar.gz", [("x", 0, 1)])
    archive(tmp_path, "b.tar.gz", [("y", 1, 1)])
    archive(tmp_path, ".c.tar.gz", [("z", 1, 1)])
    found = find_segments(tmp_path, ["x", "y", "z"])
    assert {name: stored[0].name for name, stored in found.items()} == {"x": "a.tar.gz", "y": "b.tar.gz"}


def test_no_more_indexes_are_read_than_necessary(tmp_path, monkeypatch):
    archive(tmp_path, "a.tar.gz", time=2)
    archive(tmp_path, "b.tar.gz", time=1)
    read, real = [], segments._read
    monkeypatch.setattr(segments, "_read", lambda index, file: read.append(file.name) or real(index, file))
    assert set(find_segments(tmp_path, ["x", "y"])) == {"x", "y"}
    assert read == ["a.tar.gz"]


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index | {"schema": 2},
        lambda index: index | {"archive": [index["archive"][0] + 1, index["archive"][1]]},
        lambda index: index | {"archive": [index["archive"][0], index["archive"][1] - 1]},
        lambda index: {key: index[key] for key in ("schema", "archive")},
        lambda index: index | {"segments": {"x": [-1, 5, 0]}},
        lambda index: index | {"segments": {"x": [0, 0, 0]}},
        lambda index: index | {"segments": {"x": [0, len(CONTENT) + 1, 0]}},
        lambda index: index | {"segments": {"x": [1, len(CONTENT), 0]}},
        lambda index: index | {"segments": {"x": [0, 5]}},
        lambda index: index | {"segments": {"x": ["a", 5, 0]}},
        lambda index: index | {"segments": []},
        lambda index: [],
    ],
)
def test_an_index_that_does_not_fit_its_archive_is_ignored(tmp_path, change):
    index = index_of(archive(tmp_path))
    assert find_segments(tmp_path, ["x"])
    index.write_text(json.dumps(change(json.loads(index.read_text()))))
    assert find_segments(tmp_path, ["x"]) == {}


def test_a_segment_may_reach_to_the_end_and_have_one_byte(tmp_path):
    archive(tmp_path, positions=[("x", 0, len(CONTENT)), ("y", len(CONTENT) - 1, 1)])
    assert set(find_segments(tmp_path, ["x", "y"])) == {"x", "y"}


def test_an_index_without_its_archive_is_ignored(tmp_path):
    archive(tmp_path).unlink()
    assert find_segments(tmp_path, ["x"]) == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(CONTENT[:200] + b"!" + CONTENT[201:]),
        lambda file: file.write_bytes(CONTENT[:5000]),
        lambda file: file.unlink(),
    ],
    ids=["changed", "shorter", "gone"],
)
def test_a_damaged_segment_is_an_error_and_its_index_is_removed(tmp_path, damage):
    file = archive(tmp_path)
    other = index_of(archive(tmp_path, "b.tar.gz", [("z", 0, 1)]))
    found = find_segments(tmp_path, ["y"])["y"]
    damage(file)
    with pytest.raises(DamagedSegmentError, match=r"a\.tar\.gz is damaged"):
        copied(found)
    assert (index_of(file).exists(), other.exists()) == (False, True)


def test_a_content_gives_the_same_bytes_wherever_the_compressor_has_its_state():
    """Which is at another address in each thread, and in each process."""
    choice = random.Random(1)
    words = ["import", "self", "return", "(", ") ", " = ", ".", "numpy", "\n    ", "def ", "value", "model"]
    contents = ["".join(choice.choices(words, k=choice.randrange(60))).encode() for _ in range(2000)]
    threads = 16
    together = threading.Barrier(threads)

    def all_compressed(_):
        together.wait()
        return [compressed(content) for content in contents]

    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(all_compressed, range(threads)))
    assert [zlib.decompress(member, 31) for member in found[0]] == contents
    assert all(members == found[0] for members in found)


def test_a_gzip_member_has_no_time_and_no_name():
    member = compressed(CONTENT)
    assert gzip.decompress(member) == CONTENT
    assert (member[:2], member[3], member[4:8]) == (b"\x1f\x8b", 0, bytes(4))
    assert len(member) < len(CONTENT) // 10
    assert "level 2, portions of 2097152 bytes, recipe 3" in compressor()


def test_a_check_finds_the_libraries_of_the_stub_first():
    def entry(path, package):
        return Entry(path, "file", package)

    entries = [
        entry("a", "a"), entry("z2", "z"), entry("z1", "z"), entry("lib/libstdc++.so.6", "s"),
        entry("bin/activate", OWN), entry("lib/libpython3.9.so.1.0", "python"), entry("bin/p", "python"),
    ]  # fmt: skip
    assert [(name, [one.path for one in group]) for name, group in by_package(entries)] == [
        (OWN, ["bin/activate"]),
        ("python", ["bin/p", "lib/libpython3.9.so.1.0"]),
        ("s", ["lib/libstdc++.so.6"]),
        ("a", ["a"]),
        ("z", ["z1", "z2"]),
    ]

"""Archives whose few bytes need much memory or disk are rejected while they are read, with pax headers too."""

import gzip
import io
import random
import tarfile

import pytest

from envpack.archive import reading
from envpack.archive.reading import is_archive, opened_archive
from envpack.support.errors import InputError


def record(key, value):
    """A record of a pax header: its length in digits, which counts itself, then ``key=value``."""
    content = f" {key}={value}\n".encode()
    length = len(content) + 1
    while len(str(length)) + len(content) != length:
        length += 1
    return str(length).encode() + content


def pax_header(content, *, kind=tarfile.XHDTYPE, size=None):
    info = tarfile.TarInfo("pax")
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def plain(name, content=b""):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


END = bytes(2 * tarfile.BLOCKSIZE)


def members(tmp_path, *pieces, limit=reading.DEFAULT_LIMIT):
    (tmp_path / "env.tar").write_bytes(b"".join(pieces))
    with opened_archive(tmp_path / "env.tar", limit) as archive:
        return [(member.name, member.kind, member.size, member.target) for member in archive]


def rejected(tmp_path, *pieces, **options):
    """The kind and the message of the error."""
    with pytest.raises(InputError) as caught:
        members(tmp_path, *pieces, **options)
    assert caught.value.where == str(tmp_path / "env.tar")
    assert caught.value.hint
    return caught.value.kind, caught.value.message


def test_a_pax_header_of_a_gigabyte_is_not_read(tmp_path):
    for header in (tarfile.XHDTYPE, tarfile.XGLTYPE):
        kind, message = rejected(tmp_path, pax_header(b"x" * 512, kind=header, size=1 << 30), plain("a"), END)
        assert kind == "archive-bomb"
        assert message.endswith(f"a header needs {1 << 30} bytes of memory")


@pytest.mark.parametrize(("size", "accepted"), [(2 << 20, True), ((2 << 20) + 512, False)])
def test_a_header_of_two_mebibytes_is_the_largest(tmp_path, size, accepted):
    comment = record("comment", "x" * (size - 17))
    assert len(comment) == size - (-size % 512)
    pieces = (pax_header(comment), plain("a"), END)
    if accepted:
        assert members(tmp_path, *pieces) == [("a", "file", 0, "")]
    else:
        assert rejected(tmp_path, *pieces)[0] == "archive-bomb"


@pytest.mark.parametrize(("count", "accepted"), [(16, True), (17, False)])
def test_global_pax_headers_cannot_pile_up(tmp_path, count, accepted):
    """They stay in memory until the end of the archive."""
    headers = [pax_header(record(f"key{number}", "x"), kind=tarfile.XGLTYPE) for number in range(count)]
    if accepted:
        assert members(tmp_path, *headers, plain("a"), END) == [("a", "file", 0, "")]
    else:
        assert rejected(tmp_path, *headers, plain("a"), END)[0] == "archive-bomb"


@pytest.mark.parametrize(
    "header",
    [
        b"1" * 4096,  # tarfile's patterns need the square of their number
        record("comment", "1" * 65),
        b"9 " * 100,
        b"0 a=b\n",
        b"7 a=b\n",
        b"6 a=b\n4 a=",
        b"6 a=b",
        b"-6 a=b\n",
    ],
)
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE])
def test_damaged_pax_headers_never_reach_the_patterns_of_tarfile(tmp_path, monkeypatch, header, kind):
    def read_in_parts(info, archive):  # as newer Pythons do
        for _ in range(0, info.size, 512):
            archive.fileobj.read(512)
        return info

    monkeypatch.setattr(tarfile.TarInfo, "_proc_pax", read_in_parts)
    found, message = rejected(tmp_path, pax_header(header, kind=kind), plain("a"), END)
    assert (found, "pax header" in message) == ("environment-unreadable", True)


def test_numbers_of_64_digits_in_a_pax_header_are_read(tmp_path):
    header = record("mtime", "1700000000.123456789") + record("comment", "1" * 64)
    assert members(tmp_path, pax_header(header), plain("a"), END) == [("a", "file", 0, "")]


@pytest.mark.parametrize("size", [b"\xff" * 12, b"\xff" * 11 + b"\0"])
def test_a_negative_size_is_rejected_as_servers_do(tmp_path, size):
    member = bytearray(plain("a"))
    member[124:136] = size
    member[148:156] = b" " * 8
    member[148:156] = b"%06o\0 " % sum(member)
    kind, message = rejected(tmp_path, bytes(member), END)
    assert kind == "environment-unreadable"
    # Pythons with the mended tarfile find it themselves.
    assert message.removeprefix("this archive cannot be read: ") in ("the size of 'a' is negative", "invalid offset")


def test_long_names_that_follow_each_other_without_end_are_rejected(tmp_path):
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 2
    again = name.tobuf(tarfile.GNU_FORMAT) + b"n".ljust(512, b"\0")
    assert rejected(tmp_path, again * 2000, plain("a"), END)[0] == "environment-unreadable"


@pytest.mark.parametrize("key", ["path", "linkpath"])
@pytest.mark.parametrize(("length", "accepted"), [(4096, True), (4097, False)])
def test_a_pax_name_cannot_be_longer_than_a_path(tmp_path, key, length, accepted):
    pieces = (pax_header(record(key, "x" * length)), plain("a"), END)
    if accepted:
        ((name, _, _, target),) = members(tmp_path, *pieces)
        assert max(len(name), len(target)) == length
    else:
        assert rejected(tmp_path, *pieces)[0] == "archive-bomb"


@pytest.mark.parametrize(
    "keys",
    [
        {"GNU.sparse.size": 1 << 50, "GNU.sparse.numblocks": 1, "GNU.sparse.offset": 0, "GNU.sparse.numbytes": 1},
        {"GNU.sparse.size": 1 << 50, "GNU.sparse.map": "0,1"},
        {"GNU.sparse.major": 1, "GNU.sparse.minor": 0, "GNU.sparse.realsize": 1 << 50, "GNU.sparse.name": "huge"},
    ],
    ids=["0.0", "0.1", "1.0"],
)
def test_sparse_files_of_pax_are_rejected(tmp_path, keys):
    header = b"".join(record(key, value) for key, value in keys.items())
    kind, message = rejected(tmp_path, pax_header(header), plain("huge", b"1\n0\n1\n".ljust(512, b"\0")), END)
    assert kind == "environment-unreadable"
    assert "is a sparse file" in message


def test_a_pax_size_of_a_petabyte_is_rejected(tmp_path):
    kind, message = rejected(tmp_path, pax_header(record("size", 1 << 50)), plain("a"), END)
    assert kind == "environment-unreadable"
    assert "unexpected end of data" in message


def test_the_limit_counts_headers_and_padding(tmp_path):
    pieces = (plain("a", b"x" * 513), END)
    assert members(tmp_path, *pieces, limit=512 + 1024 + 1024) == [("a", "file", 513, "")]
    kind, message = rejected(tmp_path, *pieces, limit=512 + 1024 + 1023)
    assert (kind, message.endswith("its content is larger than 2559 bytes")) == ("archive-bomb", True)


def test_members_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_MOST_MEMBERS", 3)
    assert len(members(tmp_path, plain("a"), plain("b"), plain("c"), END)) == 3
    assert rejected(tmp_path, *map(plain, "abcd"), END)[1].endswith("it has more than 3 members")


@pytest.mark.parametrize(("limit", "accepted"), [(16, True), (15, False)])
def test_the_characters_of_names_and_of_targets_are_counted(tmp_path, monkeypatch, limit, accepted):
    monkeypatch.setattr(reading, "_MOST_NAMES", limit)
    links = []
    for name in ("ab", "cd"):
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, "target"
        links.append(info.tobuf(tarfile.GNU_FORMAT))
    if accepted:
        assert len(members(tmp_path, *links, END)) == 2
    else:
        kind, message = rejected(tmp_path, *links, END)
        assert (kind, message.endswith("its names have more than 15 characters")) == ("archive-bomb", True)


@pytest.mark.parametrize(("content", "accepted"), [(20_000, True), (2_000_000, False)])
def test_content_a_hundred_times_as_large_as_the_file_is_rejected(tmp_path, monkeypatch, content, accepted):
    monkeypatch.setattr(reading, "_FREE", 1 << 16)
    packed = gzip.compress(plain("a", bytes(content)) + END)
    if accepted:
        assert members(tmp_path, packed) == [("a", "file", content, "")]
        assert members(tmp_path, gzip.compress(plain("a", random.Random(1).randbytes(100_000)) + END))
    else:
        assert "more than 100 times as large" in rejected(tmp_path, packed)[1]


def test_content_is_read_in_pieces_and_a_text_up_to_its_limit(tmp_path):
    (tmp_path / "env.tar").write_bytes(plain("a", b"text") + END)
    for most, text in ((4, b"text"), (3, b"")):
        with opened_archive(tmp_path / "env.tar") as archive:
            assert [archive.text(most) for _ in archive] == [text]
    with opened_archive(tmp_path / "env.tar") as archive:
        assert list(archive.content()) == []
        assert archive.text(10) == b""


@pytest.mark.parametrize("after", [b"x" * 512, bytes(1 << 20) + b"x" * 512])
def test_data_after_the_end_is_rejected(tmp_path, after):
    assert "data follows after its end" in rejected(tmp_path, plain("a"), END, after)[1]
    assert members(tmp_path, plain("a"), END, bytes(len(after))) == [("a", "file", 0, "")]


def test_every_kind_of_member(tmp_path):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for kind, mode in (
            (tarfile.REGTYPE, 0o644), (tarfile.REGTYPE, 0o700), (tarfile.SYMTYPE, 0o777), (tarfile.DIRTYPE, 0o755),
            (tarfile.LNKTYPE, 0o644), (tarfile.FIFOTYPE, 0o644),
        ):  # fmt: skip
            info = tarfile.TarInfo("./name")
            info.type, info.mode, info.linkname = kind, mode, "target" if kind in (b"1", b"2") else ""
            tar.addfile(info)
    assert members(tmp_path, archive.getvalue()) == [
        ("name", "file", 0, ""),
        ("name", "program", 0, ""),
        ("name", "link", 0, "target"),
        ("name", "folder", 0, ""),
        ("name", "hard link", 0, "target"),
        ("name", "special", 0, ""),
    ]


@pytest.mark.parametrize(("expected", "limit"), [(1023, 1 << 30), (1 << 30, 1023)])
def test_the_lower_of_the_expected_size_and_the_limit_counts(tmp_path, expected, limit):
    (tmp_path / "env.tar").write_bytes(plain("a", b"x") + END)
    with opened_archive(tmp_path / "env.tar", limit) as archive, pytest.raises(InputError) as raised:
        archive.expect(expected)
        list(archive)
    assert "larger than 1023 bytes" in raised.value.message
    assert ("--limit" in raised.value.hint) is (limit < expected), "the option changes the limit alone"


def test_a_file_that_cannot_be_read_is_no_archive(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(path)

    (tmp_path / "env.tar").write_bytes(plain("a") + END)
    assert is_archive(tmp_path / "env.tar")
    monkeypatch.setattr(reading, "opened", refused)
    assert not is_archive(tmp_path / "env.tar")

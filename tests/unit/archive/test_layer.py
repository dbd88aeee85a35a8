"""Layers of images: the same bytes for the same files, and nothing unpacked outside of their folder."""

import gzip
import io
import os
import tarfile

import pytest

from envpack.archive import reading
from envpack.archive.layer import LayerMember, LayerUnpacker, pack_layer
from envpack.support.errors import InputError, StorageError

LIMIT = 1 << 20


def packed(folder, *members):
    return pack_layer(members, folder / "layer", lambda _: None)


def written(path, content, kind="file"):
    return LayerMember(path, kind, len(content), content=content)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_a_layer_comes_back(tmp_path, root):
    large = os.urandom(5 << 20)
    (tmp_path / "large").write_bytes(large)
    members = (
        LayerMember("a", "folder"),
        LayerMember("a/large", "file", len(large), tmp_path / "large"),
        written("a/run", b"#!", "program"),
        LayerMember("a/link", "link", target="run"),
        written("a/" + "long/" * 40 + "name", b"x"),
    )
    made = packed(tmp_path, *members)
    assert made.size == (tmp_path / "layer").stat().st_size
    assert LayerUnpacker(root).unpack(tmp_path / "layer", 100 << 20) == len(large) + 3
    assert (root / "a/large").read_bytes() == large
    assert (root / "a/link").read_bytes() == b"#!"
    assert os.access(root / "a/run", os.X_OK)
    assert (root / "a/run").stat().st_mode & 0o777 == 0o755
    assert (root / "a/large").stat().st_mode & 0o777 == 0o644
    assert (root / ("a/" + "long/" * 40 + "name")).read_bytes() == b"x"


def test_what_is_packed_is_reported_in_bytes(tmp_path):
    reported = []
    pack_layer((written("a", b"x" * 700),), tmp_path / "layer", reported.append)
    assert sum(reported) == gzip_size(tmp_path / "layer")


def gzip_size(layer):
    with gzip.open(layer) as content:
        return len(content.read())


def test_the_same_files_give_the_same_bytes(tmp_path):
    (tmp_path / "one").write_bytes(b"content")
    first = packed(tmp_path, LayerMember("f", "file", 7, tmp_path / "one"))
    os.utime(tmp_path / "one", (1, 1))
    (tmp_path / "one").chmod(0o600)
    assert packed(tmp_path, LayerMember("f", "file", 7, tmp_path / "one")) == first
    assert packed(tmp_path, written("f", b"CONTENT")) != first


@pytest.mark.parametrize("size", [6, 8])
def test_a_file_that_changes_meanwhile_is_noticed(tmp_path, size):
    (tmp_path / "one").write_bytes(b"content")
    with pytest.raises(StorageError) as raised:
        packed(tmp_path, LayerMember("f", "file", size, tmp_path / "one"))
    assert raised.value.kind == "file-unusable"


def member(name, kind=tarfile.REGTYPE, target="", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside")],
        [member("/outside")],
        [member("a/../../outside")],
        [member("link", tarfile.SYMTYPE, "../outside")],
        [member("link", tarfile.SYMTYPE, "/etc")],
        [member("a/b/c", tarfile.SYMTYPE, "../.."), member("link", tarfile.SYMTYPE, "a/b/c/../outside")],
        [member("link", tarfile.SYMTYPE, "a"), member("link/file")],
        [member("file"), member("hard", tarfile.LNKTYPE, "file")],
        [member("file"), member("file")],
        [member("file"), member("file", tarfile.DIRTYPE)],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("null", tarfile.CHRTYPE)],
    ],
    ids=lambda members: " ".join(one.name for one in members),
)
def test_what_leaves_the_folder_or_is_no_file_is_refused(tmp_path, root, members):
    with tarfile.open(tmp_path / "layer", "w:gz") as archive:
        for one in members:
            archive.addfile(one, io.BytesIO())
    with pytest.raises(InputError) as raised:
        LayerUnpacker(root).unpack(tmp_path / "layer", LIMIT)
    assert raised.value.kind == "environment-unreadable"
    assert not (tmp_path / "outside").exists()


def test_two_layers_do_not_write_through_each_others_links(tmp_path, root):
    unpacker = LayerUnpacker(root)
    (tmp_path / "elsewhere").mkdir()
    packed(tmp_path, LayerMember("a", "link", target="b"))
    unpacker.unpack(tmp_path / "layer", LIMIT)
    packed(tmp_path, written("a/file", b"x"))
    with pytest.raises(InputError):
        unpacker.unpack(tmp_path / "layer", LIMIT)


def test_weights_may_be_zeros(tmp_path, root, monkeypatch):
    """`pack_layer` writes them, so they can be read again."""
    monkeypatch.setattr(reading, "_FREE", 0)
    packed(tmp_path, written("zeros", bytes(20 << 20)))
    assert LayerUnpacker(root).unpack(tmp_path / "layer", 100 << 20) == 20 << 20


def test_a_layer_that_is_too_large_is_refused(tmp_path, root):
    packed(tmp_path, written("zeros", bytes(2 << 20)))
    with pytest.raises(InputError) as raised:
        LayerUnpacker(root).unpack(tmp_path / "layer", LIMIT)
    assert raised.value.kind == "archive-bomb"

"""What is remembered of the layers of images: by all that decides their content, and for so many only."""

import os

import pytest

from envpack.archive.layer import LayerMember, PackedLayer
from envpack.deployment.images import layers as module
from envpack.deployment.images.layers import ImageLayer, LayerMemory
from envpack.deployment.objects import content
from envpack.support.memory import remembered

PACKED = PackedLayer("a" * 64, 5, "b" * 64)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "_SETTLED", 0)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache/publications/images.json"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    return tmp_path / "file"


def layer(*members):
    return ImageLayer("a layer", members)


def member(file, **changes):
    return LayerMember(**{"path": "a/b", "kind": "file", "size": 7, "source": file, **changes})


def test_a_layer_is_as_large_as_its_files(file):
    assert layer().size == 0
    assert layer(member(file), LayerMember("a", "folder"), member(file, size=3)).size == 10


def test_the_same_layer_is_remembered_and_any_other_is_not(file, place, tmp_path):
    memory = LayerMemory()
    memory.remember(layer(member(file)), PACKED)
    memory.save()
    (tmp_path / "other").write_bytes(b"content")
    again = LayerMemory()
    assert again.packed(layer(member(file))) == PACKED
    for other in (
        member(file, path="a/c"),
        member(file, kind="program"),
        member(file, size=8),
        member(file, target="x"),
        member(tmp_path / "other"),
        LayerMember("a/b", "file", 7, content=b"content"),
    ):
        assert again.packed(layer(other)) is None, other
    assert again.packed(layer(member(file), member(file))) is None
    os.utime(file, ns=(0, 0))
    assert again.packed(layer(member(file))) is None


def test_a_damaged_memory_is_empty(file, place):
    memory = LayerMemory()
    memory.remember(layer(member(file)), PACKED)
    memory.save()
    place.write_text(place.read_text().replace("b", "c"))
    assert LayerMemory().packed(layer(member(file))) is None


def test_a_content_without_a_file_is_known_by_itself():
    memory = LayerMemory()
    one, other = (layer(LayerMember("a", "file", 1, content=content)) for content in (b"1", b"2"))
    memory.remember(one, PACKED)
    memory.save()
    assert (LayerMemory().packed(one), LayerMemory().packed(other)) == (PACKED, None)


def test_a_change_that_keeps_size_and_modification_time_is_noticed(file):
    memory, members, status = LayerMemory(), [member(file)], file.stat()
    memory.remember(layer(*members), PACKED)
    content = memory.content_of(members)
    memory.save()
    while file.stat().st_ctime_ns == status.st_ctime_ns:  # what has settled changes in another tick of the clock
        file.write_bytes(b"CONTENT")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (status.st_ino, status.st_mtime_ns)
    again = LayerMemory()
    assert again.packed(layer(*members)) is None
    assert again.content_of(members) != content


def test_what_changed_just_before_or_since_is_not_remembered(file, place, monkeypatch):
    """Its next change may have the same time stamps, and this one may have come while the file was read."""
    memory = LayerMemory()
    os.utime(file, ns=(0, 2**62))
    memory.remember(layer(member(file)), PACKED)
    os.utime(file, ns=(0, 0))
    monkeypatch.setattr(content, "_SETTLED", 10**12)
    memory.content_of([member(file)])
    memory.save()
    assert not place.exists()


def test_another_compressor_packs_again(file, monkeypatch):
    memory = LayerMemory()
    memory.remember(layer(member(file)), PACKED)
    memory.save()
    monkeypatch.setattr(module, "compressor", lambda: "another")
    assert LayerMemory().packed(layer(member(file))) is None


def test_a_content_is_computed_once(file, monkeypatch):
    computed, digest = [], module.sha256_of
    monkeypatch.setattr(module, "sha256_of", lambda path: computed.append(path) or digest(path))
    memory = LayerMemory()
    first = memory.content_of([member(file)])
    memory.save()
    assert LayerMemory().content_of([member(file)]) == first
    assert computed == [file]
    os.utime(file, ns=(0, 0))
    assert LayerMemory().content_of([member(file)]) == first, "the content is the same"
    assert computed == [file] * 2


def test_the_digest_of_a_content_depends_on_names_kinds_links_and_bytes(file, tmp_path):
    memory = LayerMemory()
    (tmp_path / "other").write_bytes(b"CONTENT")
    members = (
        [member(file)],
        [member(file, path="c")],
        [member(file, kind="program")],
        [LayerMember("a/b", "link", target="x")],
        [LayerMember("a/b", "link", target="y")],
        [LayerMember("a/b", "folder")],
        [member(tmp_path / "other")],
        [member(file), member(tmp_path / "other", path="c")],
        [],
    )
    digests = [memory.content_of(one) for one in members]
    assert len(set(digests)) == len(members)
    (tmp_path / "copy").write_bytes(b"content")
    assert memory.content_of([member(tmp_path / "copy")]) == digests[0], "where the file is does not matter"


def test_the_latest_are_remembered_and_only_so_many(file, place, monkeypatch):
    monkeypatch.setattr(module, "_MOST_REMEMBERED", 2)
    names = ("one", "two", "three")
    for name in names:
        memory = LayerMemory()
        memory.remember(layer(member(file, path=name)), PACKED)
        memory.save()
    assert [LayerMemory().packed(layer(member(file, path=name))) for name in names] == [None, PACKED, PACKED]
    memory = LayerMemory()  # what is used stays longer
    assert memory.packed(layer(member(file, path="two"))) == PACKED
    memory.remember(layer(member(file, path="four")), PACKED)
    memory.save()
    assert [LayerMemory().packed(layer(member(file, path=name))) for name in (*names, "four")] == [
        *(None, PACKED, None),
        PACKED,
    ]
    assert len(remembered(place)) == 2


def test_nothing_new_is_not_written(file, place):
    LayerMemory().save()
    assert not place.exists()
    memory = LayerMemory()
    memory.remember(layer(member(file)), PACKED)
    memory.save()
    before = place.stat()
    again = LayerMemory()
    again.packed(layer(member(file)))
    again.save()
    assert place.stat().st_ino == before.st_ino

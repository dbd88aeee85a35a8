"""Files that contain the prefix placeholder are copied with the folder that they are served from; others are linked."""

import hashlib
import json

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.inspection import inspect_environment
from envpack.archive.manifest import archive_metadata_file, read_metadata, record_in_metadata
from envpack.archive.selection import Selection
from envpack.archive.tarball import pack_archive
from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.inventory import INVENTORY, parse_inventory
from envpack.environment.store import MANIFEST, read_environment
from envpack.support.errors import UsageError
from envpack.workflow.cache import list_cache
from tests.damage import overwrite
from tests.tables import every_row

from .conftest import text

BINARY = b"\x7fELF\0" + PREFIX_PLACEHOLDER.encode() + b"/lib\0end"
TEXT = f"root={PREFIX_PLACEHOLDER}/x\n"


@pytest.fixture
def environment(prefixes):
    """An environment with a text, a program and a binary file that contain the placeholder."""

    def add(prefix):
        (prefix / "lib/config.txt").write_text(TEXT)
        (prefix / "bin/script").write_text(TEXT)
        (prefix / "bin/script").chmod(0o755)
        (prefix / "lib/binary.so").write_bytes(BINARY)
        record = prefix / "conda-meta/x-1-0.json"
        metadata = json.loads(record.read_text())
        names = {"lib/config.txt": "text", "bin/script": "text", "lib/binary.so": "binary"}
        metadata["files"] += names
        metadata["paths_data"] = {
            "paths": [{"_path": n, "prefix_placeholder": "/p", "file_mode": mode} for n, mode in names.items()]
        }
        record.write_text(json.dumps(metadata))

    made = prefixes.make("one", add)
    manifest = json.loads((made.prefix / MANIFEST).read_text()) | {"stand_ins": 3}
    (made.prefix / MANIFEST).write_text(json.dumps(manifest))
    return read_environment(made.prefix)


@pytest.mark.parametrize("served_as", ["", "/srv/models/m/env"])
def test_a_folder_names_itself_where_it_is_served(environment, tmp_path, served_as):
    placed = tmp_path / "env"
    assert place_folder(environment, placed, **({"served_as": served_as} if served_as else {})) is True
    root = served_as or str(placed)
    assert (placed / "lib/config.txt").read_text() == f"root={root}/x\n"
    assert (placed / "lib/config.txt").stat().st_mode & 0o777 == 0o444
    assert (placed / "bin/script").stat().st_mode & 0o777 == 0o555
    binary = (placed / "lib/binary.so").read_bytes()
    assert (len(binary), binary.endswith(b"end")) == (len(BINARY), True)
    assert binary.startswith(b"\x7fELF\0" + root.encode() + b"/lib\0\0")
    assert (placed / "bin/tool").samefile(environment.prefix / "bin/tool")
    assert (environment.prefix / "lib/config.txt").read_text() == TEXT


def test_the_inventory_describes_the_files_as_they_are_placed(environment, tmp_path):
    place_folder(environment, tmp_path / "env", served_as="/srv/env")
    assert inspect_environment(tmp_path / "env").is_good(strict=True)
    entries = {entry.path: entry for entry in parse_inventory((tmp_path / "env" / INVENTORY).read_bytes())}
    content = (tmp_path / "env/lib/config.txt").read_bytes()
    found = entries["lib/config.txt"]
    assert (found.size, found.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert found.placeholder == "text"
    assert entries["lib/binary.so"].placeholder == "binary"
    assert read_metadata(tmp_path / "env")["selection"]["final_prefix"] == "/srv/env"


def test_another_folder_on_the_server_places_it_again(environment, tmp_path):
    assert place_folder(environment, tmp_path / "env", served_as="/srv/a") is True
    assert place_folder(environment, tmp_path / "env", served_as="/srv/a") is False
    assert place_folder(environment, tmp_path / "env", served_as="/srv/b") is True
    assert (tmp_path / "env/lib/config.txt").read_text() == "root=/srv/b/x\n"


def test_an_archive_keeps_the_placeholder(environment, tmp_path):
    pack_archive(environment, tmp_path / "env.tar")
    assert text(tmp_path / "env.tar", "lib/config.txt") == TEXT


def test_a_folder_with_too_long_a_path_is_rejected(environment, tmp_path):
    with pytest.raises(UsageError) as caught:
        place_folder(environment, tmp_path / "env", served_as="/" + "x" * 300)
    assert caught.value.kind == "path-too-long"
    assert not (tmp_path / "env").exists()


def test_without_placeholders_the_folder_does_not_matter(prefixes, tmp_path):
    environment = prefixes.make("two")
    assert place_folder(environment, tmp_path / "env", served_as="/" + "x" * 300) is True
    assert place_folder(environment, tmp_path / "env", served_as="/srv/b") is False


@pytest.mark.parametrize("form", ["dir", "tar"])
def test_metadata_of_a_placed_environment_can_be_extended(environment, tmp_path, form):
    target = tmp_path / "env"
    place_folder(environment, target) if form == "dir" else pack_archive(environment, target, form="tar")
    before = read_metadata(target)
    assert record_in_metadata(target, "requirements", "x") is True
    assert record_in_metadata(target, "requirements", "x") is False
    assert read_metadata(target) == {**before, "requirements": "x"}
    assert record_in_metadata(target, "requirements", "") is True
    assert record_in_metadata(target, "requirements", "") is False
    assert read_metadata(target) == before


def test_without_metadata_nothing_is_recorded(tmp_path):
    assert record_in_metadata(tmp_path / "env", "requirements", "x") is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]"])
def test_damaged_metadata_count_as_none(tmp_path, content):
    (tmp_path / "env.tar.json").write_text(content)
    assert read_metadata(tmp_path / "env.tar") == {}


def test_a_damaged_selection_in_the_cache_is_made_again(environment, tmp_path, cache):
    place_folder(environment, tmp_path / "a", Selection(), served_as="/srv/a")
    for damaged in (MANIFEST, INVENTORY):
        for stored in cache.glob(f"selections/*/{damaged}"):
            overwrite(stored, b"{}")
        place_folder(environment, tmp_path / f"b {damaged}", Selection(), served_as="/srv/a")
        assert inspect_environment(tmp_path / f"b {damaged}").is_good(strict=True)
    for key, wrong in (("key", "another"), ("selection", {"exclude": ["x"]})):
        (stored,) = cache.glob(f"selections/*/{MANIFEST}")
        overwrite(stored, json.dumps(json.loads(stored.read_bytes()) | {key: wrong}).encode())
        assert place_folder(environment, tmp_path / f"b {key}", Selection(), served_as="/srv/a") is True
        assert place_folder(environment, tmp_path / f"b {key}", Selection(), served_as="/srv/a") is False
    (stored,) = cache.glob(f"selections/*/{INVENTORY}")
    digest = next(entry.sha256 for entry in parse_inventory(stored.read_bytes()) if entry.sha256)
    overwrite(stored, stored.read_bytes().replace(digest.encode(), b"0" * 64))
    place_folder(environment, tmp_path / "c", Selection(), served_as="/srv/a")
    assert inspect_environment(tmp_path / "c").is_good(strict=True)


def test_a_selection_is_made_once_and_listed_as_an_entry_of_the_cache(environment, tmp_path, cache, monkeypatch):
    place_folder(environment, tmp_path / "a", Selection(), served_as="/srv/a")
    assert [entry.kind for entry in list_cache(cache)] == ["selections"]
    monkeypatch.setattr(Selection, "of", lambda *_: pytest.fail("selected again"))
    assert place_folder(environment, tmp_path / "b", Selection(), served_as="/srv/a") is True


def test_an_archive_of_conda_pack_leaves_nothing_out(prefixes, tmp_path):
    environment = prefixes.make("two")
    pack_archive(environment, tmp_path / "env.tar.gz", packer="conda-pack")
    assert read_metadata(tmp_path / "env.tar.gz")["selection"]["left_out"] == {"files": 0, "size": 0}
    pack_archive(environment, tmp_path / "other.tar.gz")
    assert read_metadata(tmp_path / "other.tar.gz")["selection"]["left_out"]["files"] > 0


@every_row(
    ("key", "value"),
    [
        ("minor", "x"),
        ("minor", float("inf")),
        ("key", None),
        ("size", "1"),
        ("selection", []),
        ("selection", {"digest": 1}),
        ("unpacked", {"files": float("inf")}),
        ("packages", {}),
        ("packages", [1]),
        ("packages", [{"name": "x"}]),
        ("packages", [{"name": [], "version": "1"}]),
    ],
)
def test_metadata_with_values_that_envpack_does_not_write_count_as_missing(environment, tmp_path, key, value):
    target = tmp_path / "env.tar"
    if not target.exists():
        pack_archive(environment, target, form="tar")
    file = archive_metadata_file(target)
    good = json.loads(file.read_text())
    assert read_metadata(target) == good
    file.write_text(json.dumps({**good, key: value}))
    assert read_metadata(target) == {}
    file.write_text(json.dumps(good))

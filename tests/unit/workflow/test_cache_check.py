"""`verify_cache` reads all that has a digest, and names what differs."""

import hashlib
import json
import shutil

import pytest

from envpack.cli.main import run
from envpack.environment.inventory import INVENTORY, Entry, write_inventory
from envpack.environment.store import MANIFEST
from envpack.stub.recipe import ensure_entry
from envpack.support.entry_locks import last_used
from envpack.support.progress import NoProgress
from envpack.workflow.cache import CacheCheck, DamagedEntry, list_cache, verify_cache
from tests.steps import Steps


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


# Of the key k, the content o and the selection d, without a final prefix.
SELECTION = sha256('["k", "o", "d", 2, ""]')[:32]


def put(file, text="content"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with one entry of each kind, byte code included, which has no digest."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(folder))
    entries = [Entry("lib/file", "file", "x", 7, sha256("content"))]
    for kind, name in (("environments", "one"), ("selections", SELECTION)):
        put(folder / kind / name / "lib/file")
        manifest = {"content": write_inventory(folder / kind / name, entries), "key": "k"}
        selection = {"of": "o", "digest": "d", "final_prefix": ""}
        put(folder / kind / name / MANIFEST, json.dumps({**manifest, "selection": selection}))
    put(folder / "archives/one.tar")
    put(folder / "archives/one.tar.json", json.dumps({"sha256": sha256("content")}))
    ensure_entry(folder / "stubs/one", lambda into: put(into / "stub"), NoProgress())
    (folder / "stubs/one/stub").chmod(0o644)
    record = {"_path": "lib/file", "path_type": "hardlink", "sha256": sha256("content")}
    link = {"_path": "lib/link", "path_type": "softlink"}
    put(folder / "conda-packages/one/lib/file")
    (folder / "conda-packages/one/lib/link").symlink_to("nowhere")
    put(folder / "conda-packages/one/info/paths.json", json.dumps({"paths": [record, link]}))
    put(folder / "conda-packages/one/info/index.json", "{}")
    put(folder / "channel/one/linux-64/python.conda")
    description = {"file": "linux-64/python.conda", "sha256": sha256("content")}
    put(folder / "channel/one/envpack-package.json", json.dumps(description))
    put(folder / "wheels" / sha256("content")[:16] / "x-1-py3-none-any.whl")
    put(folder / "bytecode/one/file.pyc")
    put(folder / "bytecode/one/digests.json", json.dumps({"file.pyc": sha256("content")}))
    return folder


def damaged(cache):
    return {(entry.kind, entry.path.name): entry.files for entry in verify_cache(cache).damaged}


def test_an_intact_cache_has_no_damage_and_to_look_is_no_use_of_it(cache):
    before = {entry.path: last_used(entry.path) for entry in list_cache(cache)}
    check = verify_cache(cache)
    assert (check.checked, check.damaged) == (8, ())
    assert {entry.path: last_used(entry.path) for entry in list_cache(cache)} == before


def test_a_selection_of_another_environment_is_damaged(cache):
    """No command would ever use it."""
    manifest = cache / "selections" / SELECTION / MANIFEST
    manifest.write_text(manifest.read_text().replace('"key": "k"', '"key": "another"'))
    assert damaged(cache) == {("selections", SELECTION): (MANIFEST,)}


def test_packages_without_a_sha256_are_checked_in_their_own_folder(cache):
    packages = cache / "conda-packages"
    (packages / "md5-one").mkdir()
    (packages / "one").rename(packages / "md5-one/x-1-0")
    put(packages / "md5-one/x-1-0.lock")
    assert damaged(cache) == {}
    (packages / "md5-one/x-1-0/lib/file").write_text("CONTENT")
    assert damaged(cache) == {("conda-packages", "md5-one"): ("x-1-0/lib/file",)}


WHEEL = sha256("content")[:16]


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("environments/one/lib/file", ("lib/file",)),
        (f"environments/one/{INVENTORY}", (INVENTORY,)),
        ("environments/one/envpack-environment.json", ()),
        (f"selections/{SELECTION}/{INVENTORY}", (INVENTORY,)),
        ("archives/one.tar", ()),
        ("bytecode/one/file.pyc", ("file.pyc",)),
        ("bytecode/one/digests.json", ()),
        ("stubs/one/stub", ("stub",)),
        ("conda-packages/one/lib/file", ("lib/file",)),
        ("conda-packages/one/info/paths.json", ()),
        ("channel/one/linux-64/python.conda", ("linux-64/python.conda",)),
        (f"wheels/{WHEEL}/x-1-py3-none-any.whl", ("x-1-py3-none-any.whl",)),
    ],
)
def test_what_differs_is_named(cache, path, files):
    kind, name = path.split("/")[:2]
    (cache / path).write_text("CONTENT")
    assert damaged(cache) == {(kind, name): files}


def test_missing_files_are_named(cache):
    (cache / "environments/one/lib/file").unlink()
    for name in ("file", "link"):
        (cache / "conda-packages/one/lib" / name).unlink()
    (cache / "stubs/one/stub").unlink()
    assert damaged(cache) == {
        ("environments", "one"): ("lib/file",),
        ("conda-packages", "one"): ("lib/file", "lib/link"),
        ("stubs", "one"): ("stub",),
    }


def test_each_kind_and_each_damage_is_reported(cache):
    (cache / "stubs/one/stub").write_text("CONTENT")
    (cache / "archives/one.tar").write_text("CONTENT")
    steps = Steps()
    verify_cache(cache, progress=steps)
    assert steps.seen == [
        "verify environments: 1 entry, 0 damaged",
        *("verify archives", f"damaged: {cache}/archives/one.tar: 1 entry, 1 damaged"),
        "verify selections: 1 entry, 0 damaged",
        *("verify stubs", f"damaged: {cache}/stubs/one: stub: 1 entry, 1 damaged"),
        "verify conda-packages: 1 entry, 0 damaged",
        "verify bytecode: 1 entry, 0 damaged",
        "verify channel: 1 entry, 0 damaged",
        "verify wheels: 1 entry, 0 damaged",
    ]


def test_a_cache_elsewhere_can_have_entries_of_one_kind_only(cache, tmp_path):
    wheel = put(tmp_path / "other/wheels" / WHEEL / "x-1-py3-none-any.whl", "CONTENT")
    check = verify_cache(tmp_path / "other")
    assert check == CacheCheck(1, (DamagedEntry("wheels", wheel.parent, (wheel.name,)),))


def test_an_entry_that_is_removed_meanwhile_is_not_damaged(cache):
    class Removing(NoProgress):
        def begin(self, task):
            if task == "verify stubs":
                shutil.rmtree(cache / "stubs/one")

    assert verify_cache(cache, progress=Removing()).damaged == ()


def test_the_command_says_so_and_exits_with_1(cache, capsys):
    assert run(["cache", "verify"]) == 0
    assert "8 entries verified, 0 damaged" in capsys.readouterr().out
    (cache / "stubs/one/stub").write_text("CONTENT")
    assert run(["cache", "verify"]) == 1
    assert f"damaged: {cache / 'stubs/one'}: stub" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")
    assert run(["cache", "verify", "--quiet"]) == 1
    assert capsys.readouterr().out == f"damaged: {cache / 'stubs/one'}: stub\n"
    assert run(["cache", "verify", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["checked"] == 8
    assert document["damaged"] == [{"kind": "stubs", "path": str(cache / "stubs/one"), "files": ["stub"]}]


def test_a_link_to_nowhere_in_place_of_an_entry_is_damage(cache):
    shutil.rmtree(cache / "environments/one")
    (cache / "environments/one").symlink_to("nowhere")
    assert damaged(cache) == {("environments", "one"): ()}

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from envpack.environment import store
from envpack.environment.build import find_intact
from envpack.environment.inventory import INVENTORY, Entry, Package, read_inventory, write_inventory
from envpack.environment.store import (
    MANIFEST,
    SCHEMA,
    Environment,
    damaged_files,
    differing,
    discard,
    index_of,
    read_environment,
    read_index,
    write_index,
)
from tests.steps import Steps


def test_incomplete_or_unknown_folder_is_no_environment(tmp_path):
    assert read_environment(tmp_path) is None
    (tmp_path / "envpack-environment.json").write_text("{")
    assert read_environment(tmp_path) is None
    (tmp_path / "envpack-environment.json").write_text(json.dumps({"schema": 99}))
    assert read_environment(tmp_path) is None


def test_an_environment_is_what_its_manifest_says(tmp_path):
    package = {
        "name": "x", "version": "1", "source": "pip", "license": "MIT", "url": "https://x", "sha256": "a", "size": 5,
    }  # fmt: skip
    manifest = {
        "schema": 3, "key": "k", "python": "3.9.1", "minor": "3.9", "packages": [package], "glibc": "2.28",
        "glibcxx": "3.4.21", "platform": "linux-64", "size": 7, "content": "c", "stand_ins": 2,
    }  # fmt: skip
    (tmp_path / "envpack-environment.json").write_text(json.dumps(manifest))
    assert read_environment(tmp_path) == Environment(
        key="k", python="3.9.1", minor="3.9", prefix=tmp_path, packages=(Package(**package),), glibc="2.28",
        glibcxx="3.4.21", platform="linux-64", size=7, content="c", placeholders=2, fresh=False,
    )  # fmt: skip
    assert read_environment(tmp_path / "envpack-environment.json") is None
    (tmp_path / "envpack-environment.json").write_text("[]")
    assert read_environment(tmp_path) is None


def test_importing_the_packages_imports_no_heavy_library():
    heavy = {"rattler", "conda_pack", "uv", "elftools", "yaml", "filelock", "backports", "packaging"}
    code = f"import sys, envpack.environment, envpack.archive; print({heavy!r} & set(sys.modules))"
    root = Path(__file__).parents[3]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def prefix(cache):
    """An environment of a file, an empty folder, a program in a folder and a link, with its index."""
    folder = cache / "environments/key"
    (folder / "bin").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "file").write_text("content")
    (folder / "bin/program").write_text("#!")
    (folder / "bin/link").symlink_to("program")
    entries = [
        Entry("bin/link", "link", "x", target="program"),
        Entry("bin/program", "program", "x", 2, hashlib.sha256(b"#!").hexdigest()),
        Entry("empty", "folder", "x"),
        Entry("file", "file", "x", 7, hashlib.sha256(b"content").hexdigest()),
    ]
    manifest = {
        "schema": SCHEMA, "key": "key", "python": "3.9.1", "minor": "3.9", "packages": [], "glibc": "2.17",
        "glibcxx": "", "platform": "linux-64", "size": 9, "content": write_inventory(folder, entries), "stand_ins": 0,
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(manifest))
    write_index(folder)
    return folder


@pytest.fixture
def read(monkeypatch):
    """The paths of all files and links that are read."""
    paths, compare = [], store._is_as_listed

    def noted(path, entry):
        paths.extend([entry.path] if entry.kind != "folder" else [])
        return compare(path, entry)

    monkeypatch.setattr(store, "_is_as_listed", noted)
    return paths


def appended(prefix):
    with (prefix / "file").open("a") as content:
        content.write("more")


def changed_in_place(prefix):
    (prefix / "file").write_text("CONTENT")


def exchanged_with_its_time(prefix):
    before = (prefix / "file").stat()
    (prefix / "new").write_text("CONTENT")
    os.utime(prefix / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (prefix / "new").replace(prefix / "file")


def removed(prefix):
    (prefix / "file").unlink()


def made_a_pipe(prefix):
    (prefix / "file").unlink()
    os.mkfifo(prefix / "file")


def made_a_link(prefix):
    (prefix / "file").rename(prefix / "other")
    (prefix / "file").symlink_to("other")


def test_nothing_is_read_of_what_did_not_change(prefix, read):
    assert damaged_files(prefix) == ()
    assert read == []


@pytest.mark.parametrize(
    "damage", [appended, changed_in_place, exchanged_with_its_time, removed, made_a_pipe, made_a_link]
)
def test_a_changed_file_is_named_and_only_it_is_read(prefix, read, damage):
    os.utime(prefix / "file", ns=(0, 0))
    write_index(prefix)
    damage(prefix)
    assert damaged_files(prefix) == ("file",)
    assert read == ["file"]


def test_a_link_that_leads_elsewhere_is_named(prefix):
    (prefix / "bin/link").unlink()
    (prefix / "bin/link").symlink_to("../file")
    assert damaged_files(prefix) == ("bin/link",)


def test_a_changed_inventory_is_named(prefix):
    text = (prefix / INVENTORY).read_text()
    (prefix / INVENTORY).write_text(text.replace(hashlib.sha256(b"content").hexdigest(), "0" * 64))
    assert damaged_files(prefix) == (INVENTORY,)
    (prefix / INVENTORY).unlink()
    assert damaged_files(prefix) == (INVENTORY,)


@pytest.mark.parametrize(
    "text", [None, "{", "[]", '{"schema": 0, "files": {}}', '{"schema": 1, "files": {"file": [1]}}']
)
def test_without_an_index_all_is_read_once(prefix, read, text):
    index_of(prefix).unlink()
    if text is not None:
        index_of(prefix).write_text(text)
    assert damaged_files(prefix) == ()
    assert sorted(read) == ["bin/link", "bin/program", "file"]
    read.clear()
    assert damaged_files(prefix) == ()
    assert read == []


def test_a_copied_store_is_read_once(prefix, read, tmp_path):
    shutil.copytree(prefix.parent, tmp_path / "copy", symlinks=True)
    copy = tmp_path / "copy/key"
    assert damaged_files(copy) == ()
    assert sorted(read) == ["bin/link", "bin/program", "file"]
    read.clear()
    assert damaged_files(copy) == ()
    assert read == []


def test_a_damaged_environment_is_removed_with_what_shares_the_damage(prefix, cache):
    for kind in ("conda-packages", "bytecode"):
        for name in ("shares", "does-not"):
            (cache / kind / name / "deep").mkdir(parents=True)
            (cache / kind / name / "deep/file").write_text("content")
        (cache / kind / "shares/deep/file").unlink()
        os.link(prefix / "file", cache / kind / "shares/deep/file")
    appended(prefix)
    discard(prefix, ["file", "gone"], cache)
    assert sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if not path.is_dir()) == [
        "bytecode/does-not/deep/file",
        "conda-packages/does-not/deep/file",
    ]


def test_a_file_that_python_adds_to_a_folder_is_no_damage_and_no_reason_to_read(prefix, read):
    (prefix / "empty/added").touch()
    assert damaged_files(prefix) == ()
    assert read == []


@pytest.mark.parametrize("in_its_place", [None, Path.touch])
def test_a_folder_that_is_missing_is_named(prefix, in_its_place):
    (prefix / "empty").rmdir()
    if in_its_place:
        in_its_place(prefix / "empty")
    assert differing(prefix, read_inventory(prefix)) == ("empty",)


def test_what_is_gone_already_or_cannot_be_removed_is_no_error(prefix, cache, monkeypatch):
    (cache / "bytecode/shares").mkdir(parents=True)
    os.link(prefix / "file", cache / "bytecode/shares/file")
    index_of(prefix).unlink()

    def rmdir(*_, **options):
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr("os.rmdir", rmdir)
        discard(prefix, ["file"], cache)
    discard(prefix, ["file"], cache)
    assert not prefix.exists()
    discard(prefix, ["file"], cache)


def test_a_build_finds_what_is_intact_and_says_what_it_makes_again(prefix, cache):
    steps = Steps()
    assert find_intact(prefix, cache, steps).prefix == prefix
    assert steps.seen == []
    appended(prefix)
    (prefix / "bin/program").write_text("!#")
    assert find_intact(prefix, cache, steps) is None
    assert steps.seen == [f"{prefix}/bin/program was changed (and 1 more); the environment is made again"]
    assert not prefix.exists()
    assert read_index(prefix) == {}
    assert find_intact(prefix, cache, steps) is None


def test_modes_that_one_model_changed_are_restored_for_the_others(prefix, cache):
    """``chmod -R 700`` of a model's folder reaches every hard link of its files: no other user could read them."""
    program, file = prefix / "bin/program", prefix / "file"
    assert find_intact(prefix, cache, Steps()).prefix == prefix
    program.chmod(0o700)
    file.chmod(0o600)
    steps = Steps()
    assert find_intact(prefix, cache, steps).prefix == prefix
    assert steps.seen == []
    assert [stat.S_IMODE(place.stat().st_mode) for place in (program, file)] == [0o555, 0o444]


def test_a_pipe_in_place_of_an_empty_file_is_not_read(prefix):
    os.mkfifo(prefix / "pipe")
    writer = threading.Thread(target=(prefix / "pipe").write_bytes, args=(b"",), daemon=True)
    writer.start()
    empty = Entry("pipe", "file", "x", 0, hashlib.sha256(b"").hexdigest())
    assert differing(prefix, [empty]) == ("pipe",)
    reader = os.open(prefix / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer.join(timeout=60)
    os.close(reader)
    assert not writer.is_alive()

"""Folders made of a small environment."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from envpack.archive.folder import changed_files, is_folder_of_mode, locked_destination, place_folder
from envpack.archive.selection import Selection
from envpack.environment.inventory import INVENTORY, parse_inventory
from envpack.environment.store import MANIFEST, read_environment, write_index
from envpack.support.errors import StorageError
from tests.steps import Steps

from .conftest import Prefixes, files_below, names_in


def test_folder_shares_its_files_with_the_store(environment, tmp_path):
    assert place_folder(environment, tmp_path / "repository/m/env", link_mode="hardlink") is True
    placed = tmp_path / "repository/m/env"
    assert (placed / "bin/tool").samefile(environment.prefix / "bin/tool")
    assert (placed / "bin/link").readlink() == Path("tool")
    assert (placed / "lib64").is_symlink()
    assert (placed / "lib/empty").is_dir()
    assert not (placed / "CACHEDIR.TAG").exists()
    assert not (placed / "conda-meta/x.lock").exists()


def test_a_placed_folder_can_be_entered_whatever_the_umask(environment, tmp_path):
    before = os.umask(0o077)
    place_folder(environment, tmp_path / "env")
    os.umask(before)
    folders = [path for path in (tmp_path / "env").rglob("*") if path.is_dir() and not path.is_symlink()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o755}
    assert {(tmp_path / "env" / name).stat().st_mode & 0o777 for name in (MANIFEST, INVENTORY)} == {0o444}


def test_folders_that_hold_files_and_folders_are_made_once(prefixes, tmp_path):
    def add(prefix):
        for path in ("deep/a/x", "deep/b", "deep/c/d/x", "deep/c/x"):
            (prefix / path).parent.mkdir(parents=True, exist_ok=True)
            (prefix / path).write_text(path)

    place_folder(prefixes.make("two", add), tmp_path / "env")
    found = {str(path.relative_to(tmp_path / "env")) for path in (tmp_path / "env/deep").rglob("*") if path.is_file()}
    assert found == {"deep/a/x", "deep/b", "deep/c/d/x", "deep/c/x"}


def test_folder_holds_and_describes_what_was_chosen(environment, tmp_path):
    selection = Selection(exclude=("/lib/large.so",), include=("/include/",))
    place_folder(environment, tmp_path / "env", selection)
    listed = {entry.path for entry in parse_inventory((tmp_path / "env" / INVENTORY).read_bytes())}
    assert set(files_below(tmp_path / "env")) == listed | {MANIFEST, INVENTORY}
    assert "include/x.h" in listed
    assert "lib/large.so" not in listed
    assert read_environment(tmp_path / "env").size < environment.size


def test_folder_on_another_file_system_is_a_copy(environment, other_file_system):
    assert place_folder(environment, other_file_system / "env") is True
    assert (other_file_system / "env/bin/tool").stat().st_mode & 0o777 == 0o755


def test_same_environment_is_not_placed_twice(environment, tmp_path):
    place_folder(environment, tmp_path / "env")
    before = (tmp_path / "env").stat().st_ino
    assert place_folder(environment, tmp_path / "env") is False
    assert (tmp_path / "env").stat().st_ino == before
    assert place_folder(environment, tmp_path / "env", Selection(include=("/include/",))) is True


def test_a_folder_that_another_process_has_just_placed_is_left_alone(environment, tmp_path, monkeypatch):
    place_folder(environment, tmp_path / "env")
    before, answers = (tmp_path / "env").stat().st_ino, [False, True]
    monkeypatch.setattr("envpack.archive.folder.holds", lambda *_: answers.pop(0))
    assert place_folder(environment, tmp_path / "env") is False
    assert ((tmp_path / "env").stat().st_ino, answers) == (before, [])


def test_links_that_became_files_on_the_way_are_no_change(environment, tmp_path):
    """Object storage keeps no links, and copies no modes or time stamps."""
    place_folder(environment, tmp_path / "env")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "env", copy, copy_function=shutil.copyfile)
    assert not any(path.is_symlink() for path in copy.rglob("*"))
    assert changed_files(copy, environment.key) == ()
    (copy / "bin/link").write_text("other")
    assert changed_files(copy, environment.key) == ("bin/link",)
    (copy / "bin/link").unlink()
    assert changed_files(copy, environment.key) == ("bin/link",)
    (copy / "bin/link").symlink_to("nothing")
    shutil.rmtree(copy / "lib64")
    assert changed_files(copy, environment.key) == ("bin/link", "lib64")


def test_other_environment_replaces_the_folder_and_leaves_nothing_behind(environment, prefixes, tmp_path):
    target = tmp_path / "m/env"
    place_folder(environment, target)
    (target.parent / ".env.killed00.partial").mkdir()
    assert place_folder(prefixes.make("two"), target) is True
    assert json.loads((target / MANIFEST).read_text())["key"] == "two"
    assert names_in(target.parent) == ["env"]


def test_leftovers_that_cannot_be_removed_or_are_gone_are_no_error(tmp_path, cache, monkeypatch):
    """Another process may remove them at the same time."""

    def refuse(*_, **__):
        raise PermissionError

    (tmp_path / ".env.killed00.partial").mkdir()
    (tmp_path / ".env.file0000.partial").touch()
    (tmp_path / ".env2.killed00.partial").touch()
    monkeypatch.setattr("os.rmdir", refuse)
    with locked_destination(tmp_path / "env"):
        assert sorted(path.name for path in tmp_path.glob(".env*")) == [
            ".env.killed00.partial",
            ".env2.killed00.partial",
        ]
    monkeypatch.setattr("envpack.support.replacement.temporaries_of", lambda path: [path.with_name(".gone.partial")])
    with locked_destination(tmp_path / "env"):
        pass


def test_the_folders_above_are_made(tmp_path, cache):
    with locked_destination(tmp_path / "models/m/env"):
        assert (tmp_path / "models/m").is_dir()


def test_leftovers_of_a_name_with_wildcards_are_its_own(tmp_path, cache):
    for name in (".e*v.abcd_123.partial", ".env.abcd_123.partial", ".e[v.abcd_123.partial"):
        (tmp_path / name).touch()
    with locked_destination(tmp_path / "e*v"), locked_destination(tmp_path / "e[v"):
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".env.abcd_123.partial"]


def test_a_link_of_a_leftovers_name_is_removed_and_not_what_it_leads_to(tmp_path, cache):
    (tmp_path / "precious").mkdir()
    (tmp_path / ".env.abcd_123.partial").symlink_to("precious")
    with locked_destination(tmp_path / "env"):
        assert not (tmp_path / ".env.abcd_123.partial").is_symlink()
    assert (tmp_path / "precious").is_dir()


def test_folder_that_cannot_be_written_is_a_clear_error(environment, tmp_path, permissions_for_root):
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(StorageError, match="cannot be read or written: Permission denied") as caught:
        place_folder(environment, tmp_path / "closed/env")
    assert caught.value.kind == "not-writable"


def changed_through_a_link(placed):
    with (placed / "lib/changed-by-pip.txt").open("a") as file:
        file.write("!")


def exchanged(placed):
    (placed / "lib/changed-by-pip.txt").unlink()
    (placed / "lib/changed-by-pip.txt").write_text("AS TESTED")


def removed(placed):
    (placed / "lib/changed-by-pip.txt").unlink()


@pytest.mark.parametrize("damage", [changed_through_a_link, exchanged, removed])
def test_a_folder_with_a_changed_file_is_placed_again_and_the_file_named(prefixes, cache, tmp_path, damage):
    environment = Prefixes(cache / "environments").make("one")
    write_index(environment.prefix)
    place_folder(environment, tmp_path / "env")
    before = (environment.prefix / "lib/changed-by-pip.txt").read_bytes()
    damage(tmp_path / "env")
    (environment.prefix / "lib/changed-by-pip.txt").unlink()  # as the store is mended before
    (environment.prefix / "lib/changed-by-pip.txt").write_bytes(before)
    os.utime(environment.prefix / "lib/changed-by-pip.txt", (0, 0))
    write_index(environment.prefix)
    steps = Steps()
    assert changed_files(tmp_path / "env", "one") == ("lib/changed-by-pip.txt",)
    assert place_folder(environment, tmp_path / "env", progress=steps) is True
    assert (tmp_path / "env/lib/changed-by-pip.txt").read_bytes() == before
    assert steps.seen == [f"{tmp_path / 'env/lib/changed-by-pip.txt'} was changed; the environment is placed again"]
    assert place_folder(environment, tmp_path / "env", progress=steps) is False


def test_a_copy_on_a_file_system_with_coarse_time_stamps_is_not_suspected(cache, tmp_path):
    environment = Prefixes(cache / "environments").make("one")
    original, copy = environment.prefix / "bin/tool", tmp_path / "env/bin/tool"
    os.utime(original, ns=(0, 10_123_456_789))
    write_index(environment.prefix)
    place_folder(environment, tmp_path / "env")
    copy.unlink()
    shutil.copy(original, copy)
    os.utime(copy, (0, 10))
    assert place_folder(environment, tmp_path / "env") is False
    os.utime(copy, (0, 13))
    assert place_folder(environment, tmp_path / "env") is True


def test_without_the_store_the_size_tells_of_changes(environment, tmp_path):
    place_folder(environment, tmp_path / "env")
    file = tmp_path / "env/lib/changed-by-pip.txt"
    os.utime(file, (0, 0))
    assert changed_files(tmp_path / "env", "one") == ()
    file.write_text("longer than it was")
    assert changed_files(tmp_path / "env", "one") == ("lib/changed-by-pip.txt",)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a\0b", 7])
def test_an_inventory_of_others_leads_nowhere(environment, tmp_path, path):
    place_folder(environment, tmp_path / "env")
    (tmp_path / "env" / INVENTORY).unlink()
    (tmp_path / "outside").write_text("x")
    text = json.dumps({"schema": 1, "files": [[path, "file", "x", 99, "", "", ""]]})
    (tmp_path / "env" / INVENTORY).write_text(text)
    manifest = json.loads((tmp_path / "env" / MANIFEST).read_text())
    (tmp_path / "env" / MANIFEST).unlink()
    manifest["content"] = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "env" / MANIFEST).write_text(json.dumps(manifest))
    assert changed_files(tmp_path / "env", "one") == ()


def test_a_folder_of_another_program_has_no_list_of_files(tmp_path):
    (tmp_path / MANIFEST).write_text('{"packages": []}')
    assert changed_files(tmp_path, "one") == ()


@pytest.mark.parametrize("link_mode", ["auto", "copy"])
@pytest.mark.parametrize("text", [None, "", "[]", '{"schema": 1, "files": []}'])
def test_a_folder_whose_list_of_files_is_damaged_is_placed_again(environment, tmp_path, text, link_mode):
    """What is left of the list would make a folder without files a complete one."""
    place_folder(environment, tmp_path / "env", link_mode=link_mode)
    listed = (tmp_path / "env" / INVENTORY).read_bytes()
    (tmp_path / "env" / INVENTORY).unlink()
    (tmp_path / "env/bin/tool").unlink()
    if text is not None:
        (tmp_path / "env" / INVENTORY).write_text(text)
    steps = Steps()
    assert is_folder_of_mode(link_mode, tmp_path / "env", environment)
    assert changed_files(tmp_path / "env", environment.key) == (INVENTORY,)
    assert place_folder(environment, tmp_path / "env", link_mode=link_mode, progress=steps) is True
    assert steps.seen == [f"{tmp_path / 'env' / INVENTORY} was changed; the environment is placed again"]
    assert (tmp_path / "env" / INVENTORY).read_bytes() == listed
    assert (tmp_path / "env/bin/tool").exists()


def test_a_change_in_place_is_noticed_whatever_its_size_and_however_soon(cache, tmp_path):
    environment = Prefixes(cache / "environments").make("one")
    write_index(environment.prefix)
    place_folder(environment, tmp_path / "env")
    (tmp_path / "env/lib/changed-by-pip.txt").write_text("AS TESTED")
    assert changed_files(tmp_path / "env", "one") == ("lib/changed-by-pip.txt",)


def test_where_no_links_can_be_made_the_form_without_links_is_named(environment, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.symlink", refuse)
    with pytest.raises(StorageError, match="no symbolic links can be made here") as caught:
        place_folder(environment, tmp_path / "env")
    assert (caught.value.where, caught.value.hint) == (str(tmp_path / "env"), "build with --format tar.gz")
    assert not (tmp_path / "env").exists()

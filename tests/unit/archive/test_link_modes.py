"""How files get from the store to a model: as clones, hard links or copies."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from envpack.archive.folder import changed_files, place_folder
from envpack.archive.tarball import pack_archive
from envpack.support.errors import StorageError
from envpack.support.links_and_modes import Transfer

from .conftest import LARGE, Prefixes, names_in

FILE = "lib/large.so"


def mounted(folder, *options):
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", *options, folder], check=False, capture_output=True).returncode:
        pytest.skip("another file system can be mounted by root only")
    return folder


@pytest.fixture
def cloning(tmp_path):
    """A folder on a file system that can clone files."""
    if not shutil.which("mkfs.xfs"):
        pytest.skip("mkfs.xfs is not installed")
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 310 << 20)
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    folder = mounted(tmp_path / "xfs", "-o", "loop", image)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def linking(tmp_path):
    """A folder on a file system that can make hard links, but no clones."""
    folder = mounted(tmp_path / "tmpfs", "-t", "tmpfs", "-o", "size=200m", "tmpfs")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def stored(monkeypatch):
    """Make an environment in a cache in a folder."""

    def make(folder):
        monkeypatch.setenv("ENVPACK_CACHE_DIR", str(folder / "cache"))
        (folder / "cache/environments").mkdir(parents=True)
        return Prefixes(folder / "cache/environments").make("one")

    return make


def damage(folder):
    with (folder / FILE).open("ab") as file:
        file.write(b"damage")


def shares_inode(environment, placed):
    return (placed / FILE).samefile(environment.prefix / FILE)


def bytes_used(folder):
    os.sync()
    return (os.statvfs(folder).f_blocks - os.statvfs(folder).f_bfree) * os.statvfs(folder).f_frsize


def test_a_clone_uses_no_space_and_a_write_to_it_changes_nothing_else(cloning, stored):
    environment = stored(cloning)
    before = bytes_used(cloning)
    assert place_folder(environment, cloning / "env") is True
    assert bytes_used(cloning) - before < len(LARGE)
    assert not shares_inode(environment, cloning / "env")
    assert (cloning / "env" / FILE).read_bytes() == LARGE
    assert (cloning / "env" / FILE).stat().st_mtime_ns == (environment.prefix / FILE).stat().st_mtime_ns
    assert (cloning / "env/bin/tool").stat().st_mode == (environment.prefix / "bin/tool").stat().st_mode
    damage(cloning / "env")
    assert (environment.prefix / FILE).read_bytes() == LARGE


def test_a_changed_clone_is_noticed_and_placed_again(cloning, stored):
    environment = stored(cloning)
    place_folder(environment, cloning / "env")
    assert (place_folder(environment, cloning / "env"), changed_files(cloning / "env", "one")) == (False, ())
    damage(cloning / "env")
    assert changed_files(cloning / "env", "one") == (FILE,)
    assert place_folder(environment, cloning / "env") is True
    assert changed_files(cloning / "env", "one") == ()


@pytest.mark.parametrize(("mode", "shared"), [("auto", True), ("hardlink", True), ("copy", False)])
def test_where_nothing_can_be_cloned_hard_links_are_made_unless_copies_are_asked_for(linking, mode, shared, stored):
    environment = stored(linking)
    place_folder(environment, linking / "env", link_mode=mode)
    assert shares_inode(environment, linking / "env") == shared
    assert (linking / "env" / FILE).read_bytes() == LARGE


@pytest.mark.parametrize(("mode", "shared"), [("auto", False), ("clone", False), ("hardlink", True), ("copy", False)])
def test_where_files_can_be_cloned_the_mode_decides(cloning, mode, shared, stored):
    environment = stored(cloning)
    place_folder(environment, cloning / "env", link_mode=mode)
    assert shares_inode(environment, cloning / "env") == shared


def test_a_copy_uses_its_own_space_where_files_could_be_cloned(cloning, stored):
    environment = stored(cloning)
    before = bytes_used(cloning)
    place_folder(environment, cloning / "env", link_mode="copy")
    assert bytes_used(cloning) - before >= len(LARGE)


@pytest.mark.parametrize("mode", ["clone", "hardlink"])
@pytest.mark.parametrize("place", [place_folder, pack_archive])
def test_a_mode_that_the_file_systems_do_not_support_is_refused_and_nothing_changes(
    linking, tmp_path, place, mode, stored
):
    environment = stored(linking)
    models = {"clone": linking, "hardlink": tmp_path}[mode] / "models"
    with pytest.raises(StorageError) as caught:
        place(environment, models / "env", link_mode=mode)
    assert (caught.value.kind, caught.value.exit_code) == ("link-mode-unsupported", 7)
    assert caught.value.where == str(models / "env")
    assert names_in(models) == []


@pytest.mark.parametrize("place", [place_folder, pack_archive])
def test_another_mode_places_the_same_files_anew_and_auto_leaves_them(environment, tmp_path, place):
    target = tmp_path / "env"
    changed = {}
    for mode in ("hardlink", "copy", "auto"):
        changed[mode] = [place(environment, target, link_mode=mode) for _ in range(2)]
    assert changed == {"hardlink": [True, False], "copy": [True, False], "auto": [False, False]}


def test_a_file_that_exists_is_never_cloned_over(cloning):
    Path(cloning, "a").write_text("new")
    Path(cloning, "b").write_text("old")
    with pytest.raises(FileExistsError):
        Transfer("clone", cloning)(str(cloning / "a"), str(cloning / "b"))
    assert Path(cloning, "b").read_text() == "old"

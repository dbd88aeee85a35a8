"""Folders and archives made from a small conda prefix without an interpreter; real ones are in tests/environment."""

import json
import os
import tarfile
from pathlib import Path

import pytest

from envpack.archive import pack_tar_gz, place_folder
from envpack.archive.tarball import check_archive, sidecar_of
from envpack.environment.activation import write_activation
from envpack.environment.inventory import find_owners, take_inventory, write_inventory
from envpack.environment.store import MANIFEST, SCHEMA, Environment, read_environment
from envpack.errors import EnvironmentBuildError


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return make(tmp_path / "store/one", "one")


def make(prefix: Path, key: str) -> Environment:
    for folder in ("bin", "conda-meta", "lib/empty"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "bin/tool").write_text("#!/bin/sh\n")
    (prefix / "bin/tool").chmod(0o755)
    (prefix / "bin/link").symlink_to("tool")
    (prefix / "lib64").symlink_to("lib")
    (prefix / "lib/changed-by-pip.txt").write_text("as tested")
    (prefix / "conda-meta/history").touch()
    (prefix / "conda-meta/x.lock").touch()
    (prefix / "CACHEDIR.TAG").touch()
    cache = prefix.parent / "package-cache"
    (cache / "lib").mkdir(parents=True, exist_ok=True)
    (cache / "lib/changed-by-pip.txt").write_text("original")
    record = {
        "name": "x", "version": "1", "url": "", "files": ["lib/changed-by-pip.txt"], "link": {"source": str(cache)}
    }  # fmt: skip
    (cache / "info").mkdir(exist_ok=True)
    (cache / "info/files").write_text("lib/changed-by-pip.txt\n")
    (prefix / "conda-meta/x-1-0.json").write_text(json.dumps(record))
    write_activation(prefix)
    entries = take_inventory(prefix, find_owners(prefix, "3.8"))
    told = {
        "schema": SCHEMA, "key": key, "python": "3.8.1", "minor": "3.8", "packages": [], "glibc": "2.17", "glibcxx": "",
        "platform": "linux-64", "size": 1, "content": write_inventory(prefix, entries),
    }  # fmt: skip
    (prefix / MANIFEST).write_text(json.dumps(told))
    return read_environment(prefix)


def members(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as content:
        return {member.name: member for member in content}


def text(archive: Path, name: str) -> str:
    with tarfile.open(archive) as content:
        return content.extractfile(name).read().decode()


def test_folder_shares_its_files_with_the_store(environment, tmp_path):
    assert place_folder(environment, tmp_path / "repository/m/env") is True
    placed = tmp_path / "repository/m/env"
    assert (placed / "bin/tool").samefile(environment.prefix / "bin/tool")
    assert (placed / "bin/link").readlink() == Path("tool")
    assert (placed / "lib64").is_symlink()
    assert (placed / "lib/empty").is_dir()
    assert not (placed / "CACHEDIR.TAG").exists()
    assert not (placed / "conda-meta/x.lock").exists()


def test_folder_on_another_file_system_is_a_copy(environment):
    other = Path("/dev/shm") / f"envpack-test-{os.getpid()}"
    if not os.access("/dev/shm", os.W_OK) or Path("/dev/shm").stat().st_dev == environment.prefix.stat().st_dev:
        pytest.skip("/dev/shm is missing or no file system of its own")
    import shutil

    try:
        assert place_folder(environment, other / "env") is True
        assert (other / "env/bin/tool").stat().st_mode & 0o777 == 0o755
    finally:
        shutil.rmtree(other, ignore_errors=True)


def test_same_environment_is_not_placed_twice(environment, tmp_path):
    place_folder(environment, tmp_path / "env")
    before = (tmp_path / "env").stat().st_ino
    assert place_folder(environment, tmp_path / "env") is False
    assert (tmp_path / "env").stat().st_ino == before


def test_other_environment_replaces_the_folder_and_leaves_nothing_behind(environment, tmp_path):
    target = tmp_path / "m/env"
    place_folder(environment, target)
    (target.parent / ".env.killed.partial").mkdir()
    other = make(tmp_path / "store/two", "two")
    assert place_folder(other, target) is True
    assert json.loads((target / MANIFEST).read_text())["key"] == "two"
    assert names_in(target.parent) == ["env"]


def test_archive_keeps_our_activation_and_is_readable_for_everybody(environment, tmp_path):
    archive = tmp_path / "env.tar.gz"
    assert pack_tar_gz(environment, archive) is True
    assert "PYTHONNOUSERSITE=1" in text(archive, "bin/activate")
    assert text(archive, "pyvenv.cfg") == "include-system-site-packages = false\n"
    assert archive.stat().st_mode & 0o777 == 0o644
    found = members(archive)
    assert (found["bin/tool"].mode, found["bin/activate"].mode) == (0o755, 0o644)
    assert found["bin/link"].issym()
    assert found["lib/empty"].isdir()
    assert {"CACHEDIR.TAG", "conda-meta/x.lock", "bin/conda-unpack"}.isdisjoint(found)


def test_archive_holds_what_was_tested_not_the_cached_original(environment, tmp_path):
    pack_tar_gz(environment, tmp_path / "env.tar.gz")
    assert text(tmp_path / "env.tar.gz", "lib/changed-by-pip.txt") == "as tested"


def test_files_that_name_the_prefix_are_listed_for_conda_unpack(environment, tmp_path):
    (environment.prefix / "lib/settings.txt").write_text(f"root={environment.prefix}\n")
    pack_tar_gz(environment, tmp_path / "env.tar.gz")
    assert "lib/settings.txt" in text(tmp_path / "env.tar.gz", "bin/conda-unpack")
    assert "PYTHONNOUSERSITE=1" in text(tmp_path / "env.tar.gz", "bin/activate")


def test_same_environment_gives_the_same_bytes(environment, tmp_path):
    pack_tar_gz(environment, tmp_path / "a.tar.gz")
    os.utime(environment.prefix / "bin/tool", (1, 1))
    pack_tar_gz(environment, tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_up_to_date_archive_is_left_alone_until_it_is_damaged(environment, tmp_path):
    archive = tmp_path / "env.tar.gz"
    pack_tar_gz(environment, archive)
    assert pack_tar_gz(environment, archive) is False
    os.utime(archive, (1, 1))
    assert pack_tar_gz(environment, archive) is False
    archive.write_bytes(b"x" * archive.stat().st_size)
    assert pack_tar_gz(environment, archive) is True
    sidecar_of(archive).unlink()
    assert pack_tar_gz(environment, archive) is True


def test_interrupted_packing_keeps_the_old_archive(environment, tmp_path, monkeypatch):
    archive = tmp_path / "out/env.tar.gz"
    pack_tar_gz(environment, archive)
    before = archive.read_bytes()
    other = make(tmp_path / "store/two", "two")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("envpack.archive.tarball.check_archive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pack_tar_gz(other, archive)
    assert archive.read_bytes() == before
    assert names_in(archive.parent) == ["env.tar.gz", "env.tar.gz.json"]


def test_what_is_no_conda_environment_is_refused(environment, tmp_path):
    (environment.prefix / "conda-meta").rename(tmp_path / "gone")
    with pytest.raises(EnvironmentBuildError) as caught:
        pack_tar_gz(environment, tmp_path / "env.tar.gz")
    assert caught.value.kind == "conda-pack-failed"


@pytest.mark.parametrize("name", ["/absolute", "a/../../b", "bin/activate", "lib64/through-a-link"])
def test_names_that_a_server_refuses_are_found(environment, tmp_path, name):
    archive = tmp_path / "env.tar.gz"
    with tarfile.open(archive, "w:gz") as content:
        content.add(environment.prefix / "lib64", "lib64")
        content.add(environment.prefix / "bin/activate", "bin/activate")
        content.add(environment.prefix / "pyvenv.cfg", "pyvenv.cfg")
        member = tarfile.TarInfo(name)
        content.addfile(member)
    with pytest.raises(EnvironmentBuildError) as caught:
        check_archive(archive, environment.prefix)
    assert caught.value.kind == "bad-archive"


def test_folder_that_cannot_be_written_is_a_clear_error(environment, tmp_path):
    (tmp_path / "file").touch()
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(EnvironmentBuildError, match="cannot be written"):
        place_folder(environment, tmp_path / "closed/env")

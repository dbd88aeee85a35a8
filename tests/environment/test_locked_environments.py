"""Environments from locks alone: what is downloaded, what is installed, and what their files contain."""

import dataclasses
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.inspection import inspect_environment
from envpack.archive.tarball import pack_archive
from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.inventory import read_inventory
from envpack.environment.store import MANIFEST
from envpack.lock.lockfile import read_lock, write_lock
from envpack.lock.pip import install_pip
from envpack.requirements.model import Requirements
from tests.built import build_environment, environment_of

from .locks import BOTH, lock_for, names, refused
from .sources import PYTHON

pytestmark = pytest.mark.usefixtures("own_index")


@pytest.mark.thorough
def test_two_machines_make_the_same_files_from_one_lock(served, tmp_path):
    write_lock(lock_for(BOTH, served, tmp_path / "a"), tmp_path / "envpack.lock")
    lock = read_lock(tmp_path / "envpack.lock")
    first = environment_of(lock, cache=tmp_path / "a")
    second = environment_of(lock, cache=tmp_path / "much/longer/path with spaces/ü/b")
    assert (first.prefix / MANIFEST).read_bytes() == (second.prefix / MANIFEST).read_bytes()
    assert read_inventory(first.prefix) == read_inventory(second.prefix)


def test_a_lock_is_installed_without_the_network_once_the_cache_has_its_packages(served, tmp_path, monkeypatch):
    lock = lock_for(BOTH, served, tmp_path)
    shutil.rmtree(environment_of(lock, cache=tmp_path).prefix)
    served.requested.clear()
    monkeypatch.setenv("UV_OFFLINE", "1")
    assert environment_of(lock, cache=tmp_path).fresh
    assert served.requested == []


@pytest.mark.thorough
def test_wheels_in_the_cache_are_not_requested_again(served, tmp_path):
    lock = lock_for(BOTH, served, tmp_path)
    without_tree = dataclasses.replace(lock, pip=tuple(package for package in lock.pip if package.name != "tree"))
    environment_of(without_tree, cache=tmp_path)
    served.requested.clear()
    built = environment_of(lock, cache=tmp_path)
    assert {package.name for package in built.packages if package.source == "pip"} == {
        package.name for package in lock.pip
    }
    assert {path.rpartition("/")[2].partition("-")[0] for path in served.requested} == {"tree"}


@pytest.mark.thorough
def test_what_an_incomplete_cache_lacks_is_named_without_the_network(served, tmp_path, monkeypatch):
    lock = lock_for(BOTH, served, tmp_path)
    monkeypatch.setenv("UV_OFFLINE", "1")
    error = refused(environment_of, dataclasses.replace(lock, pip=lock.pip[:1]), cache=tmp_path)
    assert error.kind == "not-in-cache", error.details
    assert "leaf==1.0" in error.message
    assert list((tmp_path / "environments").glob("[!.]*")) == []


def test_a_package_that_is_only_installed_in_part_is_an_error(served, tmp_path):
    """A full disk leaves a package like that, and a second run of uv skips it as installed."""
    lock = lock_for(BOTH, served, tmp_path)
    environment_of(lock, cache=tmp_path)  # from now on uv has the wheels
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python3.*/site-packages")
    (site / "tree.py").mkdir()  # in the way of a file of it
    error = refused(install_pip, lock.pip, venv, lock.target, python=venv / "bin/python")
    assert "tree.py" in error.message


@pytest.mark.thorough
def test_pip_takes_what_conda_provides(served, tmp_path):
    lock = lock_for(Requirements(conda=("shared",), pip=("uses-shared",)), served, tmp_path)
    assert names(lock)["shared"] == "2.0"
    assert [package.name for package in lock.pip] == ["uses-shared"]
    assert environment_of(lock, cache=tmp_path).fresh


@pytest.mark.thorough
def test_files_that_pip_takes_from_conda_are_listed(served, tmp_path):
    lock = lock_for(Requirements(conda=("shared",), pip=("uses-shared", "shared")), served, tmp_path)
    environment = environment_of(lock, cache=tmp_path)
    prefix = environment.prefix
    assert {(package.name, package.version, package.source) for package in environment.packages} >= {
        ("shared", "3.0", "pip")
    }
    assert ("shared", "2.0") not in {(package.name, package.version) for package in environment.packages}
    assert (prefix / f"lib/python{PYTHON}/site-packages/shared/__init__.py").read_text() == "VALUE = 'pip'\n"
    changed = json.loads((prefix / MANIFEST).read_text())["changed_hands"]
    module = f"lib/python{PYTHON}/site-packages/shared/__init__.py"
    assert {"path": module, "before": "conda shared", "after": "pip shared"} in changed


@pytest.mark.thorough
def test_a_conda_package_too_old_for_a_pip_package_is_an_error_that_names_both(served, tmp_path):
    lock = lock_for(Requirements(conda=("shared",), pip=("wants-new-shared",)), served, tmp_path)
    error = refused(environment_of, lock, cache=tmp_path)
    assert error.kind == "inconsistent"
    assert "wants-new-shared" in error.message
    assert "shared>=3" in error.message


@pytest.mark.thorough
def test_a_pth_file_that_points_outside_is_an_error_that_names_its_package(served, tmp_path):
    error = refused(environment_of, lock_for(Requirements(pip=("outward",)), served, tmp_path), cache=tmp_path)
    assert error.kind == "points-outside"
    assert "outward.pth of outward points to /somewhere/else" in error.message


@pytest.mark.thorough
def test_byte_code_belongs_to_the_version_for_any_spelling_of_the_name(served, tmp_path):
    """The package has another spelling in conda, and two versions with the same files."""
    versions = []
    for version in ("1.0", "1.1"):
        lock = lock_for(Requirements(conda=(f"under_scored =={version}",)), served, tmp_path)
        prefix = environment_of(lock, cache=tmp_path).prefix
        code = "import under_scored; print(under_scored.VALUE, under_scored.__cached__)"
        done = subprocess.run([prefix / "bin/python3", "-c", code], env={}, capture_output=True, text=True, check=True)
        versions.append(done.stdout.split()[0])
        assert Path(done.stdout.split()[1]).is_file()
    assert versions == ["1.0", "1.1"]


@pytest.mark.thorough
def test_files_contain_a_placeholder_for_the_unknown_prefix(served, tmp_path):
    environment = environment_of(lock_for(BOTH, served, tmp_path), cache=tmp_path)
    placeholders = {
        package.path: package.placeholder for package in read_inventory(environment.prefix) if package.placeholder
    }
    assert placeholders == {"etc/rooted.conf": "text", "lib/rooted.bin": "binary"}
    assert (environment.prefix / "etc/rooted.conf").read_text() == f"root = {PREFIX_PLACEHOLDER}/share\n"
    assert (environment.prefix / "bin/rooted").read_bytes().startswith(b"#!/usr/bin/env python3.10\nprint(")


def test_a_placed_environment_names_its_folder_and_an_archive_none(served, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path))
    environment = environment_of(lock_for(BOTH, served, tmp_path), cache=tmp_path)
    here, there = tmp_path / "m/env", tmp_path / "n/env"
    assert place_folder(environment, here)
    assert place_folder(environment, there, served_as="/models/n/env")
    assert (here / "etc/rooted.conf").read_text() == f"root = {here}/share\n"
    assert (there / "etc/rooted.conf").read_text() == "root = /models/n/env/share\n"
    assert b"\x01/models/n/env/share\0\0" in (there / "lib/rooted.bin").read_bytes()
    assert (environment.prefix / "etc/rooted.conf").read_text() == f"root = {PREFIX_PLACEHOLDER}/share\n"
    assert not place_folder(environment, there, served_as="/models/n/env")
    for folder in (here, there):
        assert inspect_environment(folder).findings == []
    pack_archive(environment, tmp_path / "env.tar")
    with tarfile.open(tmp_path / "env.tar") as archive:
        assert PREFIX_PLACEHOLDER.encode() in archive.extractfile("etc/rooted.conf").read()


@pytest.mark.thorough
def test_a_local_project_is_built_to_a_wheel_and_rebuilt_when_it_changes(served, tmp_path, monkeypatch):
    monkeypatch.delenv("UV_DEFAULT_INDEX")  # its build system comes from the real one
    project = tmp_path / "my project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['flit_core']\nbuild-backend = 'flit_core.buildapi'\n"
        "[project]\nname = 'mine'\nversion = '1.0'\ndescription = 'x'\n"
    )
    (project / "mine.py").write_text('"""Mine."""\nVALUE = 1\n')
    how = {"python": PYTHON, "channels": (served.url("/conda"),), "cache": tmp_path / "cache"}
    first = build_environment(Requirements(projects=(project,)), **how)
    shutil.copytree(project, tmp_path / "clone", copy_function=shutil.copyfile)  # with other times
    elsewhere = how | {"cache": tmp_path / "other"}
    assert build_environment(Requirements(projects=(tmp_path / "clone",)), **elsewhere).key == first.key
    module = f"lib/python{PYTHON}/site-packages/mine.py"
    assert not (first.prefix / module).is_symlink()
    assert (first.prefix / module).read_text() == '"""Mine."""\nVALUE = 1\n'
    assert list(first.prefix.rglob("direct_url.json")) == []
    (project / "mine.py").write_text('"""Mine."""\nVALUE = 2\n')
    second = build_environment(Requirements(projects=(project,)), **how)
    assert (second.prefix / module).read_text().endswith("VALUE = 2\n")


def test_an_environment_for_another_machine_gets_its_wheels_and_byte_code_of_this_one(served, tmp_path):
    environment = build_environment(
        Requirements(pip=("armed",)), python=PYTHON, channels=(served.url("/conda"),), platform="linux-aarch64",
        cache=tmp_path,
    )  # fmt: skip
    assert (environment.platform, environment.python) == ("linux-aarch64", "3.10.99")
    assert {package.name for package in environment.packages} == {"python", "armed"}
    assert (environment.prefix / "bin/arm").read_text().startswith("#!/usr/bin/env python3.10\n")
    for module in ("lib/python3.10/__pycache__/os", "lib/python3.10/site-packages/__pycache__/armed"):
        assert (environment.prefix / f"{module}.cpython-310.pyc").is_file()


@pytest.mark.thorough
def test_stripped_environments_work_and_have_another_key(served, tmp_path):
    lock = lock_for(Requirements(pip=("tree",)), served, tmp_path)
    plain = environment_of(lock, cache=tmp_path)
    small = environment_of(lock, cache=tmp_path, strip=True)
    assert small.key != plain.key
    code = "import ssl, sqlite3, ctypes, tree; print(tree.VALUE)"
    completed = subprocess.run(
        [small.prefix / "bin/python3", "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout == "1\n"
    assert environment_of(lock, cache=tmp_path).content == plain.content


@pytest.mark.thorough
def test_a_local_channel_that_is_gone_is_made_again(served, tmp_path, packaged):
    packaged(PYTHON, tmp_path)
    first = build_environment(Requirements(), python=PYTHON, cache=tmp_path)
    shutil.rmtree(tmp_path / "channel")
    shutil.rmtree(tmp_path / "conda-packages")
    shutil.rmtree(first.prefix)
    assert build_environment(Requirements(), python=PYTHON, cache=tmp_path).content == first.content


@pytest.mark.thorough
def test_a_source_that_cannot_be_built_is_named_with_the_output_of_its_build(served, tmp_path):
    lock = lock_for(Requirements(pip=("unbuildable",)), served, tmp_path, sources=(":all:",))
    error = refused(environment_of, lock, cache=tmp_path)
    assert (error.kind, "unbuildable" in error.message) == ("build-failed", True)
    assert "command 'gcc' failed" in error.details

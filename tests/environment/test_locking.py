"""Locks from real solves: a channel and an index that tests serve on 127.0.0.1."""

import hashlib
import json
import re
import subprocess
import sys

import pytest

from envpack.lock.lockfile import read_lock, write_lock
from envpack.requirements.model import Requirements
from envpack.requirements.target import Target
from envpack.support.errors import UsageError
from tests.built import build_environment, environment_of
from tests.web import serve
from tests.wheels import make_wheel, write_index

from .locks import BOTH, lock_for, names, refused
from .sources import PYTHON

pytestmark = pytest.mark.usefixtures("own_index")


def test_a_lock_names_every_package_with_address_and_hash(served, tmp_path):
    lock = lock_for(BOTH, served, tmp_path)
    assert names(lock) == {
        "python": lock.conda[1].version,
        "rooted": "1.0",
        "plain": "1.0",
        "tree": "1.0",
        "leaf": "1.0",
    }
    assert all(
        package.url.startswith(served.url()) and len(package.sha256) == 64 for package in (*lock.conda, *lock.pip)
    )


def test_rattler_reads_the_lock(served, tmp_path):
    write_lock(lock_for(BOTH, served, tmp_path), tmp_path / "envpack.lock")
    code = (
        "import sys, os, json, rattler\n"
        "found = rattler.LockFile.from_path(sys.argv[1]).default_environment()\n"
        "platform = found.platforms()[0]\n"
        "conda = found.conda_repodata_records_for_platform(platform)\n"
        "conda = [[package.name.normalized, package.sha256.hex()] for package in conda]\n"
        "pip = [[package.name, package.location] for package in found.pypi_packages_for_platform(platform)]\n"
        "print(json.dumps([sorted(conda), sorted(pip)]), flush=True)\n"
        "os._exit(0)\n"  # rattler can crash when its process exits
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "envpack.lock"], capture_output=True, text=True, check=True
    )
    lock = read_lock(tmp_path / "envpack.lock")
    assert json.loads(completed.stdout) == [
        [[package.name, package.sha256] for package in lock.conda],
        [[package.name, package.url] for package in lock.pip],
    ]


def test_the_same_requirements_are_resolved_once(served, tmp_path):
    how = {"python": PYTHON, "channels": (served.url("/conda"),), "cache": tmp_path}
    first = build_environment(BOTH, **how)
    served.requested.clear()
    assert build_environment(BOTH, **how).prefix == first.prefix
    assert served.requested == []


def test_an_index_that_has_not_changed_stays_for_other_processes(served, tmp_path):
    """The engine fails then, and must begin without the folder, in which another process may be writing."""
    lock_for(Requirements(), served, tmp_path)
    (shards,) = (tmp_path / "conda-index").glob("shards-*")
    (shards / "of-another-process").touch()
    lock_for(Requirements(conda=("plain",)), served, tmp_path)
    assert (shards / "of-another-process").exists()


def test_update_frees_one_package_and_leaves_the_others(served, tmp_path):
    old = lock_for(Requirements(pip=("tree", "leaf<1.1")), served, tmp_path)
    again = lock_for(Requirements(pip=("tree",)), served, tmp_path, previous=old)
    assert names(again)["leaf"] == "1.0"
    fresh = lock_for(Requirements(pip=("tree",)), served, tmp_path, previous=old, update=("leaf",))
    assert names(fresh)["leaf"] == "1.1"  # 1.2 is yanked


def test_update_frees_a_conda_package(served, tmp_path):
    old = lock_for(Requirements(conda=("plain <1.1",)), served, tmp_path)
    assert names(lock_for(Requirements(conda=("plain",)), served, tmp_path, previous=old))["plain"] == "1.0"
    freed = lock_for(Requirements(conda=("plain",)), served, tmp_path, previous=old, update=("plain",))
    assert names(freed)["plain"] == "1.1"


def test_update_of_something_that_is_not_locked_is_refused(served, tmp_path):
    old = lock_for(Requirements(conda=("plain",)), served, tmp_path)
    with pytest.raises(UsageError) as caught:
        lock_for(Requirements(conda=("plain",)), served, tmp_path, previous=old, update=("leaf",))
    assert caught.value.kind == "not-locked"


def test_a_yanked_version_is_chosen_only_by_its_exact_number(served, tmp_path):
    assert names(lock_for(Requirements(pip=("leaf",)), served, tmp_path))["leaf"] == "1.1"
    assert names(lock_for(Requirements(pip=("leaf==1.2",)), served, tmp_path))["leaf"] == "1.2"


def test_cuda_comes_from_the_target_not_from_this_machine(served, tmp_path):
    assert names(lock_for(Requirements(conda=("gpu",)), served, tmp_path))["gpu"] == "1.0"
    old = Target("linux-64", PYTHON, "2.35", "11.8")
    error = refused(lock_for, Requirements(conda=("gpu",)), served, tmp_path, target=old)
    assert error.kind == "unresolvable"
    assert "'gpu'" in error.message


@pytest.mark.parametrize("digest", [f"sha256:{'0' * 64}", f"sha512:{'0' * 128}"])
def test_hashes_of_requirements_are_held_to(served, tmp_path, digest):
    error = refused(lock_for, Requirements(pip=(f"leaf==1.1 --hash={digest}",)), served, tmp_path)
    assert error.kind == "hash-mismatch"
    assert "leaf" in error.message


def test_a_wheel_of_another_platform_alone_is_no_choice(served, tmp_path):
    error = refused(lock_for, Requirements(pip=("armed",)), served, tmp_path)
    assert error.kind == "wheel-missing"
    assert "'armed'" in error.message


def test_the_local_channel_has_nothing_for_other_machines(served, tmp_path):
    with pytest.raises(UsageError) as caught:
        lock_for(BOTH, served, tmp_path, channels=("local",), target=Target("linux-aarch64", PYTHON, "2.35"))
    assert caught.value.kind == "no-channel"


@pytest.mark.thorough
def test_sources_are_built_only_where_that_is_allowed(served, tmp_path):
    error = refused(lock_for, Requirements(pip=("sourced",)), served, tmp_path)
    assert (error.kind, "'sourced'" in error.message) == ("wheel-missing", True)
    assert "--allow-source sourced" in error.hint
    lock = lock_for(Requirements(pip=("sourced", "tree")), served, tmp_path, sources=("sourced",))
    assert [package.url.rpartition("/")[2] for package in lock.pip if package.name == "sourced"] == [
        "sourced-1.0.tar.gz"
    ]
    prefix = environment_of(lock, cache=tmp_path).prefix
    assert (prefix / f"lib/python{PYTHON}/site-packages/sourced.py").read_text() == "VALUE = 'built'\n"


def test_an_index_without_hashes_is_locked_by_the_hash_of_the_file(served, tmp_path, monkeypatch):
    wheel = make_wheel(tmp_path / "index/files", "bare", "1.0", {"bare.py": ""})
    write_index(tmp_path / "index", hashes=False)
    with serve(tmp_path / "index") as site:
        monkeypatch.setenv("UV_DEFAULT_INDEX", site.url("/simple"))
        lock = lock_for(Requirements(pip=("bare",)), served, tmp_path / "cache")
    assert [package.sha256 for package in lock.pip] == [hashlib.sha256(wheel.read_bytes()).hexdigest()]


@pytest.mark.thorough
def test_a_damaged_remembered_lock_is_ignored(served, tmp_path):
    """A changed digit in it would be another hash of a package."""
    how = {"python": PYTHON, "channels": (served.url("/conda"),), "cache": tmp_path}
    first = build_environment(BOTH, **how)
    (remembered,) = (tmp_path / "solutions").glob("*.lock")
    another = re.sub(r"(?<=sha256: )[0-9a-f]", lambda digit: "1" if digit[0] == "0" else "0", remembered.read_text())
    remembered.write_text(another)
    assert build_environment(BOTH, **how).prefix == first.prefix

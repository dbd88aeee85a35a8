"""Locks through a store, and the packages that only one machine has."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.lock.lockfile import Lock, lock_key, wheel_not_here
from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.target import Target
from envpack.store.shared import open_store
from envpack.support.progress import NoProgress
from envpack.workflow.shared import find_lock, locate_packages, push_lock, push_packages
from tests.steps import Steps

from .conftest import paths, requests_to

LOCKED = Target("linux-64", "3.8", "2.35", "")
REQUIRED = Requirements(pip=("numpy",))


@pytest.fixture
def packages(tmp_path):
    """A lock with an interpreter and a wheel in files of this machine, and one of an index."""
    found = []
    for name, content in (("python-3.8.1-0.conda", b"interpreter"), ("own-1-py3-none-any.whl", b"a wheel")):
        file = tmp_path / "files" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        found.append((file, hashlib.sha256(content).hexdigest()))
    conda = CondaPackage(
        name="python", version="3.8.1", build="0", subdir="linux-64", url=found[0][0].as_uri(), sha256=found[0][1]
    )
    pip = (
        PipPackage("own", "1", found[1][0].as_uri(), found[1][1], 7),
        PipPackage("away", "1", "https://files.example/away-1-py3-none-any.whl", "b" * 64, 1),
    )
    return Lock(LOCKED, ("local",), (conda,), pip)


def test_a_lock_is_found_by_what_was_asked_for(store, packages):
    key = lock_key(REQUIRED, LOCKED, ("local",))
    assert len(key) == 32
    others = {
        lock_key(Requirements(pip=("scipy",)), LOCKED, ("local",)),
        lock_key(REQUIRED, replace(LOCKED, python="3.9"), ("local",)),
        lock_key(REQUIRED, LOCKED, ("conda-forge",)),
        lock_key(REQUIRED, LOCKED, ("local",), ("x",)),
        lock_key(REQUIRED, LOCKED, ("local",), here=["of this machine"]),
    }
    assert len(others | {key}) == 6
    ordered = [lock_key(REQUIRED, LOCKED, ("local",), sources) for sources in (("a", "b"), ("b", "a"))]
    assert ordered[0] == ordered[1]
    assert find_lock(store, key, NoProgress()) is None
    push_lock(store, key, packages)
    found = find_lock(store, key, NoProgress())
    assert found.text == packages.text
    assert store.find("lock", key).facts == {"python": "3.8", "platform": "linux-64", "environment": packages.key}
    push_lock(store, key, replace(packages, pip=()))
    assert len(find_lock(store, key, NoProgress()).pip) == 2, "the first lock stays"


def test_the_store_is_asked_once_for_what_several_models_require(store, packages, url):
    push_lock(store, "a" * 32, packages)
    again = open_store(url, push=True)
    asked = requests_to(again)
    for _ in range(2):
        assert find_lock(again, "a" * 32, NoProgress()).text == packages.text
        push_packages(again, packages)
    assert len(asked) == len(set(asked)) == 6, "a record and a blob each of the lock and two packages"


def test_a_damaged_lock_counts_as_none_and_is_replaced(store, packages):
    for key, content in (("a" * 32, b"noise"), ("b" * 32, b"\xff")):
        store.add_bytes("lock", key, content, facts={})
        steps = Steps()
        assert find_lock(store, key, steps) is None
        assert "it contains no lock of this version of envpack" in steps.seen[0]
        push_lock(store, key, packages)
        assert find_lock(store, key, NoProgress()).text == packages.text


def test_a_lock_whose_wheel_is_nowhere_counts_as_none_unless_its_environment_is_there(store, packages, url):
    """Packages are pruned by their own use: a fetch of an environment uses none of them."""

    def found(progress=None):
        lock = find_lock(open_store(url), "a" * 32, progress or NoProgress())  # a store looks up each record once
        return lock is not None and lock.text == packages.text

    push_lock(store, "a" * 32, packages)
    wheel = Path(packages.pip[0].url.removeprefix("file://"))
    content = wheel.read_bytes()
    wheel.unlink()
    assert found()
    store.objects.delete([store.find("package", packages.pip[0].sha256).path])
    steps = Steps()
    assert not found(steps)
    assert "neither the store nor this machine has a wheel that it names by a path" in steps.seen[0]
    for key in (packages.key, f"{packages.key}-stripped"):
        store.add_bytes("environment", key, b"files", facts={})
        assert found()
        store.objects.delete([f"records/environment/{key}.json"])
    wheel.write_bytes(content)
    push_lock(open_store(url, push=True), "a" * 32, packages)
    wheel.unlink()
    assert found()


def test_packages_of_one_machine_travel(store, packages, tmp_path):
    push_packages(store, packages)
    assert len(paths(store, "records/package")) == 2
    record = store.find("package", packages.conda[0].sha256)
    assert record.facts == {"name": "python", "version": "3.8.1"}
    for package in (*packages.conda, packages.pip[0]):
        Path(package.url.removeprefix("file://")).unlink()
    push_packages(store, packages)  # they are gone here, and there already
    steps, cache = Steps(), tmp_path / "cache"
    found = locate_packages(store, packages, cache, steps)
    assert found.pip[1] == packages.pip[1]
    files = [Path(package.url.removeprefix("file://")) for package in (*found.conda, found.pip[0])]
    assert [file.read_bytes() for file in files] == [b"interpreter", b"a wheel"]
    assert [file.name for file in files] == ["python-3.8.1-0.conda", "own-1-py3-none-any.whl"]
    assert all(file.is_relative_to(cache) for file in files)
    assert files[1].parent.name == packages.pip[0].sha256[:16]
    assert steps.seen == ["fetch python 3.8.1 from the store: 0.0 MB", "fetch own 1 from the store: 0.0 MB"]
    assert locate_packages(store, packages, cache, steps) == found
    assert len(steps.seen) == 2, "what is there is not fetched again"
    for damage in (Path.unlink, lambda file: file.write_bytes(b"changed")):
        for file in files:
            damage(file)
        assert locate_packages(store, packages, cache, steps) == found
        assert [file.read_bytes() for file in files] == [b"interpreter", b"a wheel"]


def test_a_package_that_changed_since_it_was_locked_stays_here(store, packages):
    wheel = Path(packages.pip[0].url.removeprefix("file://"))
    wheel.write_bytes(b"built anew")
    push_packages(store, packages)
    assert store.find("package", packages.pip[0].sha256) is None
    store.add("package", packages.pip[0].sha256, wheel)  # as earlier versions did
    wheel.write_bytes(b"a wheel")
    push_packages(store, packages)
    assert store.find("package", packages.pip[0].sha256).blobs[0].sha256 == packages.pip[0].sha256


@pytest.mark.usefixtures("permissions_for_root")
def test_packages_in_the_closed_folder_of_another_user_are_fetched(store, packages, tmp_path):
    push_packages(store, packages)
    (tmp_path / "files").chmod(0)
    assert wheel_not_here(packages.pip) == packages.pip[0]
    found = locate_packages(store, packages, tmp_path / "cache", NoProgress())
    push_packages(store, packages)
    (tmp_path / "files").chmod(0o700)
    assert all(package.url.startswith((tmp_path / "cache").as_uri()) for package in (*found.conda, found.pip[0]))


def test_packages_that_are_here_or_nowhere_keep_their_address(store, packages, tmp_path):
    push_packages(store, packages)
    assert locate_packages(store, packages, tmp_path / "cache", NoProgress()) == packages
    absent = tuple(replace(package, url="file:///absent/x.conda", sha256="c" * 64) for package in packages.conda)
    lock = replace(packages, conda=absent)
    assert locate_packages(store, lock, tmp_path / "cache", NoProgress()) == lock
    unnamed = tuple(
        replace(package, url="file:///absent/", sha256=packages.conda[0].sha256) for package in packages.conda
    )
    lock = replace(packages, conda=unnamed)
    shutil.rmtree(tmp_path / "files")
    assert locate_packages(store, lock, tmp_path / "cache", NoProgress()).conda[0].url != ""

"""What an environment is made of: the locked packages, also where a local channel has moved."""

import dataclasses
import hashlib

import pytest

from envpack.conda.settings import CondaSettings
from envpack.environment.build import Assembly, _located, install
from envpack.lock.lockfile import Lock
from envpack.lock.resolve import LockOptions
from envpack.requirements.model import CondaPackage, PipPackage
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError
from envpack.support.progress import NoProgress
from tests.conda_packages import make_conda_package
from tests.steps import Steps

FILE = "linux-64/python-3.10.1-0.conda"


@pytest.fixture
def assembly(tmp_path):
    """With two channels in the cache that have files of the same name."""
    for channel in ("one", "two"):
        (tmp_path / f"cache/channel/{channel}/linux-64").mkdir(parents=True)
        (tmp_path / "cache/channel" / channel / FILE).write_text(channel)
    lock = Lock(Target("linux-64", "3.10"), (), (), ())
    options = LockOptions(channels=(), settings=CondaSettings(), cache=tmp_path / "cache")
    return Assembly(lock=lock, options=options, variables={}, strip=False, progress=NoProgress())


def locked(tmp_path, content):
    about = {"name": "python", "version": "3.10.1", "build": "0", "subdir": "linux-64"}
    digest = hashlib.sha256(content.encode()).hexdigest()
    return CondaPackage(**about, url=(tmp_path / "gone" / FILE).as_uri(), sha256=digest)


def test_of_files_with_the_same_name_the_one_with_the_locked_hash_is_taken(assembly, tmp_path):
    found = _located(locked(tmp_path, "two"), assembly)
    assert found.url == (assembly.options.cache / "channel/two" / FILE).as_uri()


@pytest.mark.usefixtures("permissions_for_root")
def test_a_package_in_the_closed_folder_of_another_user_counts_as_missing(assembly, tmp_path):
    package = locked(tmp_path, "one")
    (tmp_path / "gone/linux-64").mkdir(parents=True)
    (tmp_path / "gone" / FILE).write_text("one")
    (tmp_path / "gone").chmod(0)
    found = _located(package, assembly)
    (tmp_path / "gone").chmod(0o700)
    assert found.url == (assembly.options.cache / "channel/one" / FILE).as_uri()


def test_another_file_with_the_same_name_does_not_replace_a_missing_package(assembly, tmp_path):
    with pytest.raises(EnvironmentBuildError) as caught:
        _located(locked(tmp_path, "of the lock"), assembly)
    assert (caught.value.kind, caught.value.where) == ("package-missing", str(tmp_path / "gone" / FILE))


def test_packages_are_located_before_the_step_that_installs_them(assembly, tmp_path):
    """Locating one can make its channel, a step of its own, and steps do not nest."""
    lock = Lock(Target("linux-64", "3.10"), (), (locked(tmp_path, "of the lock"),), ())
    steps = Steps()
    with pytest.raises(EnvironmentBuildError, match="is not on this machine"):
        install(dataclasses.replace(assembly, lock=lock, progress=steps), tmp_path / "prefix")
    assert steps.seen == []


def test_a_file_at_its_place_with_another_hash_is_left_to_the_installation(assembly, tmp_path):
    package = locked(tmp_path, "of the lock")
    (tmp_path / "gone/linux-64").mkdir(parents=True)
    (tmp_path / "gone" / FILE).write_text("replaced")
    assert _located(package, assembly) == package


def test_a_python_that_a_conda_package_breaks_is_named_before_uv_starts_it(assembly, tmp_path):
    """uv would report its own trouble with it, or wait without an end for one that waits."""
    files = {
        "bin/python3": b"#!/bin/sh\necho broken >&2\nexit 3\n",
        "lib/libpython3.10.so.1.0": b"",
        "lib/python3.10/x": b"",
    }
    file = make_conda_package(tmp_path / "channel", "python", "3.10.1", files)
    package = CondaPackage(name="python", version="3.10.1", build="0", subdir="linux-64", url=file.as_uri())
    wheel = PipPackage("numpy", "1.26.4", "https://127.0.0.1:9/numpy-1.26.4-py3-none-any.whl", "0" * 64, 1)
    lock = Lock(Target("linux-64", "3.10"), (), (package,), (wheel,))
    with pytest.raises(EnvironmentBuildError, match="does not start by itself: broken") as caught:
        install(dataclasses.replace(assembly, lock=lock), tmp_path / "prefix")
    assert caught.value.kind == "environment-broken"

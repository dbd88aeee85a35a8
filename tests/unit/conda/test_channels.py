"""The channel with an interpreter in the cache is used as long as it is intact; tests/environment makes real ones."""

import errno
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from envpack.conda import channels
from envpack.conda.channels import local_channel
from envpack.conda.interpreters import Interpreter
from envpack.support.errors import EnvironmentBuildError, StorageError, storage_errors
from tests.conda_packages import index, make_conda_package
from tests.tables import every_row

FILE = "linux-64/python-3.9.1-0.conda"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A channel as it is made, with a package that takes less time than an interpreter."""
    folder = tmp_path_factory.mktemp("made")
    file = make_conda_package(folder, "python", "3.9.1", {"bin/python3.9": b""})
    index(folder)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    channels.describe_package(folder, file, digest)
    return folder


@pytest.fixture
def make(made, monkeypatch, tmp_path):
    """Returns the channel of an interpreter in the cache, and whether it was made."""
    program = tmp_path / "python3.9"
    program.touch()
    interpreter = Interpreter(
        version="3.9.1",
        minor="3.9",
        executable=program,
        prefix=tmp_path,
        library=None,
        include=tmp_path,
        stdlib=tmp_path,
    )

    def copy(_, partial):
        shutil.copytree(made, partial, dirs_exist_ok=True)
        copied.append(partial)

    def make():
        copied.clear()
        return local_channel(interpreter, cache=tmp_path / "cache"), bool(copied)

    copied = []
    monkeypatch.setattr(channels, "_make_local", copy)
    return make


def test_a_channel_is_made_once(make):
    package, fresh = make()
    assert (fresh, make()) == (True, (package, False))
    assert (package.file, package.version) == (package.channel / FILE, "3.9.1")


def test_a_cache_whose_programs_cannot_run_is_refused_before_the_python_is_copied_there(make, mount, tmp_path):
    mount(tmp_path / "cache", "noexec,size=1m")
    with pytest.raises(StorageError) as caught:
        make()
    assert (caught.value.kind, caught.value.where) == ("noexec", str(tmp_path / "cache/channel"))


def test_a_full_disk_of_the_cache_is_named_and_not_what_the_package_is_for(make, monkeypatch, tmp_path):
    def fill(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(channels, "_make_local", fill)
    with pytest.raises(StorageError) as caught, storage_errors(Path("/srv/model/envpack.lock")):
        make()
    assert (caught.value.kind, Path(caught.value.where).parent) == ("disk-full", tmp_path / "cache/channel")


DOCUMENTS = ("envpack-package.json", "linux-64/repodata.json", "noarch/repodata.json")


@every_row(
    ("file", "content"),
    [
        *((file, text) for file in DOCUMENTS for text in ("", "[]", "5")),
        *((DOCUMENTS[0], text) for text in ("{}", '{"file": 5}')),
        (DOCUMENTS[1], "{}"),
        *((removed, None) for removed in (*DOCUMENTS[:2], FILE)),
        (FILE, "another package"),
    ],
)
def test_a_damaged_channel_is_made_again(make, made, file, content):
    folder = make()[0].channel
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    package, fresh = make()
    assert fresh
    assert package.file.read_bytes() == (made / FILE).read_bytes()
    assert make() == (package, False)


@pytest.mark.timeout(60)
@every_row(("what", "make_file"), [("damaged", lambda file: file.write_bytes(b"PK")), ("pipe", os.mkfifo)])
def test_what_is_no_package_is_named_when_a_channel_is_indexed(tmp_path, what, make_file):
    good = make_conda_package(tmp_path / what, "python", "3.9.1", {"bin/python3.9": b""})
    bad = good.with_name("other-1-0.conda")
    make_file(bad)
    with pytest.raises(EnvironmentBuildError) as caught:
        channels._index(tmp_path / what)
    assert (caught.value.kind, caught.value.where) == ("engine-failed", str(bad))
    assert caught.value.message == "this is not a conda package, so the channel cannot be indexed"
    assert caught.value.hint == "remove it, or copy the complete file there"
    bad.unlink()
    channels._index(tmp_path / what)
    assert [package.name for package in channels.read_channel(tmp_path / what)] == ["python"]

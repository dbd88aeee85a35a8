"""Interpreters that the real uv fetches, from a list and an archive on 127.0.0.1."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from envpack.conda.choice import interpreter_for, reason_to_fetch
from envpack.conda.interpreter_package import fingerprint
from envpack.conda.interpreters import available_interpreters
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.elf import required_abi
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.workflow.python_choice import usable_pythons
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import assert_refused, envpack, variables
from tests.waiting import soon

from .python_downloads import NAME
from .sources import PYTHON

FETCH = f"from envpack.conda.choice import interpreter_for; print(interpreter_for({PYTHON!r}).executable)"


class Steps:
    """A progress that keeps what it receives."""

    def __init__(self):
        self.begun, self.details, self.ended = [], [], []
        self.begin, self.detail, self.end = self.begun.append, self.details.append, self.ended.append


def test_a_python_that_this_machine_lacks_is_fetched_once(downloads, bare):
    steps = Steps()
    found = interpreter_for(PYTHON, progress=steps)
    assert (found.version, found.managed, found.has_headers) == (downloads.version, True, True)
    assert found.executable.is_relative_to(bare / "pythons")
    assert found.library.is_relative_to(bare / "pythons")
    assert steps.begun == [f"fetch Python {PYTHON}: there is none on this machine"]
    assert steps.ended == [f"Python {downloads.version} from 127.0.0.1"]
    assert interpreter_for(PYTHON, progress=steps) == found
    assert found in available_interpreters()
    assert (len(steps.begun), downloads.archives) == (1, 1)


@pytest.mark.thorough
@pytest.mark.usefixtures("bare")
def test_an_interpreter_of_this_machine_wins_over_a_newer_one_that_was_fetched(downloads, tmp_path, archive):
    fetched = interpreter_for(PYTHON)
    (tmp_path / "pyenv/versions").mkdir(parents=True)
    (tmp_path / "pyenv/versions/own").symlink_to(archive[1].prefix)
    chosen = {name: interpreter_for(PYTHON, preference=name) for name in ("system", "only-system", "managed")}
    assert chosen == {"system": archive[1], "only-system": archive[1], "managed": fetched}
    assert downloads.archives == 1


def test_a_static_interpreter_is_named_as_the_reason_and_the_same_minor_is_fetched(downloads, tmp_path):
    program = stand_in(tmp_path / "pyenv/versions/static/bin", downloads.version)
    steps = Steps()
    assert interpreter_for(PYTHON, progress=steps).managed
    assert steps.begun == [f"fetch Python {PYTHON}: no shared library (libpython{PYTHON}.so) in {program}"]


def stand_in(folder, version, library=None):
    """A program that answers the probe as an interpreter with this library does, or as a static one."""
    folder.mkdir(parents=True)
    texts = {"version": version, "prefix": str(folder.parent), "include": "/i", "stdlib": "/s"}
    flags = {"release": True, "implementation": "cpython", "patched": False, "free_threaded": False}
    program = folder / f"python{PYTHON}"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({**texts, **flags, 'library': library, 'read': []})}'\n")
    program.chmod(0o755)
    return program


def newer_library(library, folder):
    """A copy of a library that needs a C library of the future; its path, and the C library that the original needs."""
    needed = required_abi([library]).glibc
    copy = folder / library.name
    copy.write_bytes(library.read_bytes().replace(f"GLIBC_{needed}\0".encode(), b"GLIBC_2.99\0"))
    return str(copy), needed


@pytest.mark.thorough
def test_an_interpreter_that_needs_a_newer_c_library_than_the_target_has_is_replaced_by_a_fetched_one(
    downloads, tmp_path, archive
):
    library, needed = newer_library(archive[1].library, tmp_path)
    program = stand_in(tmp_path / "pyenv/versions/new/bin", downloads.version, library)
    assert interpreter_for(PYTHON).executable == program
    why = f"symbols of glibc 2.99 (the target has {needed}) in {program}"
    assert reason_to_fetch(PYTHON, "system", needed) == why
    steps = Steps()
    assert interpreter_for(PYTHON, glibc=needed, progress=steps).managed
    assert steps.begun == [f"fetch Python {PYTHON}: {why}"]


def test_without_any_that_runs_with_the_targets_c_library_the_ways_out_are_named(downloads, tmp_path, archive):
    library, _ = newer_library(archive[1].library, tmp_path)
    program = stand_in(tmp_path / "pyenv/versions/new/bin", downloads.version, library)
    # What uv fetches needs glibc 2.17: nothing is downloaded that cannot help.
    for glibc, preference in (("2.5", "system"), ("2.35", "only-system")):
        with pytest.raises(EnvironmentBuildError) as caught:
            interpreter_for(PYTHON, glibc=glibc, preference=preference)
        assert (caught.value.kind, caught.value.where) == ("glibc-too-old", str(program))
        assert f"{program} has symbols of glibc 2.99 (the target has {glibc})" in caught.value.message
        assert f"Python {PYTHON} of this machine needs" not in caught.value.hint, "no release has glibc 2.99"
    assert downloads.archives == 0


def test_debug_builds_builds_without_the_gil_and_previews_are_not_taken(downloads):
    newer = [{"variant": "freethreaded"}, {"variant": "debug"}, {"prerelease": "rc1"}]
    more = {
        key: entry
        for patch, changes in enumerate(newer, 90)
        for key, entry in downloads.another_patch(patch, **changes).items()
    }
    downloads.offer(more=more)
    assert interpreter_for(PYTHON).version == downloads.version


def nothing_listens():
    """A port of 127.0.0.1 that refuses connections."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


FAILURES = {
    "wrong hash": ({"sha256": "0" * 64}, {}, "Hash mismatch"),
    "no such file": ({"url": "{site}/none.tar.gz"}, {}, "404"),
    "refused": ({"url": "http://me:secret@127.0.0.1:{closed}/x.tar.gz"}, {}, "127.0.0.1:{closed}/x.tar.gz"),
    "no such version": ({"minor": 2}, {}, f"uv knows no Python {PYTHON}"),
    "the list does not answer": ({}, {"UV_PYTHON_DOWNLOADS_JSON_URL": "http://127.0.0.1:{closed}/l"}, "{closed}/l"),
    "the mirror does not answer": (
        {},
        {"UV_PYTHON_DOWNLOADS_JSON_URL": None, "UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:{closed}/m"},
        "http://127.0.0.1:{closed}/m/",
    ),
    "a mirror does not answer twice": (
        {"url": "http://127.0.0.1:{closed}/x.tar.gz"},
        {"UV_HTTP_RETRIES": "1"},
        "127.0.0.1:{closed}/x.tar.gz",
    ),
    "offline": ({}, {"UV_OFFLINE": "1"}, "Network connectivity is disabled"),
    "never": ({}, {"UV_PYTHON_DOWNLOADS": "never"}, "UV_PYTHON_DOWNLOADS=never forbids it"),
    "manual": ({}, {"UV_PYTHON_DOWNLOADS": "manual"}, "UV_PYTHON_DOWNLOADS=manual forbids it"),
    "the proxy does not answer": (
        {"url": "http://files.example/x"},
        {"HTTP_PROXY": "http://127.0.0.1:{closed}", "NO_PROXY": "127.0.0.1"},
        "http://files.example/x",
    ),
}


@pytest.mark.parametrize(
    "case", [case if case == "refused" else pytest.param(case, marks=pytest.mark.thorough) for case in FAILURES]
)
def test_what_failed_and_every_way_out_is_named_and_the_next_attempt_succeeds(downloads, bare, case, monkeypatch):
    offered, settings, expected = FAILURES[case]
    words = {"site": downloads.site.url(), "closed": nothing_listens()}
    downloads.offer(**{name: str(value).format(**words) if name == "url" else value for name, value in offered.items()})
    with monkeypatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value.format(**words)) if value else patch.delenv(name)
        with pytest.raises(EnvironmentBuildError) as caught:
            interpreter_for(PYTHON)
    error = caught.value
    assert error.kind == "unknown-python"
    assert error.message.startswith(f"no Python {PYTHON} on this machine; available: ")
    assert expected.format(**words) in error.message.partition("; none was fetched: ")[2]
    assert "secret" not in error.message + error.details
    assert "take Python from a conda channel, such as --channel conda-forge" in error.hint
    assert list(bare.glob("pythons/*/cpython*")) == []
    downloads.offer()
    assert interpreter_for(PYTHON).version == downloads.version


@pytest.mark.thorough
def test_a_truncated_archive_is_refused(downloads, bare):
    downloads.site.truncated[NAME] = 1
    with pytest.raises(EnvironmentBuildError, match="none was fetched"):
        interpreter_for(PYTHON)
    assert list(bare.glob("pythons/*/cpython*")) == []
    assert interpreter_for(PYTHON).version == downloads.version


def test_only_system_fetches_nothing_and_names_the_option(downloads):
    for find in (interpreter_for, reason_to_fetch):
        with pytest.raises(EnvironmentBuildError) as caught:
            find(PYTHON, preference="only-system", glibc="")
        assert "--set python_preference=system" in caught.value.hint
    assert downloads.site.requested == []


@pytest.mark.thorough
def test_managed_falls_back_to_an_interpreter_of_this_machine_and_says_why(downloads, tmp_path, archive):
    (tmp_path / "pyenv/versions").mkdir(parents=True)
    (tmp_path / "pyenv/versions/own").symlink_to(archive[1].prefix)
    downloads.offer(sha256="0" * 64)
    steps = Steps()
    assert interpreter_for(PYTHON, preference="managed", progress=steps) == archive[1]
    assert (steps.ended, len(steps.details)) == (["not fetched"], 1)
    assert "Hash mismatch" in steps.details[0]
    with pytest.raises(EnvironmentBuildError, match="Hash mismatch"):
        interpreter_for(PYTHON, preference="only-managed")


@pytest.mark.usefixtures("downloads")
def test_a_cache_that_cannot_be_written_to_is_named(bare):
    bare.mkdir(exist_ok=True)
    with read_only(bare), pytest.raises(StorageError) as caught:
        interpreter_for(PYTHON)
    assert (caught.value.kind, str(bare) in caught.value.where) == ("not-writable", True)


@contextlib.contextmanager
def read_only(folder):
    """A folder that this user cannot write to; root can write to all but a file system that is mounted read-only."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder], check=True)
    else:
        folder.chmod(0o555)
    try:
        yield
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", folder], check=True)
        else:
            folder.chmod(0o755)


@pytest.mark.thorough
def test_two_that_need_the_same_python_fetch_it_once(downloads):
    downloads.site.gate.clear()
    both = [Steps(), Steps()]
    found = []
    threads = [
        threading.Thread(target=lambda steps=steps: found.append(interpreter_for(PYTHON, progress=steps)))
        for steps in both
    ]
    for thread in threads:
        thread.start()
    assert soon(lambda: any("wait for another process" in text for steps in both for text in steps.details))
    downloads.site.gate.set()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found)), downloads.archives) == (2, 1, 1)


def test_an_installation_that_was_interrupted_is_made_again(downloads, bare):
    whole = interpreter_for(PYTHON)
    before, name = digests(whole.prefix), fingerprint(whole)
    for record in bare.glob("pythons/*/*.json"):
        record.unlink()
    whole.library.write_bytes(b"half")
    assert whole not in available_interpreters()
    assert interpreter_for(PYTHON) == whole
    assert (digests(whole.prefix), fingerprint(whole)) == (before, name)
    assert downloads.archives == 2


def digests(folder):
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.thorough
def test_the_archive_comes_through_a_proxy(downloads, monkeypatch):
    place = downloads.site.folder / "http:/files.example"
    place.mkdir(parents=True)
    (downloads.site.folder / NAME).rename(place / NAME)
    downloads.offer(url=f"http://files.example/{NAME}")
    monkeypatch.setenv("HTTP_PROXY", downloads.site.url())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert interpreter_for(PYTHON).version == downloads.version


@pytest.mark.thorough
@pytest.mark.parametrize("survivor", [False, True], ids=["with-uv", "without-uv"])
def test_a_kill_leaves_nothing_that_is_taken_for_an_interpreter(downloads, survivor):
    downloads.site.gate.clear()
    with subprocess.Popen([sys.executable, "-c", FETCH], env=variables(), stdout=subprocess.DEVNULL) as fetching:
        assert soon(lambda: downloads.site.requested)
        children = Path(f"/proc/{fetching.pid}/task/{fetching.pid}/children").read_text().split()
        fetching.kill()
        for child in () if survivor else children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
    assert [found for found in available_interpreters() if found.managed] == []
    downloads.site.gate.set()
    assert interpreter_for(PYTHON).version == downloads.version


@pytest.fixture
def repository(tmp_path):
    return BadInput("", "", 0, "", (), MODEL).write(tmp_path)


@pytest.mark.thorough
@pytest.mark.usefixtures("own_index")
def test_a_model_is_built_from_a_python_that_was_fetched(downloads, repository, bare):
    words = ("build", "--repository", repository, "m", "--stub", "never", "--python", PYTHON)
    planned = envpack(*words, "--dry-run")
    assert f"would fetch Python {PYTHON} (there is none on this machine)" in planned.out
    assert not (bare / "pythons").exists()
    done = envpack(*words)
    assert done.code == 0, done.err
    assert f"fetch Python {PYTHON}: there is none on this machine" in done.err + done.out
    program = repository / f"m/python{PYTHON}/bin/python3"
    said = subprocess.run(
        [program, "-c", "import sys, numpy; print(sys.prefix)"], env={}, check=True, capture_output=True
    )
    assert Path(said.stdout.decode().strip()) == program.parents[1]
    assert envpack("cache", "prune", "--days", "0").code == 0
    assert list((bare / "pythons").glob("*")) == []
    assert envpack(*words).code == 0
    assert downloads.archives == 2


def test_a_model_that_names_no_python_gets_one_of_this_machine_if_the_releases_cannot_be_had(
    downloads, repository, monkeypatch
):
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    there = usable_pythons("system", find_release(DEFAULT_RELEASE).glibc)
    planned = envpack("build", "--dry-run", "--repository", repository, "m")
    if there:
        assert f"Python {max(there, key=float)} (this machine, which lacks that of the release)" in planned.out
    assert_refused(
        envpack("build", "--json", "--dry-run", "--python", PYTHON, "--repository", repository, "m"),
        4,
        "unknown-python",
        "UV_PYTHON_DOWNLOADS=never",
    )
    assert downloads.site.requested == []

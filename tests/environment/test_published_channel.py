"""`envpack channel`: real interpreters in a channel folder that is served, copied, shared and interrupted."""

import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from envpack.conda.channels import local_channel, read_channel
from envpack.conda.choice import interpreter_for
from envpack.requirements.model import Requirements
from tests.built import build_environment
from tests.conda_packages import make_conda_package
from tests.faults.command_line import assert_refused, command, envpack, variables
from tests.needed_pythons import need
from tests.web import serve

MINORS = ("3.8", "3.10")


@pytest.fixture(scope="module")
def changes(cache, tmp_path_factory):
    """Variables for every command here, with a private data folder."""
    variables = {"ENVPACK_CACHE_DIR": str(cache), "XDG_DATA_HOME": str(tmp_path_factory.mktemp("data"))}
    for minor in MINORS:
        local_channel(interpreter_for(need(minor)))
    return variables


@pytest.fixture(scope="module")
def channel(changes, tmp_path_factory):
    """Two Pythons in a channel folder, each added by its own command."""
    folder = tmp_path_factory.mktemp("with space") / "my channel"
    for minor in MINORS:
        completed = envpack("channel", "add-python", minor, "--to", folder, "--json", changes=changes)
        assert completed.code == 0, completed.err
        assert completed.document["channel"] == folder.as_uri()
        assert completed.document["changed"] is True
        assert completed.document["package"]["version"] == interpreter_for(minor).version
    return folder


@pytest.mark.thorough
def test_several_interpreters_are_listed(channel, changes):
    listed = envpack("channel", "ls", channel, "--json", changes=changes).document["packages"]
    assert [package["version"].rpartition(".")[0] for package in listed] == list(MINORS)
    assert all((channel / package["subdir"] / package["file"]).stat().st_size == package["size"] for package in listed)
    assert f"--channel {channel.as_uri()}" in envpack("channel", "ls", channel, changes=changes).out


def test_a_package_that_is_there_is_not_added_again(channel, changes):
    before = {file: file.stat().st_mtime_ns for file in channel.rglob("*") if file.is_file()}
    completed = envpack("channel", "add-python", "3.8", "--to", channel, "--json", changes=changes)
    assert completed.document["changed"] is False
    after = {file: file.stat().st_mtime_ns for file in channel.rglob("*") if file.is_file()}
    assert {file: time for file, time in after.items() if file.name != ".envpack.lock"} == {
        file: time for file, time in before.items() if file.name != ".envpack.lock"
    }


@pytest.mark.parametrize("web", [False, True], ids=["copied", "served"])
def test_an_environment_is_built_from_the_channel_elsewhere(channel, tmp_path, monkeypatch, web):
    """The folder is copied to a machine without an interpreter, or served."""
    copied = shutil.copytree(channel, tmp_path / "copied")
    monkeypatch.setenv("UV_OFFLINE", "1")
    with serve(copied) as site:
        address = site.url() if web else copied.as_uri()
        env = build_environment(Requirements(), python="3.8", channels=(address,), cache=tmp_path / "cache")
    moved = env.prefix.rename(tmp_path / "moved")
    finished = subprocess.run([moved / "bin/python3", "-c", "import ssl, sys; print(sys.prefix)"], env={}, check=True,
                          capture_output=True, text=True)  # fmt: skip
    assert finished.stdout.strip() == str(moved)


@pytest.mark.thorough
def test_the_default_folder_is_in_the_data_folder(changes):
    completed = envpack("channel", "add-python", "3.8", "--json", changes=changes)
    assert completed.document["channel"] == f"file://{changes['XDG_DATA_HOME']}/envpack/channels/own"
    listed = envpack("channel", "ls", "--json", changes=changes).document
    assert [package["name"] for package in listed["packages"]] == ["python"]


@pytest.mark.parametrize("what", ["folder", "program", "virtual environment"])
def test_the_interpreter_can_be_named(changes, tmp_path, what):
    found = interpreter_for("3.8")
    place = {"folder": found.prefix, "program": found.executable, "virtual environment": tmp_path / "venv"}[what]
    if what == "virtual environment":
        subprocess.run([found.executable, "-m", "venv", "--without-pip", place], check=True)
    to = tmp_path / "channel"
    completed = envpack("channel", "add-python", "3.8", "--from", place, "--to", to, "--json", changes=changes)
    assert completed.code == 0, completed.err
    assert completed.document["package"]["sha256"] == local_channel(found).sha256


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("other", "this is cpython 3.10"),
        ("empty", "there is no Python"),
        ("missing", "there is no Python"),
        ("text", "this is not a Python"),
    ],
)
def test_a_path_without_that_python_is_refused(changes, tmp_path, place, expected):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("not a program")
    named = interpreter_for("3.10").prefix if place == "other" else tmp_path / place
    words = ("channel", "add-python", "3.8", "--from", named, "--to", tmp_path / "to", "--json")
    assert_refused(envpack(*words, changes=changes), 4, "unknown-python", expected, str(named))
    assert not (tmp_path / "to").exists()


# Answers -I -S -c CODE as a Python that was configured without --enable-shared.
STATIC = """#!/bin/sh
exec {python} -I -S -c "import sys, sysconfig
sysconfig.get_config_vars()['INSTSONAME'] = 'libpython3.10.a'
exec(sys.argv[1])" "$4"
"""


def test_a_static_interpreter_is_refused(changes, tmp_path):
    static = tmp_path / "python3.10"
    static.write_text(STATIC.format(python=interpreter_for(need("3.10")).executable))
    static.chmod(0o755)
    words = ("channel", "add-python", "3.10", "--from", static, "--to", tmp_path / "to", "--json")
    assert_refused(envpack(*words, changes=changes), 4, "static-interpreter", str(static))
    assert not (tmp_path / "to").exists()


@pytest.mark.thorough
def test_a_python_of_conda_is_refused(changes, tmp_path):
    prefix = build_environment(Requirements(), python="3.8").prefix
    words = ("channel", "add-python", "3.8", "--from", prefix, "--to", tmp_path / "to", "--json")
    assert_refused(envpack(*words, changes=changes), 4, "conda-python", str(prefix))


@pytest.mark.parametrize("content", [None, "{", "[]", '{"packages": {"a": {}}}'])
def test_folders_without_a_channel_are_refused(changes, tmp_path, content):
    if content is not None:
        (tmp_path / "linux-64").mkdir()
        (tmp_path / "linux-64/repodata.json").write_text(content)
    assert_refused(envpack("channel", "ls", tmp_path, "--json", changes=changes), 3, "not-a-channel", str(tmp_path))


@pytest.mark.thorough
def test_packages_added_by_hand_are_indexed_too(changes, tmp_path):
    make_conda_package(tmp_path, "mine", "1.0", {"share/mine": b"x"})
    assert envpack("channel", "add-python", "3.8", "--to", tmp_path, changes=changes).code == 0
    assert [package.name for package in read_channel(tmp_path)] == ["mine", "python"]


def test_a_damaged_package_in_the_folder_keeps_the_old_index(changes, tmp_path):
    assert envpack("channel", "add-python", "3.8", "--to", tmp_path, changes=changes).code == 0
    before = (tmp_path / "linux-64/repodata.json").read_bytes()
    (tmp_path / "linux-64/broken-1.0-0.conda").write_bytes(b"no zip")
    completed = envpack("channel", "add-python", "3.10", "--to", tmp_path, "--json", changes=changes)
    assert_refused(completed, 4, "engine-failed", "broken-1.0-0.conda")
    assert (tmp_path / "linux-64/repodata.json").read_bytes() == before


@pytest.mark.thorough
def test_concurrent_commands_lose_no_package(changes, tmp_path):
    commands = [command("channel", "add-python", minor, "--to", tmp_path) for minor in MINORS * 2]
    running = [subprocess.Popen(command, env=variables(changes), stderr=subprocess.DEVNULL) for command in commands]
    assert [process.wait(timeout=120) for process in running] == [0] * 4
    assert [package.version for package in read_channel(tmp_path)] == [
        interpreter_for(minor).version for minor in MINORS
    ]
    assert [file.name for file in tmp_path.glob(".*")] == [".envpack.lock"]


@pytest.mark.thorough
def test_the_index_that_a_killed_command_began_is_finished_by_the_next(changes, tmp_path):
    """It was killed between the index of the platform and that of noarch."""
    folder = tmp_path / "channel"
    assert envpack("channel", "add-python", "3.8", "--to", folder, changes=changes).code == 0
    noarch = folder / "noarch/repodata.json"
    complete = noarch.read_bytes()
    noarch.unlink()
    (folder / "noarch/.repodata.json.abcdefgh.partial").touch()
    (folder / ".envpack-index-abcdefgh").mkdir()
    assert envpack("channel", "add-python", "3.8", "--to", folder, changes=changes).code == 0
    assert noarch.read_bytes() == complete
    assert [file for file in folder.rglob("*") if "partial" in file.name or "envpack-index" in file.name] == []


@pytest.mark.thorough
def test_a_killed_command_leaves_the_old_or_the_new_index(changes, tmp_path):
    """A package of the old index stays readable at every moment, and the next command finishes the work."""
    folder, kept = tmp_path / "channel", tmp_path / "kept"
    assert envpack("channel", "add-python", "3.8", "--to", kept, changes=changes).code == 0
    old = {interpreter_for("3.8").version}
    new = old | {interpreter_for("3.10").version}
    added = folder / "linux-64" / local_channel(interpreter_for("3.10")).file.name
    chance = random.Random(5)
    for _ in range(6):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder)
        words = command("channel", "add-python", "3.10", "--to", folder)
        running = subprocess.Popen(words, env=variables(changes), stderr=subprocess.DEVNULL, process_group=0)
        time.sleep(chance.uniform(0.2, 1.2))
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        listed = {package.version for package in read_channel(folder)}
        assert listed in (old, new)
        assert listed == old or added.is_file()
        assert envpack("channel", "add-python", "3.10", "--to", folder, changes=changes).code == 0
        assert {package.version for package in read_channel(folder)} == new
    left = [file for file in folder.rglob("*") if "partial" in file.name or "envpack-index" in file.name]
    assert left == []

"""What is wrong around a command, not in its words: it is named, and never called a bug."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.cli import main
from envpack.cli.console import SAID_REPOSITORY, Console, Failure
from envpack.cli.main import run
from envpack.stub.toolchain import find_toolchain
from envpack.support.installation import repair_command
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import Ended, assert_refused


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return BadInput("any", "", 0, "", (), MODEL).write(tmp_path)


@pytest.mark.parametrize("command", ["build m", "inspect", "init x", "layout --output x", "lock m", "cache ls"])
def test_a_working_folder_that_was_removed_is_named(command, repository, tmp_path, monkeypatch, capsys):
    run(["inspect", "--repository", str(repository)])  # its --repository must not reach the next command
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    remove_current_folder(tmp_path / "gone")
    code = run([*command.split(), "--json"])
    assert_refused(Ended(code, *capsys.readouterr()), 7, "file-unusable", "the working folder was removed", "cd")


def test_a_umask_that_takes_rights_from_its_user_does_not_count(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "envpack", "init", "--template", "model", "m"], cwd=tmp_path, umask=0o777, check=True
    )
    assert {file.stat().st_mode & 0o700 for file in (tmp_path / "m").rglob("*")} == {0o700, 0o600}


def test_a_working_folder_that_goes_while_a_command_works_hides_no_fix(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    remove_current_folder(tmp_path / "gone")
    said = SAID_REPOSITORY.set(Path("models"))
    Console().failed(Failure("it broke", "bad-config", 3, hint="run `envpack build m`"))
    SAID_REPOSITORY.reset(said)
    assert "fix: run `envpack build --repository models m`\n" in capsys.readouterr().err


def remove_current_folder(folder):
    """Make a folder, work in it and remove it."""
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("command", ["build m", "verify", "layout --output /tmp/never-written"])
def test_a_configuration_that_is_no_file_is_not_taken_for_a_missing_one(command, make, repository, capsys):
    config = repository / "m/config.pbtxt"
    config.unlink()
    make(config)
    code = run([*command.split(), "--json", "--repository", str(repository)])
    assert_refused(Ended(code, *capsys.readouterr()), 3, "bad-config", "m/config.pbtxt: this is not a file")


@pytest.fixture
def too_deep(repository):
    """A model with 1,200 folders in each other; pytest could not remove them."""
    deepest = os.open(repository / "m", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=deepest)
        below = os.open("d", os.O_RDONLY, dir_fd=deepest)
        os.close(deepest)
        deepest = below
    os.close(deepest)
    yield
    subprocess.run(["rm", "-r", repository / "m"], check=True)


@pytest.mark.thorough
@pytest.mark.usefixtures("too_deep")
def test_folders_too_deep_to_follow_are_told(repository, tmp_path, capsys):
    code = run(["layout", "--json", "--repository", str(repository), "--output", str(tmp_path / "tree")])
    assert_refused(Ended(code, *capsys.readouterr()), 3, "nested-too-deeply", "nested more deeply")
    assert not list(tmp_path.glob("*tree*")), "an unfinished tree"


@pytest.fixture
def null(tmp_path, monkeypatch):
    """The path of a /dev/null that does not exist, as in a root file system without devices."""
    monkeypatch.setattr(os, "devnull", str(tmp_path / "dev/null"))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return os.devnull


@pytest.mark.usefixtures("null")
def test_a_program_that_cannot_be_started_for_want_of_the_null_device_is_not_blamed():
    with pytest.raises(FileNotFoundError) as raised:
        find_toolchain("system")
    assert main._failure(raised.value).message == "cannot be read or written: No such file or directory"


def test_a_command_starts_without_streams_and_without_the_null_device():
    code = "import os; os.devnull = '/gone'; from envpack.cli.main import main; main()"
    shell = ["sh", "-c", '"$0" -c "$1" releases <&- >&- 2>&-', sys.executable, code]
    started = subprocess.run(shell, check=False)
    assert started.returncode == 0


def test_the_examination_of_a_machine_without_the_null_device_names_it(null, capsys):
    assert run(["doctor", "--json"]) == 0
    found = {check["name"]: check["what"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert f"{null}: cannot be read or written" in found["compiler"]
    assert not [what for what in found.values() if "the probe failed" in what]


def test_a_package_of_pythonpath_that_envpack_cannot_use_is_named(tmp_path):
    old = tmp_path / "old"
    (old / "click").mkdir(parents=True)
    (old / "click/__init__.py").write_text("")
    (old / "click-7.1.2.dist-info").mkdir()
    (old / "click-7.1.2.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: click\nVersion: 7.1.2\n")
    surroundings = {key: value for key, value in os.environ.items() if key != "ENVPACK_TRACEBACK"}
    for path, status in ((f"/nowhere:{old}/", 7), ("", 0)):
        command = [sys.executable, "-m", "envpack", "releases"]
        done = subprocess.run(
            command, env=surroundings | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        if status:
            assert done.stderr.startswith(f"error: envpack needs click>=8.2, and Python finds 7.1.2 in {old} of PYTHON")
            assert done.stderr.endswith("  fix: run it without that: env -u PYTHONPATH envpack ...\n")


def test_an_error_of_a_damaged_installation_says_how_to_repair_it(tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise TypeError("unexpected keyword argument")

    monkeypatch.setattr("envpack.settings.examples.copy_recipe", fails)
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["no-such-package>=2", "absent; extra == 'dask'"])
    monkeypatch.delenv("ENVPACK_TRACEBACK", raising=False)
    code = run(["init", "--json", str(tmp_path / "r")])
    what = "envpack needs no-such-package>=2, which is not installed (TypeError: unexpected keyword argument)"
    assert_refused(Ended(code, *capsys.readouterr()), 7, "wrong-package", what, repair_command())

"""What is here, and not for the server, is the cause of a failure that is about it."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.repository.model import open_model
from envpack.server.procfs import ContainerProcfs
from envpack.support.placed_files import STUB_NAME
from envpack.verification.hidden_files import explain_hidden, fix_of_written_path
from envpack.verification.verdict import Failure
from tests.tables import every_row

NOBODY = 65534 if os.getuid() == 0 else None
POLLED = "failed to poll from model repository"


class Container(ContainerProcfs):
    """A server of another user with a copy of a repository, in which links lead where they say, and nothing else."""

    def __init__(self, repository, place):
        super().__init__(self.run_as_nobody)
        self._repository, self._place = repository, place
        shutil.copytree(repository, place, symlinks=True)

    @staticmethod
    def run_as_nobody(script, argument):
        command = ["bash", "-c", script, "bash", argument]
        return subprocess.run(command, capture_output=True, check=False, user=NOBODY, cwd="/").stdout

    def server_path(self, path):
        real = Path(os.path.realpath(path))
        inside = real.is_relative_to(self._repository)
        return str(self._place / real.relative_to(self._repository) if inside else real)


@pytest.fixture
def model():
    """The folder of a model, which all users can read."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "models/m/1").mkdir(parents=True)
        (Path(folder) / "models/m/1/model.py").touch()
        (Path(folder) / "models/m/config.pbtxt").write_text('backend: "python"\n')
        yield Path(folder) / "models/m"


def explained(model, reason, closed=None, kind="bad-config"):
    place = model.parents[1] / "mounted/somewhere/models"
    server = Container(model.parent, place)
    if closed:
        (place / "m" / closed).chmod(0)
    failure = Failure(kind, reason.replace("THERE", f"{place}/m"), (), "correct config.pbtxt")
    return failure, explain_hidden(server, open_model(model), failure)


def move_out(path):
    """Replace a file or folder by a relative link to a place outside of the repository."""
    outside = path.rename(Path(tempfile.mkdtemp(dir=path.parents[len(path.parts) - 4])) / path.name)
    path.symlink_to(os.path.relpath(outside, path.parent))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", POLLED),
        ("1", "failed to stat file THERE/1"),
        ("1", POLLED),
        ("1/model.py", "Python model file not found in 'THERE/1/model.py'"),
    ],
)
def test_a_link_that_leads_out_of_the_container_is_the_cause(model, name, reason):
    path = Path(os.path.normpath(model / name))
    move_out(path)
    before, after = explained(model, reason)
    what = f"{path} is a link to {path.readlink()}, which the server does not have or may not read"
    assert (after.kind, after.reason, after.details) == ("broken-link", what, (before.reason,))
    assert "--runtime process" in after.fix


def test_a_link_that_leads_nowhere_has_no_other_runtime_as_its_fix(model):
    link = model / "env.tar.gz"
    link.symlink_to("/nowhere/env.tar.gz")
    _, after = explained(model, "failed to stat file THERE/env.tar.gz")
    assert (after.kind, after.fix) == ("broken-link", "correct the link, or remove it")
    assert after.reason == f"{link} is a link to /nowhere/env.tar.gz, which does not exist"


def test_a_link_beside_the_model_that_leads_nowhere_is_the_cause(model):
    link = model.parent / "notes"
    link.symlink_to("/nowhere")
    there = model.parents[1] / "mounted/somewhere/models/notes"
    _, after = explained(model, f"the server cannot list its models any more: failed to stat file {there}")
    assert (after.kind, after.reason) == ("broken-link", f"{link} is a link to /nowhere, which does not exist")


@pytest.mark.parametrize(
    ("name", "reason", "command"),
    [
        ("..", POLLED, "chmod a+rX models"),
        (".", POLLED, "chmod -R a+rX models/m"),
        ("1", POLLED, "chmod -R a+rX models/m"),
        ("1/model.py", "PermissionError: [Errno 13] Permission denied: 'THERE/1/model.py'", "chmod -R a+rX models/m"),
    ],
)
def test_what_only_its_owner_can_read_is_the_cause(model, name, reason, command):
    _, after = explained(model, reason, closed=name)
    assert after.kind == "not-for-everybody"
    assert after.reason.startswith(f"{os.path.normpath(model / name)} can only be read by its owner or group")
    assert after.fix.replace(f"{model.parents[1]}/", "") == command


def test_an_environment_is_needed_although_the_failure_does_not_mention_it(model):
    with (model / "config.pbtxt").open("a") as config:
        value = '"$$TRITON_MODEL_DIRECTORY/env.tar.gz"'
        config.write(f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: {value} }} }}\n')
    (model / "env.tar.gz").touch()
    _, after = explained(model, "archive_read_open_filename() failed.", closed="env.tar.gz")
    assert (after.kind, after.reason.split()[0]) == ("not-for-everybody", str(model / "env.tar.gz"))


def test_an_environment_that_is_not_on_the_server_is_no_matter_of_modes(model):
    (model.parents[1] / "env").mkdir()
    with (model / "config.pbtxt").open("a") as config:
        value = f'"{model.parents[1]}/env"'
        config.write(f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: {value} }} }}\n')
    place = model.parents[1] / "mounted/models"
    server = Container(model.parent, place)
    server.server_path = lambda path: str(place if path == model.parent else place / path.name)
    failure = Failure("environment-missing", f"Failed to get the canonical path for {model.parents[1]}/env")
    assert explain_hidden(server, open_model(model), failure) == failure


def test_what_the_failure_is_not_about_is_not_its_cause(model):
    (model / "1/notes").write_text("")
    move_out(model / "1/notes")
    before, after = explained(model, "ValueError: boom")
    assert after == before


@pytest.mark.parametrize(
    ("mode", "flags", "kind"),
    [
        (0o644, 0, "stub-not-executable"),
        (0o755, os.ST_NOEXEC, "noexec-mount"),
        (0o100, os.ST_NOEXEC, "noexec-mount"),  # as the server leaves the mode of a stub that it could not start
    ],
)
def test_a_stub_without_its_mode_is_no_matter_of_the_mount(model, mode, flags, kind, monkeypatch):
    stub = model / STUB_NAME
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags))
    stub.touch()
    server = Container(model.parent, model.parents[1] / "mounted/models")
    details = (f"env: {server.server_path(stub)}: Permission denied",)
    failure = Failure("noexec-mount", "its process ended", details, "mount it with exec")
    for file in (stub, Path(server.server_path(stub))):
        file.chmod(mode)
    assert explain_hidden(server, open_model(model), failure).kind == kind


NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: "


@every_row(
    ("written", "fix"),
    [
        ("/models/m/1/a.bin", "; or serve the repository at /models: envpack verify --runtime docker"),
        (
            "/srv/x/m/1/a.bin",
            "; or serve the repository at /srv/x: envpack verify --runtime docker --set served_from=/srv/x",
        ),
        ("/models/m/1/b.bin", ""),
        ("/models/m/../m/1/a.bin", ""),
        ("/m/1/a.bin", ""),
        ("1/a.bin", ""),
    ],
)
def test_a_path_that_a_file_of_the_repository_has_in_a_container_is_told(model, written, fix):
    (model / "1/a.bin").touch()
    repository = model.parent

    def unreadable(paths):
        return next((path for path in paths if not os.path.exists(path)), "")

    found = fix_of_written_path(f"{NO_FILE}'{written}'", repository, "/there", unreadable)
    assert found == (
        f"the file is at /there/m/1/a.bin: begin its path with one of Path(__file__).parents{fix}" if fix else ""
    )
    readable = model / "1/a.bin"
    assert fix_of_written_path(f"{NO_FILE}'{readable}'", repository, str(repository), unreadable) == ""


def test_a_failure_of_such_a_path_keeps_its_reason(model):
    (model / "1/a.bin").touch()
    failure, found = explained(model, f"{NO_FILE}'/models/m/1/a.bin'")
    assert (found.kind, found.reason) == (failure.kind, failure.reason)
    assert found.fix.startswith(f"the file is at {model.parents[1]}/mounted/somewhere/models/m/1/a.bin: ")


@every_row(
    ("file", "reason", "fix"),
    [
        ("1/queue.py", "AttributeError: module 'queue' has no attribute 'SIZE'", "give m/1/queue.py another name"),
        ("1/queue.py", "ImportError: cannot import name 'SIZE' from 'queue' (/usr/lib/queue.py)", "another name"),
        ("1/queue.py", "AttributeError: module 'os' has no attribute 'SIZE'", ""),
        (
            "triton_python_backend_utils.py",
            "AttributeError: module 'triton_python_backend_utils' has no attribute 'ModelConfig'",
            "move it to where only your tests find it",
        ),
    ],
)
def test_a_module_that_the_model_does_not_get_is_named(file, reason, fix, model):
    (model / "1/model.py").write_text("import queue\n")
    (model / file).write_text("SIZE = 1\n")
    failure, found = explained(model, reason)
    assert fix in found.fix
    assert (found.reason, found == failure) == (reason, not fix)
    (model / file).unlink()
    shutil.rmtree(model.parents[1] / "mounted")


def test_a_file_that_git_lfs_has_not_fetched_may_be_the_cause_of_an_unknown_error(model):
    (model / "1/weights.pkl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    failure, found = explained(model, "UnpicklingError: invalid load key, 'v'.", kind="load-failed")
    fix = f"{model}/1/weights.pkl: it is a git-lfs pointer, not the file itself; fetch the file: `git lfs pull`"
    assert found == replace(failure, fix=fix)
    shutil.rmtree(model.parents[1] / "mounted")
    failure, found = explained(model, "failed to load model config")
    assert found == failure

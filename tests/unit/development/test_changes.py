"""The files that concern a model, and how they change."""

import signal
import subprocess
import sys

import pytest

from envpack.development.changes import Change, FileFinder
from envpack.settings.project import open_project


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    (folder / "model/1").mkdir(parents=True)
    (folder / "model/1/model.py").write_text("")
    (folder / "model/config.pbtxt").write_text("")
    (folder / "model/requirements.txt").write_text("numpy\n")
    return folder


@pytest.fixture
def changes(repository):
    """Does something, and gives the changes that it makes."""
    finder = FileFinder(open_project(repository))

    def after(action):
        before = finder.snapshot(["model"])
        action()
        return list(before.changes_to(finder.snapshot(["model"])))

    return after


SOURCE, REQUIREMENT = [Change("model", of_requirements=False)], [Change("model", of_requirements=True)]


@pytest.mark.parametrize("file", ["1/model.py", "1/data/table.json", "config.pbtxt", "helper.py", "2/model.py"])
def test_what_a_server_loads_is_a_source(repository, changes, file):
    (repository / "model" / file).parent.mkdir(parents=True, exist_ok=True)
    assert changes(lambda: (repository / "model" / file).write_text("new")) == SOURCE
    assert changes((repository / "model" / file).unlink) == SOURCE


def test_a_new_folder_is_a_change_if_it_is_a_version(repository, changes):
    assert changes((repository / "model/2").mkdir) == SOURCE
    assert changes((repository / "model/1/cache").mkdir) == []


@pytest.mark.parametrize(
    "file",
    [
        "1/model.pyc",
        "1/__pycache__/model.cpython-310.pyc",
        "1/.model.py.swp",
        "1/model.py~",
        "1/#model.py#",
        "1/4913",
        "1/.#model.py",
        ".env",
        "1/.labels.txt",
        ".git/index",
        "python3.10/pyvenv.cfg",
        "python3.10/lib/module.py",
    ],
)
def test_what_python_editors_and_builds_leave_is_none(repository, changes, file):
    place = repository / "model" / file

    def write():
        place.parent.mkdir(parents=True, exist_ok=True)
        (repository / "model/python3.10").mkdir(exist_ok=True)
        (repository / "model/python3.10/pyvenv.cfg").touch()
        place.write_text("new")

    assert changes(write) == []


def test_code_behind_a_link_is_a_source(repository, changes, tmp_path):
    (tmp_path / "shared").mkdir()
    (repository / "model/2").symlink_to(tmp_path / "shared")
    assert changes(lambda: (tmp_path / "shared/model.py").write_text("new")) == SOURCE


def test_included_files_and_projects_are_requirements(repository, changes, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
    (tmp_path / "base.txt").write_text("numpy\n")
    (tmp_path / "limits.txt").write_text("numpy<3\n")
    file = repository / "model/requirements.txt"
    assert changes(lambda: file.write_text(f"-r ../../base.txt\n-c ../../limits.txt\n{project}\n")) == REQUIREMENT
    for changed in (tmp_path / "base.txt", tmp_path / "limits.txt", project / "p.py", project / "pyproject.toml"):
        assert (
            changes(lambda place=changed: place.write_text(f"{place.exists() and place.read_text()}\n")) == REQUIREMENT
        )
    for made in ("build", "dist", "p.egg-info"):
        (project / made).mkdir()
        assert changes((project / made / "p.py").touch) == []
    (project / "p/build").mkdir(parents=True)
    assert changes((project / "p/build/p.py").touch) == REQUIREMENT


def test_requirements_of_all_models_are_those_of_a_model_without_its_own(repository):
    (repository / "envpack.toml").write_text('requirements = "../all.txt"\n')
    finder, file = FileFinder(open_project(repository)), repository.parent / "all.txt"
    file.write_text("numpy\n")
    assert file not in finder.files("model").requirements
    (repository / "model/requirements.txt").unlink()
    assert {place.resolve() for place in finder.files("model").requirements} == {file}


def test_what_envpack_writes_into_a_model_that_is_a_project_is_no_requirement(repository, changes):
    model = repository / "model"
    (model / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
    (model / "requirements.txt").write_text("-e .\n")
    assert changes(lambda: (model / "helper.py").write_text("new")) == REQUIREMENT
    for name in ("envpack.lock", "config.pbtxt", "triton_python_backend_stub"):
        assert changes(lambda place=model / name: place.write_text("new")) == SOURCE
    (model / "python3.10").mkdir()
    (model / "python3.10/envpack-environment.json").write_text("{}")
    assert changes(lambda: (model / "python3.10/module.py").write_text("new")) == []


def test_an_included_file_that_is_missing_is_a_requirement(repository, changes, tmp_path):
    (repository / "model/requirements.txt").write_text("-r ../../base.txt\n")
    assert changes(lambda: (tmp_path / "base.txt").write_text("numpy\n")) == REQUIREMENT


def test_files_that_are_gone_are_noticed(repository):
    finder = FileFinder(open_project(repository))
    before = finder.snapshot(["model"])
    assert not before.lost_in(finder.snapshot(["model"]))
    (repository / "model/requirements.txt").unlink()
    assert before.lost_in(finder.snapshot(["model"]))


WATCH = """
import signal, sys, threading
from pathlib import Path
from envpack.development.changes import wait_for_changes
from envpack.support.interruption import once_interruptible

number, folder, seen, main = int(sys.argv[1]), Path(sys.argv[2]), threading.Event(), threading.get_ident()

def send():
    while not seen.wait(0.01):
        (folder / "file").write_text("")
    signal.pthread_kill(main, number)

with once_interruptible():
    threading.Thread(target=send).start()
    for _ in wait_for_changes(frozenset({folder}), threading.Event(), 60):
        seen.set()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_watch_as_itself(tmp_path, number):
    """watchfiles raises KeyboardInterrupt for each signal that comes while it waits, which is nearly all the time."""
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", WATCH, str(int(number)), tmp_path], capture_output=True, check=False, timeout=60
        )
        assert (ended.returncode, ended.stderr) == (128 + number, b"")

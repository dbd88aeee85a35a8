"""From a function to a model that serves it: `envpack init --from`, with an interpreter that is here already."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.cli.main import run
from envpack.repository.model import open_model
from envpack.settings.table import Settings
from envpack.support.errors import EnvironmentBuildError, InputError
from envpack.workflow import adoption as module
from envpack.workflow.adoption import adopt
from tests.steps import Steps

CODE = "def double(x: float) -> float:\n    return 2 * x\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a function; the environment of its model has this Python."""
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    prefix, source = tmp_path / "cache/environments/one", tmp_path / "source"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (prefix / "bin/python").chmod(0o755)
    source.mkdir()
    (source / "app.py").write_text(CODE)
    monkeypatch.chdir(source)
    asked = []

    def environment_in_cache(project, model, progress):
        asked.append((project, model, progress))
        return SimpleNamespace(prefix=prefix)

    monkeypatch.setattr(module, "environment_in_cache", environment_in_cache)
    return SimpleNamespace(source=source, models=tmp_path / "models", asked=asked)


def test_a_function_becomes_a_model_with_samples_that_it_answered(folder):
    steps = Steps()
    made = adopt("app:double", folder.models / "twice", progress=steps)
    assert (made.folder, made.inputs, made.outputs) == (folder.models / "twice", ("x",), ("result",))
    assert made.title in steps.seen[0]
    assert steps.seen[0].startswith("read app:double: ")
    assert steps.seen[-1] == "call the model in its own environment: 1 sample"
    samples = json.loads((made.folder / "envpack/smoke.json").read_text())
    assert made.samples == len(samples["data"]) == len(samples["validation_data"]) > 0
    assert open_model(made.folder).name == "twice"
    assert not [warning for warning in made.warnings if "/." in warning], "no temporary folder is named"


def test_the_model_is_built_as_the_repository_and_the_caller_say(folder):
    folder.models.mkdir()
    (folder.models / "envpack.toml").write_text("timeout = 33\n[models.twice]\nformat = 'tar'\n")
    adopt("app:double", folder.models / "twice", said=Settings(python="3.10"))
    ((project, model, _),) = folder.asked
    assert (project.of().timeout, project.of().python) == (33, "3.10")
    assert project.of(model.folder.name).format == "tar", "its own settings count for the unfinished folder"
    assert project.repository == folder.models
    assert not model.folder.exists()


def test_the_next_command_builds_with_the_options_that_it_was_made_with(folder, capsys):
    twice = str(folder.models / "twice")
    assert run(["init", "--from", "app:double", "--allow-source", "docopt", "--python", "3.10", twice]) == 0
    proposed = f"next: envpack build --repository {folder.models} --python 3.10 --allow-source docopt twice"
    assert proposed in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("python", ["", "3.10"], ids=["chosen by envpack", "named"])
def test_another_python_is_taken_if_only_that_has_the_packages_and_none_is_named(folder, monkeypatch, capsys, python):
    there = module.environment_in_cache

    def environment_in_cache(project, model, progress):
        if project.of(model.folder.name).python == "3.11":
            return there(project, model, progress)
        error = EnvironmentBuildError("wheel-missing", "it has no wheel", "choose another version")
        error.fitting_python = "3.11"
        raise error

    monkeypatch.setattr(module, "environment_in_cache", environment_in_cache)
    words = ["--python", python] if python else []
    status = run(["init", "--from", "app:double", *words, str(folder.models / "twice")])
    said = capsys.readouterr().err
    if python:
        assert (status, folder.models.exists()) == (4, False)
        return
    assert status == 0
    assert "it has no wheel, so the model gets Python 3.11" in said
    assert f"next: envpack build --repository {folder.models} --python 3.11 twice" in said.splitlines()


def test_a_folder_that_has_something_is_left_alone(folder):
    (folder.models / "twice").mkdir(parents=True)
    adopt("app:double", folder.models / "twice")
    before = sorted(folder.models.rglob("*"))
    for place in (folder.models / "twice", folder.source / "app.py"):
        with pytest.raises(InputError) as raised:
            adopt("app:double", place)
        error = raised.value
        message = "this folder is not empty" if place.is_dir() else "this exists, and is no folder"
        assert (error.kind, error.message, error.where) == ("not-empty", message, str(place))
        assert error.hint == "name another folder"
    assert sorted(folder.models.rglob("*")) == before


def test_a_name_that_no_address_can_have_is_refused(folder):
    with pytest.raises(InputError) as raised:
        adopt("app:double", folder.models / "a b")
    error = raised.value
    assert (error.kind, error.hint) == ("bad-model-name", "use letters, digits, _ and -")
    assert error.message == "'a b' cannot be the name of the model: it contains ' '"
    assert not folder.models.exists()


def test_a_model_is_not_written_into_what_it_is_made_of(folder):
    inputs = json.dumps([{"type": "double", "name": "x", "required": True}])
    document = {
        "flavors": {"python_function": {"loader_module": "own"}},
        "signature": {"inputs": inputs, "outputs": inputs},
    }
    (folder.source / "MLmodel").write_text(json.dumps(document))
    (folder.source / "requirements.txt").write_text("mlflow\n")
    for place in (folder.source / "twice", folder.source / "a/twice"):
        with pytest.raises(InputError, match="cannot be written into the folder that it is made of"):
            adopt(str(folder.source), place)
        assert not place.exists()


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"


def test_a_file_that_git_lfs_has_not_fetched_is_named(folder):
    (folder.source / "m.joblib").write_text(POINTER)
    (folder.source / "pack").mkdir()
    (folder.source / "pack/__init__.py").write_text(CODE)
    (folder.source / "pack/weights.bin").write_text(POINTER)
    for artifact, file in ((folder.source / "m.joblib", "m.joblib"), ("pack:double", "pack/weights.bin")):
        with pytest.raises(InputError) as raised:
            adopt(str(artifact), folder.models / "twice")
        error = raised.value
        assert (error.kind, error.where) == ("lfs-pointer", str(folder.source / file))
        assert error.hint == "fetch the file: `git lfs pull`"
    assert not folder.models.exists()


def test_a_failure_leaves_nothing_behind(folder, monkeypatch):
    def fail(project, model, progress):
        place = str(model.folder / "requirements.txt")
        raise EnvironmentBuildError("unsolvable", "conflict", "relax it", f"{place}:1")

    monkeypatch.setattr(module, "environment_in_cache", fail)
    with pytest.raises(EnvironmentBuildError) as raised:
        adopt("app:double", folder.models / "of/mine/twice")
    assert raised.value.where == str(folder.source / "app.py"), "the file in the unfinished folder is gone"
    assert not folder.models.exists()
    folder.models.mkdir()
    with pytest.raises(EnvironmentBuildError, match="conflict"):
        adopt("app:double", folder.models / "twice")
    assert [*folder.models.iterdir()] == []


def test_an_error_names_the_users_file_not_its_copy(folder, monkeypatch):
    (folder.source / "requirements.txt").write_text("numpy\nconflict\n")

    def fail(project, model, progress, *, below):
        raise EnvironmentBuildError("unsolvable", "conflict", "relax it", f"{model.folder / below}:2")

    for below, place in (
        ("1/app.py", f"{folder.source}/app.py:2"),
        ("requirements.txt", f"{folder.source}/requirements.txt"),
        ("config.pbtxt", f"{folder.source}/app.py/config.pbtxt:2"),
    ):
        monkeypatch.setattr(module, "environment_in_cache", lambda *a, below=below: fail(*a, below=below))
        with pytest.raises(EnvironmentBuildError) as raised:
            adopt("app:double", folder.models / "twice")
        assert raised.value.where == place, below


def test_a_function_that_fails_says_so_with_its_file(folder):
    (folder.source / "app.py").write_text(f"{CODE}raise KeyError('boom')\n")
    with pytest.raises(InputError) as raised:
        adopt("app:double", folder.models / "twice")
    assert raised.value.kind == "bad-artifact"
    assert "boom" in raised.value.message
    assert Path(raised.value.where).name == "app.py"
    assert not folder.models.exists()

"""Models that are not where a user named them: the hint names the place where they are."""

import os
import tempfile
from pathlib import Path

import pytest

from envpack.repository.selection import model_name, named_models
from envpack.support.errors import InputError


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("deploy/the models/resnet", "deploy/the models/bert", ".cache/old/resnet", "src"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/model.py").touch() if name != "src" else None
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(repository: Path, *names: str) -> tuple[str, str]:
    """The kind and the hint of the error for models that a user names."""
    with pytest.raises(InputError) as caught:
        named_models(repository, names)
    return caught.value.kind, caught.value.hint


def test_a_folder_above_the_models_is_told_from_one_without_models(project):
    found = "models are in a folder below: add --repository 'deploy/the models'"
    assert refusal(project) == ("repository-empty", found)
    assert refusal(project / "src") == ("repository-empty", "`envpack init FOLDER` creates a working example")


def test_all_of_several_repositories_below_are_named(project):
    (project / "deploy/onnx/resnet/1").mkdir(parents=True)
    (project / "deploy/onnx/resnet/1/model.onnx").touch()
    found = "models are in a folder below: add --repository deploy/onnx or 'deploy/the models'"
    assert refusal(project) == ("repository-empty", found)


def test_models_are_found_four_folders_below(project):
    (project / "src/a/b/c/models/m/1").mkdir(parents=True)
    (project / "src/a/b/c/models/m/1/model.py").touch()
    hint = "models are in a folder below: add --repository src/a/b/c/models"
    assert refusal(project / "src") == ("repository-empty", hint)
    (project / "src/a").rename(project / "src/deeper")
    (project / "src/a").mkdir()
    (project / "src/deeper").rename(project / "src/a/deeper")
    assert refusal(project / "src") == ("repository-empty", "`envpack init FOLDER` creates a working example")


def test_a_repository_that_is_named_as_a_model_is_named_as_a_repository(project):
    hint = "add --repository 'deploy/the models' instead"
    for text in ("deploy/the models", "./deploy/the models/", str(project / "deploy/the models")):
        assert refusal(project, text) == ("other-repository", hint)
    assert refusal(project / "deploy", "the models") == ("other-repository", hint)


def test_a_path_is_shown_whole_from_another_folder(project, monkeypatch):
    monkeypatch.chdir(project / "src")
    _, hint = refusal(project, "../deploy/the models")
    assert hint == f"add --repository '{project}/deploy/the models' instead"


def test_a_model_that_does_not_exist_has_alternatives(project):
    models = project / "deploy/the models"
    assert refusal(project, "resnet") == (
        "model-missing",
        "it is in a folder below: add --repository 'deploy/the models'",
    )
    assert refusal(models, "resent") == ("model-missing", "did you mean resnet?")
    assert refusal(models, "x") == ("model-missing", "models of this repository: bert, resnet")
    assert refusal(project / "src", "x")[1].startswith("a model is a folder of the model repository")
    for number in range(5):
        (models / f"z{number}/1").mkdir(parents=True)
        (models / f"z{number}/1/model.py").touch()
    assert refusal(models, "x")[1] == "models of this repository: bert, resnet, z0, z1, z2 and 2 more"


def test_a_folder_that_may_not_be_read_is_no_place_to_point_to(monkeypatch):
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.chdir("/usr")
        for name in ("first/secret/a", "later/models/b"):
            (Path(folder) / name / "1").mkdir(parents=True)
            (Path(folder) / name / "1/model.py").touch()
        Path(folder).chmod(0o755)
        (Path(folder) / "first/secret").chmod(0o000)
        os.seteuid(65534) if user == 0 else None  # whom modes bind
        try:
            _, hint = refusal(Path(folder))
        finally:
            os.seteuid(user)
        (Path(folder) / "first/secret").chmod(0o755)
    assert hint == f"models are in a folder below: add --repository {folder}/later/models"


def test_no_more_than_500_folders_are_looked_into(project):
    for number in range(500):
        (project / f"a{number:03}").mkdir()
    assert refusal(project) == ("repository-empty", "`envpack init FOLDER` creates a working example")


def test_a_folder_of_the_repository_that_may_be_a_model_is_taken_by_its_name(project):
    assert model_name(project, "src") == "src"

"""A user names a model by its folder's name or by a path to that folder."""

import pytest

from envpack.repository.selection import model_name
from envpack.support.errors import InputError


@pytest.fixture
def repository(tmp_path):
    for name in ("r4/m1", "r4/m2", "r5/m1"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/model.py").touch()
    return tmp_path / "r4"


@pytest.mark.parametrize("text", ["m1", "m1/", "./m1", "../r4/m1"])
def test_names_and_paths_into_the_repository(repository, monkeypatch, text):
    monkeypatch.chdir(repository)
    assert model_name(repository, text) == "m1"


@pytest.mark.parametrize("text", ["../r5/m1", "..", "/", "../r5/"])
def test_a_path_to_another_folder_is_refused_with_its_repository(repository, monkeypatch, text):
    monkeypatch.chdir(repository)
    with pytest.raises(InputError) as caught:
        model_name(repository, text)
    assert caught.value.kind == "other-repository"
    assert "--repository" in caught.value.hint


@pytest.mark.parametrize("text", ["m1/1", "m1/1/", "m1/1/model.py", "../r4/m1/config.pbtxt", "../r5/m1/1"])
def test_a_path_in_a_model_is_refused_with_the_name_of_the_model(repository, monkeypatch, text):
    monkeypatch.chdir(repository)
    with pytest.raises(InputError, match="is in the folder of the model m1, and no model") as caught:
        model_name(repository, text)
    elsewhere = f" --repository {repository.parent}/r5" if "r5" in text else ""
    assert caught.value.hint == f"name the model: m1{elsewhere}"


@pytest.mark.parametrize("text", ["s3://bucket/models", "file:///srv/models", "https://example.com/models/m1"])
def test_an_address_is_no_model(repository, text):
    with pytest.raises(InputError, match="is an address, and no model") as caught:
        model_name(repository, text)
    assert "envpack publish ADDRESS MODEL" in caught.value.hint


def test_a_path_to_the_repository_itself_is_no_model(repository, monkeypatch):
    monkeypatch.chdir(repository)
    with pytest.raises(InputError) as caught:
        model_name(repository, "../r4")
    assert (caught.value.kind, caught.value.hint) == (
        "other-repository",
        "leave it out: without a name, all its models are meant",
    )


def test_a_path_through_a_link_to_the_repository_is_its_model(repository, tmp_path, monkeypatch):
    (tmp_path / "current").symlink_to(repository)
    monkeypatch.chdir(tmp_path)
    assert model_name(repository, "current/m2") == "m2"

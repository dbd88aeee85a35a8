"""Which repository a test uses, and when its models are loaded anew."""

import os
from pathlib import Path

import pytest

from envpack.support.errors import StubError
from envpack.testing.models import ModelError
from envpack.testing.session import Session, repository_above
from envpack.testing.source_changes import SourceChanges


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    for name in ("one", "two"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text("")
    return folder


@pytest.mark.parametrize("test", ["one/tests/test_it.py", "one/test_it.py", "test_it.py", "tests/deeper/test_it.py"])
def test_the_repository_is_the_nearest_folder_with_models(repository, test):
    assert repository_above(repository / test) == repository


def test_a_project_file_makes_a_repository(repository):
    (repository / "one/envpack.toml").touch()
    assert repository_above(repository / "one/tests/test_it.py") == repository / "one"


def changed(file):
    return lambda repository: (repository / file).write_text("changed")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (changed("one/1/model.py"), ["one"]),
        (changed("two/1/other.py"), ["two"]),
        (changed("two/config.pbtxt"), ["two"]),
        (lambda repository: (repository / "one/1/model.py").unlink(), ["one"]),
        (lambda repository: os.utime(repository / "one/1/model.py", ns=(0, 0)), ["one"]),
        (lambda repository: (repository / "one").rename(repository / "three"), ["one", "three"]),
        (changed("one/1/weights.bin"), []),
        (changed("one/test_it.py"), []),
        (changed("README.py"), []),
    ],
)
def test_changes_of_sources_are_noticed_once(repository, change, expected):
    changes = SourceChanges(repository)
    assert changes.since_last() == []
    change(repository)
    assert changes.since_last() == expected
    assert changes.since_last() == []


class Failing:
    """Models that cannot be loaded."""

    def __init__(self):
        self.tried = []

    def position(self):
        return 0

    def load(self, name):
        self.tried.append(name)
        raise StubError("compiler-missing", "no compiler", "install one")

    def forget(self, name):
        pass


def test_what_failed_is_tried_again_only_after_a_change(repository, monkeypatch):
    failing = Failing()
    session = Session(is_local=True, server=None, timeout=60)
    monkeypatch.setattr(session, "_models", lambda project: failing)
    load = session.models_for(repository, Path("test_it.py"))
    for _ in range(2):
        with pytest.raises(pytest.fail.Exception, match=r"^no compiler \(compiler-missing\)\n  fix: install one$"):
            load("one")
    assert failing.tried == ["one"]
    changed("one/1/model.py")(repository)
    with pytest.raises(pytest.fail.Exception):
        load("one")
    assert failing.tried == ["one", "one"]


@pytest.mark.parametrize("name", ["nobody", "", "..", "../models/one"])
def test_an_unknown_model_is_refused_with_the_known_ones(repository, monkeypatch, name):
    session = Session(is_local=True, server=None, timeout=60)
    monkeypatch.setattr(session, "_models", lambda project: Failing())
    load = session.models_for(repository, Path("test_it.py"))
    with pytest.raises(ModelError, match=rf"^there is no model '{name}': .*/models has one, two$"):
        load(name)


def test_a_repository_that_does_not_exist(tmp_path):
    session = Session(is_local=True, server=None, timeout=60)
    with pytest.raises(pytest.fail.Exception, match=r"nowhere: model repository not found \(repository-missing\)"):
        session.models_for(tmp_path / "nowhere", tmp_path / "test_it.py")

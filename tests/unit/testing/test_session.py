"""Which repository a test uses, and when its models are loaded anew."""

import os
from pathlib import Path

import pytest

from envpack.settings.table import Settings
from envpack.support.errors import StubError
from envpack.testing import session as module
from envpack.testing.model import ModelError
from envpack.testing.session import Session, SourceChanges, repository_above


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
    session = Session(Settings(timeout=60), is_local=True)
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
    session = Session(Settings(timeout=60), is_local=True)
    monkeypatch.setattr(session, "_models", lambda project: Failing())
    load = session.models_for(repository, Path("test_it.py"))
    with pytest.raises(ModelError, match=rf"^there is no model '{name}': .*/models has one, two$"):
        load(name)


def test_a_repository_that_does_not_exist(tmp_path):
    session = Session(Settings(timeout=60), is_local=True)
    with pytest.raises(pytest.fail.Exception, match=r"nowhere: model repository not found \(repository-missing\)"):
        session.models_for(tmp_path / "nowhere", tmp_path / "test_it.py")


class Running(Failing):
    """Models that can be loaded, and record the calls."""

    def load(self, name):
        self.tried.append(name)

    def position(self):
        return 7

    def printed(self, since):
        return f"printed since {since}"

    def kill(self):
        self.tried.append("kill")

    def close(self):
        self.tried.append("close")


def test_a_session_ends_the_models_that_its_tests_have_used(repository, tmp_path, monkeypatch):
    running, session = Running(), Session(Settings(timeout=60), is_local=True)
    monkeypatch.setattr(session, "_models", lambda project: running)
    test = repository / "one/test_it.py"
    unused = session.models_for(repository / "one", test)
    session.kill()
    session.close()
    assert (unused.since, running.tried) == (0, [])
    loaded = session.models_for(repository, test)
    assert session.printed(test, repository, 3) == session.printed(test, None, 3) == ""
    assert loaded("one").name == "one"
    assert session.models_for(None, test).since == 7, "what was logged before is of other tests"
    assert session.printed(test, None, 3) == "printed since 3"
    assert session.printed(tmp_path / "test_it.py", tmp_path / "absent", 3) == ""
    session.kill()
    session.close()
    assert running.tried == ["one", "kill", "close"]


def test_models_run_where_the_session_says(repository, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(module, "find_runtime", lambda project: ("runtime", project.of().server))
    monkeypatch.setattr(module, "open_models", lambda *what, **how: opened.append((what[1], how)) or Running())
    for is_local, server, runtime in (
        (True, None, None),
        (False, None, ("runtime", None)),
        (False, tmp_path, ("runtime", tmp_path)),
    ):
        session = Session(Settings(timeout=9, **({"server": server} if server else {})), is_local=is_local)
        session.models_for(repository, repository / "test_it.py")("one")
        assert opened.pop() == (runtime, {"timeout": 9})


def test_a_test_without_a_repository_above_it_has_its_own_folder():
    assert repository_above(Path("/folder-that-is-not-there/tests/test_it.py")) == Path(
        "/folder-that-is-not-there/tests"
    )


@pytest.mark.usefixtures("permissions_for_root")
def test_a_folder_of_another_user_makes_the_one_around_it_no_repository(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)  # which may be a model, or anything
    (tmp_path / "repository/m/1").mkdir(parents=True)
    (tmp_path / "repository/m/1/model.py").touch()
    assert [module._holds_models(folder) for folder in (tmp_path, tmp_path / "repository")] == [False, True]


def test_a_failure_names_its_place(tmp_path):
    (tmp_path / "envpack.toml").write_text("unknown = 1\n")
    session = Session(Settings(timeout=60), is_local=True)
    for _ in range(2):
        with pytest.raises(pytest.fail.Exception) as raised:
            session.models_for(tmp_path, tmp_path / "test_it.py")
        assert str(raised.value).startswith(f"{tmp_path}/envpack.toml")
        assert "\n  fix: " in str(raised.value)

"""Which store a build, a lock or a stub uses."""

import pytest

from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import UsageError
from envpack.workflow.project import project_store
from tests.faults.command_line import assert_refused, envpack


@pytest.fixture
def project(tmp_path):
    (tmp_path / "store").mkdir()
    return Project(repository=tmp_path, settings=Settings(store=f"file://{tmp_path}/store", push=True))


def test_the_project_names_the_store_and_whether_to_push(project):
    store = project_store(project)
    assert (str(store.location), store.push) == (project.of().store, True)
    assert project_store(project.saying(Settings(push=False))).push is False


def test_the_caller_names_another_store_or_none(project, tmp_path):
    (tmp_path / "other").mkdir()
    other = project_store(project.saying(Settings(store=f"file://{tmp_path}/other")))
    assert other.location.folder == tmp_path / "other"
    assert project_store(project.saying(Settings(store="none"))) is None
    assert project_store(Project(repository=tmp_path)) is None


def test_nothing_can_be_pushed_without_a_store(project, tmp_path):
    for named in (project, Project(repository=tmp_path)):
        with pytest.raises(UsageError) as raised:
            project_store(named.saying(Settings(store="none", push=True)))
        assert raised.value.kind == "usage"
    ended = envpack("stub", "--python", "3.10", "--set", "push=true", "--json")
    assert_refused(ended, 2, "usage", "Give --store with push")


def test_lockfiles_are_named_for_a_store_only():
    assert_refused(envpack("cache", "prune", "--locks", "/", "--json"), 2, "usage", "Give --store with --locks")

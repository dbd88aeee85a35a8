"""Tests of models on a machine without a server of its own: a container takes its place."""

import contextlib

import pytest

from envpack.server.launch import find_server
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.support.errors import ServerError
from envpack.testing import ModelError, ModelUnderTest
from envpack.testing.opening import find_runtime, open_models
from tests.container.conftest import CONFIG, PYTHON

pytestmark = pytest.mark.thorough


@pytest.fixture
def models(daemon, repository, monkeypatch):
    """The models of a repository, of which one has no environment, on a machine without a server."""

    def missing(named=None):
        if named is not None:
            return find_server(named)
        raise ServerError("server-missing", "no Triton server on this machine", "")

    monkeypatch.setenv("DOCKER_HOST", daemon.address)
    monkeypatch.setattr("envpack.testing.opening.find_server", missing)
    bare = repository / "bare"
    (bare / "1").mkdir(parents=True)
    (bare / "1/model.py").write_text((repository / "double/1/model.py").read_text())
    (bare / "config.pbtxt").write_text(CONFIG)
    (bare / "requirements.txt").write_text("numpy\n")
    project = open_project(repository, Settings(python=PYTHON, image=daemon.image))
    runtime = find_runtime(project)
    assert runtime.image == daemon.image
    with contextlib.closing(open_models(project, runtime, timeout=120)) as found:
        yield found


@pytest.mark.parametrize("name", ["double", "bare"])
def test_a_container_serves_what_is_built_and_what_is_not(models, daemon, name):
    models.load(name)
    model = ModelUnderTest(name, models, models.position())
    assert model.infer(X=[1, 2])["Y"].tolist() == [2, 4]
    with pytest.raises(ModelError, match="unexpected shape"):
        model.infer(X=[[1]])
    assert len(daemon.containers()) == 1

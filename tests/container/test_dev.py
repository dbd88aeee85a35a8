"""`envpack dev --runtime docker`: the models of a working copy, served from a container."""

import pytest

from tests.server.flow.developing import Development, write_at_once


@pytest.fixture
def develop(daemon, repository, monkeypatch):
    """Starts `envpack dev`; what is started is killed in the end."""
    monkeypatch.setenv("DOCKER_HOST", daemon.address)
    started = []

    def start(*options):
        started.append(Development(repository, "--runtime", "docker", "--image", daemon.image, *options))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


def test_a_changed_model_is_loaded_again_in_the_container(develop, daemon, repository):
    running = develop("--json")
    running.wait_until_ready("double")
    assert running.answer("double") == (2, 4)
    (container,) = daemon.containers()
    code = repository / "double/1/model.py"
    write_at_once(code, code.read_text().replace("* 2", "* 3"))
    running.wait_until_ready("double")
    assert running.answer("double") == (3, 6)
    assert daemon.containers() == [container]
    assert running.end()["double"]["serves"]
    assert running.left() == []

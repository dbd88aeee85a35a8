"""`envpack dev --runtime docker`: the models of a working copy, served from a container."""

import pytest

from tests.container.relay import Relay
from tests.server.flow.developing import developments, write_at_once

pytestmark = pytest.mark.thorough


@pytest.fixture
def develop(daemon, repository, monkeypatch):
    """Starts `envpack dev` with a container; what is started is killed in the end."""
    monkeypatch.setenv("DOCKER_HOST", daemon.address)
    with developments() as start:
        yield lambda *words: start(repository, "--runtime", "docker", "--image", daemon.image, *words)


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


def test_a_daemon_that_ends_is_an_error(develop, daemon, repository, monkeypatch, tmp_path):
    with Relay(daemon.address.removeprefix("unix://"), tmp_path / "relay.sock") as relay:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/relay.sock")
        running = develop()
        running.wait_until_ready("double")
        (container,) = daemon.containers()
        relay.break_off()
        code, errors = running.failed()
    container.remove(force=True)  # the command could not; the next one can
    assert code == 6
    assert "(docker-failed)" in errors
    assert "Traceback" not in errors

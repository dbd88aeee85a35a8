"""What `envpack dev` starts with: the server's runtime from the settings, and a debugger for one model."""

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.development.debugger import opened_debugger
from envpack.development.session import Session
from envpack.server import choice
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.support.errors import ServerError, UsageError
from envpack.support.progress import NoProgress
from tests.object_stores import free_port
from tests.unit.server.test_process import install

from .fakes import write_model
from .test_session import ENSEMBLE


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The server of this machine."""
    home = install(tmp_path / "triton")
    monkeypatch.setenv("PATH", str(home / "bin"))
    return home


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    write_model(folder, "one")
    write_model(folder, "two")
    (folder / "all").mkdir()
    (folder / "all/config.pbtxt").write_text(ENSEMBLE)
    return folder


def runtime_of(repository, kind="process", said=None, url="", *, completes=False):
    """The runtime of the next server of a session, behind one at an address."""
    session = Session(open_project(repository, said or Settings()), [], kind, show=print, progress=NoProgress())
    session.url, session._completes = url, completes
    return session._runtime()


def test_the_runtime_has_what_the_session_needs(server, repository):
    runtime = runtime_of(repository, said=Settings(port=8001))
    assert (runtime.name, runtime.installation.executable) == ("process", server / "bin/tritonserver")
    assert (runtime.environment, runtime.utilities) == ({"ENVPACK_LOG_FAILURES": "1"}, None)
    assert runtime.arguments == ("--log-verbose=0", "--disable-auto-complete-config")
    assert (runtime.extra_backends, runtime.port) == (repository.parent / "backends", 8001)


def test_the_server_gets_what_the_settings_have_for_servers(server, repository):
    (repository / "envpack.toml").write_text('env = ["A=1"]\nserver_arg = ["--exit-timeout-secs=9"]\n')
    runtime = runtime_of(repository)
    assert runtime.environment == {"A": "1", "ENVPACK_LOG_FAILURES": "1"}
    assert runtime.arguments[-1] == "--exit-timeout-secs=9"


def test_the_next_server_keeps_the_port_of_the_one_before(server, repository):
    assert runtime_of(repository, said=Settings(port=8001), url="http://127.0.0.1:9001").port == 9001
    assert runtime_of(repository).port is None


def test_a_server_completes_configurations_if_a_model_needs_that(server, repository):
    assert runtime_of(repository, completes=True).arguments == ("--log-verbose=0",)


def test_a_container_is_that_of_the_settings(repository, monkeypatch):
    monkeypatch.setattr(choice, "find_daemon", lambda: SimpleNamespace(name="docker"))
    said = Settings(image="registry.example/triton:1", served_from="/srv", gpu=True)
    runtime = runtime_of(repository, "docker", said)
    assert (runtime.name, runtime.image, runtime.served_from) == ("docker", "registry.example/triton:1", "/srv")
    assert runtime.gpu is True


def test_a_debugger_is_for_the_model_that_is_named(server, repository):
    port = free_port()
    with opened_debugger(open_project(repository), ["one"], port) as debugger:
        assert (debugger.model, debugger.address) == ("one", f"127.0.0.1:{port}")
        assert debugger.utilities == server / "backends/python/triton_python_backend_utils.py"
        (file,) = debugger.variables().values()
        assert json.loads(Path(file).read_text()) == {"utilities": str(debugger.utilities), "name": ""}
    assert not debugger.tools.folder.exists()


def test_without_a_port_there_is_no_debugger(repository):
    with opened_debugger(open_project(repository), [], None) as debugger:
        assert debugger is None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "name the one MODEL that --debug is for; what it needs is loaded as well"),
        (["one", "two"], "name the one MODEL that --debug is for; what it needs is loaded as well"),
        (["all"], "all is an ensemble, which has no code; name one of its steps"),
    ],
)
def test_a_debugger_is_for_one_model_with_code(repository, names, message):
    with pytest.raises(UsageError) as raised, opened_debugger(open_project(repository), names, 4000):
        pass
    error = raised.value
    assert (error.kind, error.message, error.hint) == ("usage", message, "envpack dev --help says what it takes")


def test_a_port_that_is_taken_is_an_error_before_anything_starts(repository):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError) as raised, opened_debugger(open_project(repository), ["one"], port):
            pass
    assert (raised.value.kind, raised.value.where) == ("port-taken", f"127.0.0.1:{port}")

"""Which server models run on for `envpack test` and `envpack run`, and with which settings."""

from types import SimpleNamespace

import pytest

from envpack.server import choice
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.support.errors import ServerError
from envpack.support.folders import cache_folder
from envpack.testing import served_models
from envpack.testing.opening import GRPC_ARGUMENTS, LOCALLY, LocalModels, find_runtime, open_models, where
from tests.unit.server.test_process import install

COMPLETE = """backend: "python"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
COMPLETES = (
    "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n        return config\n"
)


def write_model(folder, config=COMPLETE, code=""):
    (folder / "m/1").mkdir(parents=True)
    (folder / "m/1/model.py").write_text(code)
    (folder / "m/config.pbtxt").write_text(config)


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    """A machine without a server and without a daemon."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr("envpack.server.launch._in_wheel", lambda: None)


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    write_model(folder)
    return folder


def test_a_server_that_is_named_runs_as_a_process(repository, tmp_path, nothing_installed):
    home = install(tmp_path / "triton")
    runtime = find_runtime(open_project(repository, Settings(server=home, triton="24.10")))
    assert runtime.name == "process"
    assert runtime.installation.executable == home / "bin/tritonserver"
    assert runtime.arguments == ("--log-verbose=0", *GRPC_ARGUMENTS, "--disable-auto-complete-config")
    assert runtime.environment == {"PYTHONUNBUFFERED": "1"}
    assert runtime.extra_backends == tmp_path / "backends"


def test_the_server_gets_what_the_settings_have_for_servers(repository, tmp_path, nothing_installed):
    (repository / "envpack.toml").write_text('env = ["A=1"]\nserver_arg = ["--exit-timeout-secs=9"]\n')
    runtime = find_runtime(open_project(repository, Settings(server=install(tmp_path / "triton"), triton="24.10")))
    assert runtime.environment == {"A": "1", "PYTHONUNBUFFERED": "1"}
    assert runtime.arguments[-1] == "--exit-timeout-secs=9"


def test_another_model_that_cannot_be_read_is_no_obstacle(
    repository, tmp_path, nothing_installed, permissions_for_root
):
    write_model(repository.with_name("others"))
    (repository.with_name("others") / "m").rename(repository / "unreadable")
    (repository / "unreadable/config.pbtxt").chmod(0)
    runtime = find_runtime(open_project(repository, Settings(server=install(tmp_path / "triton"), triton="24.10")))
    assert runtime.name == "process"


def test_an_installed_server_runs_without_being_named(repository, tmp_path, nothing_installed, monkeypatch):
    monkeypatch.setenv("PATH", str(install(tmp_path / "triton") / "bin"))
    monkeypatch.setattr("envpack.server.choice.find_daemon", lambda: pytest.fail("a container is not needed"))
    runtime = find_runtime(open_project(repository))
    assert (runtime.name, runtime.installation.executable) == ("process", tmp_path / "triton/bin/tritonserver")


def test_configurations_are_completed_only_for_models_that_may_complete_theirs(tmp_path, nothing_installed):
    home, folder = install(tmp_path / "triton"), tmp_path / "models"
    write_model(folder, 'backend: "python"\n', COMPLETES)
    runtime = find_runtime(open_project(folder, Settings(server=home)))
    assert runtime.arguments == ("--log-verbose=0", *GRPC_ARGUMENTS)


def test_a_named_server_that_is_none_is_an_error(repository, tmp_path, nothing_installed):
    with pytest.raises(ServerError, match="this is not a Triton server"):
        find_runtime(open_project(repository, Settings(server=tmp_path)))


def test_without_a_server_and_a_daemon_there_is_no_runtime(repository, nothing_installed):
    assert find_runtime(open_project(repository)) is None


def test_settings_of_other_commands_do_not_count(repository, tmp_path, nothing_installed):
    said = Settings(server=install(tmp_path / "triton"), port=8001, runtime="docker", served_from="/srv")
    runtime = find_runtime(open_project(repository, said))
    assert (runtime.name, runtime.port) == ("process", None)


def test_a_container_reads_the_repository_and_the_environments_in_the_cache(repository, nothing_installed, monkeypatch):
    monkeypatch.setattr(choice, "find_daemon", lambda: SimpleNamespace(name="docker"))
    said = Settings(image="registry.example/triton:1", gpu=True, memory=1 << 30)
    runtime = find_runtime(open_project(repository, said))
    assert (runtime.name, runtime.image) == ("docker", "registry.example/triton:1")
    assert runtime.same_path_mounts == (repository.resolve(), cache_folder("environments"))
    assert runtime.arguments == ("--log-verbose=0", "--disable-auto-complete-config"), "no gRPC: its port is closed"
    assert (runtime.gpu, runtime.memory_bytes) == (True, 1 << 30)


def test_where_models_run_in_words():
    def runtime(release, image):
        return SimpleNamespace(release=release, image=image)

    assert where(None) == LOCALLY == "locally, without a server"
    assert where(runtime("24.10", "")) == "on Triton 24.10, a process of this machine"
    assert where(runtime("", "mine:1")) == "on a Triton server, a container of mine:1"


def test_models_are_opened_where_they_run(repository, monkeypatch):
    asked = []
    monkeypatch.setattr(served_models, "ServedModels", lambda *a, **options: asked.append((a, options)) or "served")
    project = open_project(repository)
    local = open_models(project, None, timeout=7)
    assert isinstance(local, LocalModels)
    assert local._server._limit.seconds == 7
    local.close()
    assert open_models(project, "runtime", timeout=7, store="store") == "served"
    ((arguments, options),) = asked
    assert (arguments, options["timeout"], options["store"]) == (("runtime", project), 7, "store")
    assert options["progress"] is not None

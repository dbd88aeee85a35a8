"""What a server is started with."""

import pytest

from envpack.repository.model import open_model
from envpack.server.choice import ServerSpec, choose_runtime
from envpack.server.daemon import Daemon
from envpack.settings.table import Settings
from envpack.support.errors import ServerError, UsageError
from envpack.verification.checks.server import check_runtime


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [
        ((), 2),  # the fewest, on a machine with one processor
        (("--log-info=1", "--model-load-thread-count=7"), 7),
        (("--model-load-thread-count=7", "--model-load-thread-count=1"), 1),
        (("--model-load-thread-count=0",), 1),
        (("--model-load-thread-count", "1", "--log-info", "7"), 1),
        (("--model-load-thread-count=many",), 2),
    ],
)
def test_how_many_loads_can_hang_before_all_others_wait(arguments, threads):
    assert ServerSpec(Settings(server_arg=arguments)).load_threads(()) == threads


def test_the_server_gets_the_gpus_that_the_user_chose(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "CUDA_VISIBLE_DEVICES" not in ServerSpec().all_variables()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert ServerSpec().all_variables() == {"CUDA_VISIBLE_DEVICES": "1,2"}
    said = Settings(env=("CUDA_VISIBLE_DEVICES=0", "A=b"))
    assert ServerSpec(said).all_variables() == {"CUDA_VISIBLE_DEVICES": "0", "A": "b"}


@pytest.mark.parametrize("said", [Settings(image="registry.example/tritonserver:24.10"), Settings(pull=True)])
def test_an_image_that_is_named_is_not_replaced_by_a_process(monkeypatch, tmp_path, said):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(ServerError) as caught:
        choose_runtime(ServerSpec(said), tmp_path, ())
    assert caught.value.kind == "docker-missing"
    assert choose_runtime(ServerSpec(), tmp_path, ()).instead_of is None


def test_a_daemon_that_this_user_may_not_use_is_no_absent_one(monkeypatch, tmp_path):
    socket = tmp_path / "docker.sock"
    socket.touch(0)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{socket}")
    monkeypatch.setattr("os.access", lambda file, mode: file != socket)  # root may open it
    with pytest.raises(ServerError) as caught:
        choose_runtime(ServerSpec(Settings(pull=True)), tmp_path, ())
    assert (caught.value.kind, caught.value.where) == ("docker-denied", f"unix://{socket}")
    warned = check_runtime(choose_runtime(ServerSpec(), tmp_path, ()))
    assert (warned.status, warned.fix) == ("warning", caught.value.hint)
    assert warned.evidence == "this user may not use the container daemon, so a server of this machine was used"


def test_a_daemon_of_another_machine_is_named_where_a_process_serves_instead(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "tcp://build.example:2376")
    warned = check_runtime(choose_runtime(ServerSpec(), tmp_path, ()))
    assert "runs on another machine" in warned.evidence
    assert "unset DOCKER_HOST" in warned.fix


@pytest.mark.parametrize("path", ["/", "/opt", "/opt/tritonserver", "/usr", "/tmp", "/etc", "/proc/m", "/dev/shm/m"])
def test_a_repository_that_would_hide_files_of_the_server_is_refused(monkeypatch, tmp_path, path):
    monkeypatch.setattr("envpack.server.choice.find_daemon", lambda: Daemon(None, "docker", "unix:///socket"))
    with pytest.raises(UsageError, match="would hide files of the server"):
        choose_runtime(ServerSpec(Settings(runtime="docker", served_from=path)), tmp_path, ())


@pytest.mark.parametrize("path", ["/models", "/tmp/models", "/opt/models", "/home/me/m", "/device"])
def test_a_repository_can_be_served_from_any_other_path(monkeypatch, tmp_path, path):
    monkeypatch.setattr("envpack.server.choice.find_daemon", lambda: Daemon(None, "docker", "unix:///socket"))
    assert choose_runtime(ServerSpec(Settings(runtime="docker", served_from=path)), tmp_path, ()).served_from == path


def test_an_environment_below_the_place_of_the_repository_is_not_mounted_into_it(monkeypatch, tmp_path):
    monkeypatch.setattr("envpack.server.choice.find_daemon", lambda: Daemon(None, "docker", "unix:///socket"))
    environments = [tmp_path / "served/env", tmp_path / "elsewhere/env", tmp_path / "models/m/env"]
    models = []
    for number, environment in enumerate(environments):
        environment.mkdir(parents=True)
        folder = tmp_path / f"models/m{number}"
        (folder / "1").mkdir(parents=True)
        value = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'
        (folder / "config.pbtxt").write_text(f'backend: "python" {value}')
        (folder / "1/model.py").touch()
        models.append(open_model(folder))
    said = Settings(runtime="docker", served_from=str(tmp_path / "served"))
    runtime = choose_runtime(ServerSpec(said), tmp_path / "models", tuple(models))
    assert runtime.same_path_mounts == (tmp_path / "elsewhere/env",)

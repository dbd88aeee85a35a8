"""What a server is started with."""

import pytest

from envpack.server import ServerSpec, choose_runtime
from envpack.settings import Settings
from envpack.support.errors import ServerError


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
    assert choose_runtime(ServerSpec(), tmp_path, ()).name == "process"

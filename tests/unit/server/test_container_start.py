"""Images whose entrypoint is the server, and the causes of containers that do not start."""

from types import SimpleNamespace

import pytest
from docker.errors import APIError

from envpack.server.container_start import entrypoint_before, pull_errors, start_errors, start_failed
from envpack.server.daemon import daemon_errors
from envpack.support.errors import ServerError

IMAGE = "registry.example/server:1"
TINI = "[FATAL tini (7)] exec tritonserver failed: "
RUNC = 'unable to start container process: exec: "tritonserver": executable file not found in $PATH: invoked'
CRUN = "crun: executable file `tritonserver` not found in $PATH: No such file or directory"
USED = "Error starting userland proxy: listen tcp4 127.0.0.1:18000: bind: address already in use"
ALLOCATED = "Bind for 127.0.0.1:18000 failed: port is already allocated"


def container_of(architecture=""):
    return SimpleNamespace(image=SimpleNamespace(attrs={"Architecture": architecture}))


@pytest.mark.parametrize(
    ("entrypoint", "before"),
    [
        ([], None),
        (["/opt/nvidia/nvidia_entrypoint.sh"], None),
        (["/opt/tritonserver/start.sh"], None),
        (["sh", "-c"], None),
        (["tritonserver"], []),
        (["/opt/tritonserver/bin/tritonserver", "--log-verbose=1"], []),
        (["/opt/nvidia/nvidia_entrypoint.sh", "tritonserver"], ["/opt/nvidia/nvidia_entrypoint.sh"]),
        (["/bin/sh", "-c", "exec tritonserver --model-repository=/models"], []),
    ],
)
def test_an_entrypoint_that_starts_the_server_is_cut_before_it(entrypoint, before):
    assert entrypoint_before(entrypoint) == before


@pytest.mark.parametrize("log", [f"{TINI}No such file or directory", f"{TINI}Permission denied", RUNC, CRUN])
def test_an_image_without_a_server_is_named(log):
    error = start_failed(log, IMAGE, container_of("amd64"))
    assert error.message == f"the image {IMAGE} has no tritonserver that any user can start:\n{log}"
    assert error.hint.startswith("name an image of a Triton server with --image")


def test_a_limit_of_processes_is_named():
    log = "terminate called after throwing an instance of X\n  what():  Resource temporarily unavailable"
    assert "--pids-limit" in start_failed(log, IMAGE, container_of()).hint
    log = "[err] /tmp/src/signal.c: socketpair: Too many open files\nI1128 01:26:14.7 1 http_server.cc:1184] Ended"
    assert "--ulimit nofile" in start_failed(log, IMAGE, container_of()).hint
    assert "ENTRYPOINT" in start_failed("other", IMAGE, container_of()).hint


def test_an_image_for_another_processor_is_named(monkeypatch):
    monkeypatch.setattr("envpack.server.container_start.this_machine", lambda: "x86_64")
    error = start_failed(f"{TINI}Exec format error", IMAGE, container_of("arm64"))
    assert error.message.startswith(f"the image {IMAGE} is for aarch64, and this machine is x86_64")


@pytest.mark.parametrize(
    ("text", "port", "kind"),
    [
        (USED, 18000, "port-taken"),
        (ALLOCATED, 18000, "port-taken"),
        (USED, None, "docker-failed"),  # the daemon chose it
        (RUNC, None, "server-failed"),
        ("the disk is full", 18000, "docker-failed"),
    ],
)
def test_a_container_that_the_daemon_does_not_start_has_its_cause(text, port, kind):
    with pytest.raises(ServerError) as caught, start_errors(container_of(), IMAGE, port), daemon_errors():
        raise APIError(text)
    assert caught.value.kind == kind


def test_an_image_that_cannot_be_fetched_is_named():
    with pytest.raises(ServerError) as caught, pull_errors(IMAGE), daemon_errors():
        raise APIError("lookup registry.example: no such host")
    assert (caught.value.kind, IMAGE in caught.value.message) == ("image-missing", True)


def test_a_name_that_no_image_can_have_is_no_fault_of_the_daemon():
    with pytest.raises(ServerError) as caught, daemon_errors():
        raise APIError("invalid reference format: repository name must be lowercase")
    assert caught.value.kind == "image-missing"

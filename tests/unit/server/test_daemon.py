"""Which container daemon is looked for, and what is said of one that cannot be used."""

import hashlib
import importlib.metadata
import json
import os
import socket
import tempfile
from pathlib import Path

import pytest

from envpack.server.choice import ServerSpec, choose_runtime
from envpack.server.daemon import find_daemon
from envpack.support.errors import ServerError


@pytest.fixture(autouse=True)
def no_daemon_named(monkeypatch, tmp_path):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("_DOCKER", "_PODMAN"):  # this machine may have them
        monkeypatch.setattr(f"envpack.server.daemon.{name}", f"unix://{tmp_path}/{name}.sock")


def refusal():
    with pytest.raises(ServerError) as caught:
        find_daemon()
    return caught.value


@pytest.mark.parametrize(
    ("address", "kind", "fix"),
    [
        ("/var/run/docker.sock", "docker-missing", "write it as unix:///docker.sock, or unset DOCKER_HOST"),
        ("fd://", "docker-missing", "write it as unix:///docker.sock, or unset DOCKER_HOST"),
        ("tcp://localhost:2375", "docker-remote", "name its socket: DOCKER_HOST=unix:///docker.sock"),
        ("tcp://127.0.0.1:2375", "docker-remote", "name its socket: DOCKER_HOST=unix:///docker.sock"),
        ("ssh://me@build.example", "docker-remote", "run envpack on that machine, or unset DOCKER_HOST"),
    ],
)
def test_an_address_that_names_no_socket(monkeypatch, address, kind, fix):
    monkeypatch.setattr("envpack.server.daemon._DOCKER", "unix:///docker.sock")
    monkeypatch.setenv("DOCKER_HOST", address)
    assert (refusal().kind, refusal().hint) == (kind, fix)


def test_a_folder_that_this_user_may_not_enter_hides_no_server(monkeypatch, tmp_path):
    with tempfile.TemporaryDirectory() as folder:  # any user may enter its parent
        monkeypatch.setattr("envpack.server.daemon._PODMAN", f"unix://{folder}/podman.sock")
        choose_runtime(ServerSpec(), tmp_path, ())  # imports what the other user may not be able to read
        Path(folder).chmod(0)
        user = os.geteuid()
        importlib.metadata.version("pytest")  # which loads modules that another user may not read
        os.seteuid(65534) if user == 0 else None  # whom modes bind
        try:
            assert choose_runtime(ServerSpec(), tmp_path, ()).name == "process"
            assert f"unix://{folder}/podman.sock: this user may not enter its folder" in refusal().details
            monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/podman.sock")
            assert refusal().kind == "docker-denied"
        finally:
            os.seteuid(user)
            Path(folder).chmod(0o700)


def write_context(folder, name, host):
    entry = folder / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
    entry.mkdir(parents=True)
    (entry / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))


def test_a_daemon_that_says_nothing_is_not_said_to_be_stopped(monkeypatch, tmp_path):
    monkeypatch.setattr("envpack.server.daemon._ANSWER_SECONDS", 0.2)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        address = f"unix://{folder}/docker.sock"
        listening.bind(address.removeprefix("unix://"))
        listening.listen()
        monkeypatch.setenv("DOCKER_HOST", address)
        error = refusal()
        assert (error.kind, error.where) == ("docker-missing", address)
        assert error.message == "the container daemon does not answer within 0.2 s"
        assert error.hint == "restart it, or use --runtime process"
        assert choose_runtime(ServerSpec(), tmp_path, ()).name == "process"


def test_the_daemon_of_dockers_context_is_used(monkeypatch, tmp_path):
    folder = tmp_path / "docker"
    write_context(folder, "desktop", f"unix://{tmp_path}/desktop.sock")
    write_context(folder, "far", "ssh://build.example")
    (folder / "config.json").write_text('{"currentContext": "desktop"}')
    assert refusal().details == f"unix://{tmp_path}/desktop.sock: the socket does not exist"
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    assert (refusal().kind, refusal().hint) == ("docker-remote", "run envpack on that machine, or unset DOCKER_CONTEXT")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/named.sock")
    assert refusal().details == f"unix://{tmp_path}/named.sock: the socket does not exist"


@pytest.mark.parametrize("content", ["", "[]", '{"currentContext": 1}', '{"currentContext": "gone"}'])
def test_a_configuration_of_docker_without_a_context_names_no_daemon(tmp_path, content):
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text(content)
    assert "_DOCKER.sock: the socket does not exist" in refusal().details

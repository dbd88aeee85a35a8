"""Privileges, mounts and limits that a server's container is created with."""

import os
import resource
import stat
from pathlib import Path

import pytest

from envpack.server.container import ContainerRuntime, Mount, container_options, open_homes, without_mounts
from envpack.server.daemon import Daemon
from envpack.server.stale_runs import this_owner

ROOTS_HOME = "/root"  # in the image
MOUNTS = (Mount(Path("/data/models"), "/models"), Mount(Path("/opt/envs"), "/opt/envs"))


def options(daemon="docker", **changes):
    daemon = daemon if isinstance(daemon, Daemon) else Daemon(None, daemon, "unix:///socket")
    settings = ContainerRuntime(daemon=daemon, image="triton:24.10", **changes)
    return container_options(settings, MOUNTS, 8000)


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """This process has no limits of its own."""
    own = {resource.RLIMIT_NOFILE: resource.RLIM_INFINITY, resource.RLIMIT_NPROC: resource.RLIM_INFINITY}
    monkeypatch.setattr("resource.getrlimit", lambda kind: (64, own[kind]))
    return own


@pytest.mark.parametrize("daemon", ["docker", "podman"])
def test_the_container_has_the_least_privileges(daemon):
    chosen = options(daemon, gpu=True)
    assert chosen["read_only"] is True
    assert chosen["cap_drop"] == ["ALL"]
    assert chosen["security_opt"] == ["no-new-privileges"]
    assert chosen["pids_limit"] == 4096
    assert not {"privileged", "cap_add", "network_mode", "pid_mode", "ipc_mode", "volumes"} & set(chosen)


@pytest.mark.parametrize(("user", "expected"), [(0, "65534:65534"), (1000, "1000:100")])
def test_the_user_is_the_callers_and_never_root(monkeypatch, user, expected):
    monkeypatch.setattr("os.getuid", lambda: user)
    monkeypatch.setattr("os.getgid", lambda: 100)
    assert options()["user"] == expected


def test_with_a_daemon_of_the_caller_the_container_has_the_user_that_is_the_caller(monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 1000)  # which is another user in a user namespace
    assert options(Daemon(None, "podman", "unix:///socket", rootless=True))["user"] == "0:0"


def test_every_mount_is_read_only():
    found = [(mount["Target"], mount["Source"], mount["Type"], mount["ReadOnly"]) for mount in options()["mounts"]]
    assert found == [("/models", "/data/models", "bind", True), ("/opt/envs", "/opt/envs", "bind", True)]


def test_only_tmp_is_writable_and_its_programs_can_run():
    assert options(tmp_bytes=1 << 30)["tmpfs"] == {"/tmp": f"exec,mode=1777,size={1 << 30}"}
    assert options()["tmpfs"] == {"/tmp": f"exec,mode=1777,size={4 << 30}"}


@pytest.mark.parametrize(
    ("target", "opened"),
    [
        (f"{ROOTS_HOME}/cache/environments", [ROOTS_HOME]),
        ("/home/me/env", ["/home/me"]),
        (ROOTS_HOME, []),
        ("/home/me", []),
        ("/srv/env", []),
        (f"{ROOTS_HOME}/../srv/env", []),
    ],
)
def test_homes_of_the_image_are_replaced_if_something_is_mounted_below_them(tmp_path, target, opened):
    environment = tmp_path / "env"
    environment.mkdir()
    before = os.umask(0o077)
    try:
        homes = open_homes((*MOUNTS, Mount(environment, target)), tmp_path / "homes")
    finally:
        os.umask(before)
    assert homes == tuple(Mount(Path(f"{tmp_path}/homes{name}"), name) for name in opened)
    for home in homes:
        place = Path(f"{tmp_path}/homes{target}")
        assert place.is_dir()  # in a read-only mount the daemon cannot make it
        assert all(stat.S_IMODE(folder.stat().st_mode) == 0o755 for folder in (home.source, place.parent, place))


def test_what_is_mounted_in_the_folder_of_shared_memory_is_no_shared_memory():
    mounts = (*MOUNTS, Mount(Path("/dev/shm/cache/env"), "/dev/shm/cache/env"))
    assert without_mounts(("cache", "models", "region"), mounts) == ("models", "region")


def test_the_port_is_open_for_this_machine_only():
    assert options()["ports"] == {"8000/tcp": ("127.0.0.1", None)}
    assert options(port=8123)["ports"] == {"8000/tcp": ("127.0.0.1", 8123)}


def test_memory_has_no_swap_beside_it():
    assert not {"mem_limit", "memswap_limit"} & set(options())
    limited = options(memory_bytes=1 << 30, shm_bytes=1 << 20)
    assert (limited["mem_limit"], limited["memswap_limit"], limited["shm_size"]) == (1 << 30, 1 << 30, 1 << 20)
    assert options()["shm_size"] == 256 << 20


def test_a_containers_variables_precede_the_defaults():
    assert options()["environment"] == {"HOME": "/tmp"}
    assert options(environment={"A": "1", "HOME": "/home"})["environment"] == {"HOME": "/home", "A": "1"}


def test_labels_name_the_owner_and_whether_the_container_is_kept():
    assert options()["labels"] == {"envpack.verify": this_owner()}
    assert options(keep=True)["labels"] == {"envpack.verify": this_owner(), "envpack.keep": "yes"}


def ulimits(daemon):
    return {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in options(daemon)["ulimits"]}


def test_core_dumps_files_and_processes_are_limited(limits):
    assert ulimits("docker") == {"nofile": (65536, 65536), "core": (0, 0)}
    assert ulimits("podman") == {"nofile": (65536, 65536), "core": (0, 0), "nproc": (4096, 4096)}
    limits.update({resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_NPROC: 100})
    assert ulimits("podman") == {"nofile": (1024, 1024), "core": (0, 0), "nproc": (100, 100)}
    limits.update({resource.RLIMIT_NOFILE: 1 << 20, resource.RLIMIT_NPROC: 1 << 20})
    assert ulimits("podman") == {"nofile": (65536, 65536), "core": (0, 0), "nproc": (4096, 4096)}


def test_each_daemon_gets_what_it_understands():
    assert (options("docker")["init"], options("podman")["init"]) == (True, False)
    assert not {"devices", "device_requests"} & (set(options("docker")) | set(options("podman")))
    podman = options("podman", gpu=True)
    assert podman["devices"] == ["nvidia.com/gpu=all"]
    assert "device_requests" not in podman
    docker = options("docker", gpu=True)
    (request,) = docker["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])
    assert "devices" not in docker


def test_paths_of_a_mount_on_both_sides():
    mount = Mount(Path("/data/models"), "/models")
    assert mount.server_path(Path("/data/models/m/1")) == "/models/m/1"
    assert mount.server_path(Path("/data/models")) == "/models"
    assert mount.server_path(Path("/data/models2/m")) == ""
    assert mount.host_path("/models/m/1") == Path("/data/models/m/1")
    assert mount.host_path("/models2/m") is None


def test_an_images_defaults():
    settings = ContainerRuntime(daemon=Daemon(None, "docker", ""), image="triton:24.10")
    assert (settings.served_from, settings.port, settings.start_seconds) == ("/models", None, 60)
    assert (settings.gpu, settings.pull, settings.keep) == (False, False, False)

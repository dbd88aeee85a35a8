"""A Docker daemon for the tests: a running one, or a private one that ends with them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
from filelock import FileLock

_START_SECONDS = 30
_OTHER_SECONDS = 900  # that other tests on this machine may have a daemon


class DaemonMissingError(Exception):
    """No Docker daemon runs, and none can be started; the message names what is missing."""


@contextlib.contextmanager
def docker_daemon() -> Iterator[str]:
    """The address of a daemon, in the form of ``DOCKER_HOST``.

    Raises:
        DaemonMissingError: none answers and none can be started.

    """
    answering = _answering()
    if answering:
        yield answering
        return
    if shutil.which("dockerd") is None:
        raise DaemonMissingError("dockerd is not installed (Debian: docker.io)")
    if os.geteuid() != 0:
        raise DaemonMissingError("no Docker daemon answers, and only root can start one")
    # Not in /var: the data of a private daemon is removed with it and affects no other daemon.
    home = Path(tempfile.mkdtemp(prefix="envpack-docker-"))
    try:
        with _private(home) as address:
            yield address
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def podman_daemon() -> Iterator[str]:
    """The address of podman's service, with Docker's interface; a private one that ends with the tests.

    Raises:
        DaemonMissingError: podman is not installed, or does not start.

    """
    if shutil.which("podman") is None:
        raise DaemonMissingError("podman is not installed")
    home = Path(tempfile.mkdtemp(prefix="envpack-podman-"))
    address = f"unix://{home}/podman.sock"
    # Private storage, so that images of earlier runs do not interfere. Inside a container there is neither a journal
    # nor systemd's groups.
    options = [f"--root={home}/data", f"--runroot={home}/run", "--cgroup-manager=cgroupfs", "--events-backend=file"]
    try:
        with _served(["podman", *options, "system", "service", "--time=0", address], address, home / "log"):
            yield address
    finally:
        subprocess.run(["podman", *options, "rm", "--all", "--force"], check=False, capture_output=True)
        _kill_helpers(home)
        shutil.rmtree(home, ignore_errors=True)


def _kill_helpers(home: Path) -> None:
    """Podman keeps a process for each finished command of a container for minutes; an argument names its storage."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended by itself
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if Path(os.fsdecode(arguments[0])).name in {"podman", "conmon"} and any(
                os.fsencode(home) in argument for argument in arguments
            ):
                os.kill(int(process.name), signal.SIGKILL)


def _answering() -> str:
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    return address if _answers(address, seconds=5) else ""


def _answers(address: str, *, seconds: int) -> bool:
    socket = address.removeprefix("unix://")
    if socket != address and not Path(socket).exists():  # the SDK leaves a socket open when it cannot connect
        return False
    try:
        with contextlib.closing(docker.DockerClient(base_url=address, timeout=seconds)) as client:
            client.ping()
    except docker.errors.DockerException:
        return False
    return True


@contextlib.contextmanager
def _private(home: Path) -> Iterator[str]:
    address = f"unix://{home}/docker.sock"
    command = [
        "dockerd",
        f"--host={address}",
        f"--data-root={home}/data",
        f"--exec-root={home}/exec",
        f"--pidfile={home}/pid",
    ]
    with _served(command, address, home / "log"):
        yield address


@contextlib.contextmanager
def _served(command: list[str], address: str, log_file: Path) -> Iterator[None]:
    """Run a daemon during the block; the block begins when the daemon answers."""
    # Two daemons at the same time give their containers the same addresses.
    alone = FileLock(Path(tempfile.gettempdir()) / f"envpack-{command[0]}.lock", timeout=_OTHER_SECONDS)
    own = os.environ | {"TMPDIR": str(log_file.parent)}  # podman leaves there what it has loaded
    with alone, log_file.open("wb") as log:
        process = subprocess.Popen(command, env=own, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            _wait(process, address, log_file)
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if _answers(address, seconds=2):
            return
        time.sleep(0.1)
    last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    raise DaemonMissingError(f"{process.args[0]} does not start here: {last}")

"""A daemon, an image of the server, and a model repository that is built once.

Where no container can run, the tests skip and name what is missing; in CI (variable CI) that is a failure.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import docker
import pytest

from ci.containers.daemon import DaemonMissingError, docker_daemon, podman_daemon
from ci.containers.image import ensure_image
from envpack.server.stale_runs import LABEL
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.errors import ServerError
from tests.needed_pythons import need

PYTHON = find_release(DEFAULT_RELEASE).python
CONFIG = """backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""
DOUBLE = """
import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        START

    def execute(self, requests):
        EXECUTE
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy() * 2)]) for r in requests
        ]
"""


def _missing(what):
    if os.environ.get("CI"):
        pytest.fail(f"CI runs containers, and cannot: {what}")
    pytest.skip(f"needs containers: {what}")


@contextlib.contextmanager
def _running(daemon, base):
    try:
        with contextlib.ExitStack() as stack:
            address = stack.enter_context(daemon())
            client = stack.enter_context(contextlib.closing(docker.DockerClient(base_url=address)))
            yield Daemon(address, client, ensure_image(client), base)
    except (DaemonMissingError, ServerError, RuntimeError) as error:
        _missing(str(error))


class Daemon:
    """A daemon with the image of the server; other runs can use it at the same time."""

    def __init__(self, address, client, image, base):
        self.address, self.client, self.image, self.base = address, client, image, base

    def containers(self):
        """The containers of this test run: those that mount its folders."""
        containers = self.client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
        return [container for container in containers if self._mounts_folder(container)]

    def _mounts_folder(self, container):
        return any(mount["Source"].startswith(f"{self.base}/") for mount in container.attrs["Mounts"])


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    with _running(docker_daemon, tmp_path_factory.getbasetemp()) as running:
        yield running


@pytest.fixture(scope="session")
def podman(tmp_path_factory):
    with _running(podman_daemon, tmp_path_factory.getbasetemp()) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    yield
    for name in {"daemon", "podman"} & set(request.fixturenames):
        assert request.getfixturevalue(name).containers() == []


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A repository of one model, its environment a folder beside it, its stub ours."""
    need(PYTHON)
    repository = tmp_path_factory.mktemp("built") / "models"
    write_model(repository, "double")
    (repository / "double/requirements.txt").write_text("numpy<2\n")
    command = [sys.executable, "-m", "envpack", "build", "double", "--python", PYTHON, "--stub", "always"]
    subprocess.run([*command, "--repository", repository], check=True, stdout=subprocess.PIPE)
    return repository


@pytest.fixture
def repository(built, tmp_path):
    """A copy of `built` for one test, made of hard links."""
    return Path(shutil.copytree(built, tmp_path / "models", copy_function=os.link, symlinks=True))


def write_model(repository, name, start="pass", execute="pass", *, like=None):
    """Write a model that doubles its input; ``like`` is a model whose environment and stub it shares."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(DOUBLE.replace("START", start).replace("EXECUTE", execute))
    (folder / "config.pbtxt").write_text(CONFIG)
    if like is not None:
        for entry in like.iterdir():
            if entry.name == "config.pbtxt":
                shutil.copy(entry, folder / entry.name)
            elif entry.is_dir() and entry.name != "1":
                shutil.copytree(entry, folder / entry.name, copy_function=os.link, symlinks=True)
            elif entry.name.startswith("triton_python_backend_stub"):
                os.link(entry, folder / entry.name)
    return folder


@contextlib.contextmanager
def environment_in_home(model):
    """Moves a model's environment into this user's home; only root may enter /root in the image."""
    (environment,) = (entry for entry in model.iterdir() if (entry / "bin/activate").is_file())
    config = (model / "config.pbtxt").read_text()
    with tempfile.TemporaryDirectory(prefix="envpack-tests-", dir=Path.home()) as home:
        Path(home).chmod(0o755)
        there = shutil.move(environment, home)
        (model / "config.pbtxt").unlink()  # a link of another file
        (model / "config.pbtxt").write_text(
            re.sub(r"(EXECUTION_ENV_PATH.*?string_value: *)\"[^\"]+\"", rf'\1"{there}"', config, flags=re.DOTALL)
        )
        yield


class Envpack:
    """The command line, as a program uses it, with one daemon."""

    def __init__(self, daemon, repository):
        self.command = [sys.executable, "-m", "envpack"]
        self.daemon, self.repository = daemon, repository
        self.environment = {**os.environ, "DOCKER_HOST": daemon.address}

    def start(self, *options, **settings):
        words = [*self.command, "verify", "--runtime", "docker", "--image", self.daemon.image, "--json"]
        return subprocess.Popen(
            [*words, "--repository", str(self.repository), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **settings},
        )

    def verify(self, *options, **settings):
        """Exit status and document."""
        process = self.start(*options, **settings)
        out, error = process.communicate(timeout=300)
        assert out, error
        return process.returncode, json.loads(out)

    def wait_for_container(self, seconds=60):
        """The container of a run that has been started; its server is loading a model."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for container in self.daemon.containers():
                if b"Starting Python backend stub" in container.logs():
                    return container
            time.sleep(0.1)
        raise AssertionError("no container came up")


@pytest.fixture
def envpack(daemon, repository):
    return Envpack(daemon, repository)


@pytest.fixture
def interrupted(envpack):
    """Send a signal to a run while the load of its model is blocked; returns the exit status."""

    def run(number):
        process = envpack.start()
        envpack.wait_for_container()
        process.send_signal(number)
        process.communicate(timeout=60)
        return process.returncode

    return run


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

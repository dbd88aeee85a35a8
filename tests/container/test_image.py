"""`envpack layout --image`: an image that serves by itself, built upon one that no registry has."""

import json
import subprocess
import sys
import time

import pytest

from ci.containers.daemon import DaemonMissingError, docker_daemon
from ci.containers.image import ensure_image
from envpack.environment import interpreter_for
from envpack.errors import EnvpackError
from envpack.releases import DEFAULT_RELEASE, find_release
from envpack.verification.asking.kserve import Client
from envpack.verification.asking.tensors import Tensor

OTHER = "3.11"
TAG = "envpack-test/deployed:1"
MODEL = """
import platform
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_output({"name": "PYTHON", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        version = np.array([platform.python_version().encode()], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("PYTHON", version)]) for _ in requests]
"""


@pytest.fixture(scope="module")
def daemon():
    """The address of a daemon, which envpack finds too."""
    try:
        with docker_daemon() as address, pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", address)
            yield address
    except DaemonMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def client(daemon):
    import docker

    return docker.DockerClient(base_url=daemon, timeout=60)


@pytest.fixture(scope="module")
def pythons():
    """The server's own and another one."""
    found = (find_release(DEFAULT_RELEASE).python, OTHER)
    try:
        for minor in found:
            interpreter_for(minor)
    except EnvpackError as error:
        pytest.skip(f"needs Python {minor}: {error}")
    return found


def envpack_json(*arguments):
    command = [sys.executable, "-m", "envpack.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def repository(tmp_path_factory, pythons):
    """A model on the server's Python whose stub is the server's, one that has a stub, and one in a backend."""
    folder = tmp_path_factory.mktemp("layout") / "repository"
    for name in ("own", "beside", "behind"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text(MODEL)
        (folder / name / "requirements.txt").write_text("numpy<2\n")
    server, other = pythons
    for words in (("own", server), ("beside", other), ("behind", other, "--layout", "backend")):
        name, python, *more = words
        code, document = envpack_json("build", name, "--python", python, "--repository", folder, *more)
        assert code == 0, document
    return folder


def test_nothing_is_fetched_unless_it_may_be(daemon, repository, tmp_path):
    words = ("layout", "own", "--repository", repository, "--output", tmp_path / "tree", "--image", TAG)
    code, document = envpack_json(*words, "--from", "localhost:9/nobody/none:1")
    assert (code, document["error"]["kind"]) == (6, "image-missing")
    assert "--pull" in document["error"]["hint"]
    code, document = envpack_json(*words, "--from", "localhost:9/nobody/none:1", "--pull")
    assert (code, document["error"]["kind"]) == (6, "image-missing")
    assert "cannot be fetched" in document["error"]["message"]


def test_an_image_serves_by_itself(client, repository, pythons, tmp_path):
    base = ensure_image(client)
    words = ("layout", "--repository", repository, "--output", tmp_path / "tree", "--image", TAG, "--from", base)
    code, document = envpack_json(*words, "--triton", DEFAULT_RELEASE)
    assert code == 0, document
    image = client.images.get(TAG)
    try:
        assert document["image"]["id"] == image.id
        assert image.labels["org.opencontainers.image.base.name"] == base
        assert image.labels["org.opencontainers.image.title"] == "deployed"
        with serving(client) as (container, url):
            asked = Client(url, timeout=15)
            wait_until_ready(asked, container)
            inside = container.exec_run(["cat", "/opt/envpack/envpack-layout.json"]).output
            assert json.loads(inside) == document["description"]
            x = Tensor("X", "FP32", (2,), (1.0, 2.0))
            found = {name: asked.infer(name, (x,))[0].data[0].decode() for name in ("own", "beside", "behind")}
            server, other = pythons
            minors = {name: version.rpartition(".")[0] for name, version in found.items()}
            assert minors == {"own": server, "beside": other, "behind": other}
    finally:
        client.images.remove(TAG, force=True)


class serving:  # noqa: N801 - used like a function
    """A container of the image, as nobody and without the right to write."""

    def __init__(self, client):
        self.client = client

    def __enter__(self):
        options = {
            "detach": True,
            "read_only": True,
            "user": "65534:65534",
            "cap_drop": ["ALL"],
            "shm_size": "256m",
            "tmpfs": {"/tmp": "exec,mode=1777"},
            "ports": {"8000/tcp": ("127.0.0.1", None)},
        }
        self.container = self.client.containers.run(TAG, **options)
        self.container.reload()
        port = self.container.attrs["NetworkSettings"]["Ports"]["8000/tcp"][0]["HostPort"]
        return self.container, f"http://127.0.0.1:{port}"

    def __exit__(self, *_error):
        self.container.remove(force=True, v=True)


def wait_until_ready(asked, container):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if asked._send("GET", "/v2/health/ready").status_code == 200:
                return
        except Exception:
            container.reload()
            assert container.status == "running", container.logs().decode()[-3000:]
        time.sleep(0.2)
    pytest.fail(container.logs().decode()[-3000:])

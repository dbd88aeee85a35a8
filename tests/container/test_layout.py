"""The folder of `envpack layout`: an image that is built of it serves by itself, and a server of the image reads it."""

import json
import shutil
import subprocess
import sys
import time

import pytest
from docker.types import Ulimit

from envpack.conda.choice import interpreter_for
from envpack.repository.placement import ONE_AT_A_TIME
from envpack.server.kserve import Client
from envpack.server.tensors import Tensor
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.errors import EnvpackError
from tests.container.inside import output_of

pytestmark = pytest.mark.thorough

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
    command = [sys.executable, "-m", "envpack", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def models(tmp_path_factory, pythons):
    """A model on the server's Python whose stub is the server's, one that has a stub, and one in a backend."""
    folder = tmp_path_factory.mktemp("layout") / "repository"
    for name in ("own", "beside", "behind"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text(MODEL)
        (folder / name / "requirements.txt").write_text("numpy<2\n")
    server, other = pythons
    for words in (("own", server), ("beside", other), ("behind", other, "--set", "layout=backend")):
        name, python, *more = words
        code, document = envpack_json("build", name, "--python", python, "--repository", folder, *more)
        assert code == 0, document
    return folder


@pytest.mark.parametrize("engine", ["daemon", "podman"])
def test_an_image_serves_by_itself(request, engine, models, pythons, tmp_path):
    daemon = request.getfixturevalue(engine)
    client, base = daemon.client, daemon.image
    words = ("layout", "--repository", models, "--output", tmp_path / "tree", "--triton", DEFAULT_RELEASE)
    code, document = envpack_json(*words)
    assert code == 0, document
    client.images.build(path=str(tmp_path / "tree"), tag=TAG, buildargs={"BASE": base}, rm=True, forcerm=True)
    try:
        with serving(client) as (container, url):
            triton = Client(url, timeout=15)
            wait_until_ready(triton, container)
            inside = output_of(container, ["cat", "/opt/envpack/envpack-layout.json"])
            assert json.loads(inside) == document["description"]
            x = Tensor("X", "FP32", (2,), (1.0, 2.0))
            found = {name: triton.infer(name, (x,))[0].data[0].decode() for name in ("own", "beside", "behind")}
            server, other = pythons
            minors = {name: version.rpartition(".")[0] for name, version in found.items()}
            assert minors == {"own": server, "beside": other, "behind": other}
    finally:
        client.images.remove(TAG, force=True)


def test_the_printed_command_serves_archives_of_several_backends(daemon, models, pythons, tmp_path):
    """The tree is mounted into the image of the server, and all models are loaded at its start."""
    if shutil.which("docker") is None:
        pytest.skip("needs the docker program")
    server, other = pythons
    for name, python in (("own", server), ("behind", other)):
        code, document = envpack_json("build", name, "--python", python, "--repository", models, "--format", "tar.gz")
        assert code == 0, document
    words = ("layout", "--repository", models, "--output", tmp_path / "tree", "--triton", DEFAULT_RELEASE)
    code, document = envpack_json(*words)
    assert code == 0, document
    command = document["docker"]
    assert command[-1] == ONE_AT_A_TIME
    others = {find_release(DEFAULT_RELEASE).image: daemon.image, "8000:8000": "127.0.0.1::8000"}
    command = [
        "docker",
        f"--host={daemon.address}",
        "run",
        "--detach",
        *(others.get(word, word) for word in command[2:]),
    ]
    command = [word for word in command if word != "8001:8001"]
    del command[command.index("-p", command.index("127.0.0.1::8000"))]
    started = subprocess.run(command, capture_output=True, text=True, check=True)
    container = daemon.client.containers.get(started.stdout.strip())
    try:
        triton = Client(address_of(container), timeout=15)
        wait_until_ready(triton, container)
        x = Tensor("X", "FP32", (2,), (1.0, 2.0))
        found = {name: triton.infer(name, (x,))[0].data[0].decode() for name in ("own", "beside", "behind")}
        minors = {name: version.rpartition(".")[0] for name, version in found.items()}
        assert minors == {"own": server, "beside": other, "behind": other}
    finally:
        container.remove(force=True, v=True)


def address_of(container):
    container.reload()
    port = container.attrs["NetworkSettings"]["Ports"]["8000/tcp"][0]["HostPort"]
    return f"http://127.0.0.1:{port}"


class serving:  # noqa: N801 - used like a function
    """A container of the image, as the user nobody and read-only."""

    def __init__(self, client):
        self.client = client

    def __enter__(self):
        options = {
            "read_only": True,
            "user": "65534:65534",
            "cap_drop": ["ALL"],
            "shm_size": "256m",
            "tmpfs": {"/tmp": "exec,mode=1777"},
            "ports": {"8000/tcp": ("127.0.0.1", None)},
            # Podman's defaults are beyond what this process may pass on, if it is limited itself.
            "ulimits": [Ulimit(name=name, soft=1024, hard=1024) for name in ("nofile", "nproc")],
        }
        self.container = self.client.containers.create(TAG, **options)
        try:
            self.container.start()
        except BaseException:
            self.__exit__()
            raise
        return self.container, address_of(self.container)

    def __exit__(self, *_error):
        self.container.remove(force=True, v=True)


def wait_until_ready(triton, container):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if triton._send("GET", "/v2/health/ready").status_code == 200:
                return
        except Exception:
            container.reload()
            assert container.status == "running", container.logs().decode()[-3000:]
        time.sleep(0.2)
    pytest.fail(container.logs().decode()[-3000:])

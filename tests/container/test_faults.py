"""Faults of the container and its daemon: each has one clear error, and no container remains."""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.container.conftest import SIGNALS, write_model
from tests.container.relay import Relay
from tests.waiting import soon


@pytest.fixture
def hanging(repository):
    """The repository's only model never finishes its load."""
    write_model(repository, "hangs", "__import__('time').sleep(1000)", like=repository / "double")
    shutil.rmtree(repository / "double")


@pytest.mark.thorough
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_an_interrupted_run_leaves_no_container(hanging, interrupted, daemon, number):
    assert interrupted(number) == 128 + number
    assert daemon.containers() == []


@pytest.mark.thorough
def test_the_next_run_removes_what_a_killed_run_left(envpack, repository, daemon, tmp_path):
    (tmp_path / "temporary").mkdir()
    envpack.environment["TMPDIR"] = str(tmp_path / "temporary")
    write_model(repository, "hangs", "__import__('time').sleep(1000)", like=repository / "double")
    process = envpack.start("hangs")
    left = envpack.wait_for_container()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert [container.id for container in daemon.containers()] == [left.id]
    code, document = envpack.verify("double")
    assert code == 0, document
    assert soon(lambda: not daemon.containers())  # another run on this machine may just be removing it
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.thorough
def test_two_concurrent_runs_do_not_disturb_each_other(envpack):
    first, second = envpack.start(), envpack.start()
    for process in (first, second):
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        assert json.loads(out)["verdict"]["ok"]


def test_a_missing_image_is_an_error_and_nothing_is_pulled(envpack, daemon):
    envpack.daemon.image, kept = "not-there/tritonserver:1.0", daemon.image
    try:
        code, document = envpack.verify()
    finally:
        envpack.daemon.image = kept
    assert (code, document["error"]["kind"]) == (6, "image-missing")
    assert "--set pull=true" in document["error"]["hint"]


@pytest.mark.thorough
def test_an_image_whose_entrypoint_is_the_server_is_verified(envpack, daemon):
    container = daemon.client.containers.create(daemon.image, "true")
    tag = container.commit("envpack-test/entrypoint", "1", changes='ENTRYPOINT ["tritonserver"]').tags[0]
    container.remove()
    try:
        code, document = envpack.verify("--image", tag)
    finally:
        daemon.client.images.remove(tag)
    assert code == 0, document


def test_a_daemon_without_gpus_is_an_error(envpack, daemon):
    if "nvidia" in daemon.client.info()["Runtimes"] or Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    code, document = envpack.verify("--gpu")
    assert (code, document["error"]["kind"]) == (6, "no-gpu")
    assert "nvidia-container-toolkit" in document["error"]["hint"]


def test_a_missing_daemon_is_an_error(envpack, tmp_path):
    code, document = envpack.verify(DOCKER_HOST=f"unix://{tmp_path}/nothing.sock")
    assert (code, document["error"]["kind"]) == (6, "docker-missing")
    code, document = envpack.verify(DOCKER_HOST="tcp://someone:secret@192.0.2.1:2376")
    assert (code, document["error"]["kind"]) == (6, "docker-remote")
    assert "secret" not in json.dumps(document)


def test_a_server_that_ends_during_a_load_is_an_error(envpack, repository):
    write_model(repository, "hangs", "__import__('time').sleep(1000)", like=repository / "double")
    process = envpack.start("hangs")
    envpack.wait_for_container().kill()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(out)["verdict"]["models"][0]["failure"]["kind"] == "server-died"


def test_a_daemon_that_ends_is_an_error(envpack, repository, tmp_path):
    write_model(repository, "hangs", "__import__('time').sleep(1000)", like=repository / "double")
    with Relay(envpack.daemon.address.removeprefix("unix://"), tmp_path / "relay.sock") as relay:
        process = envpack.start("hangs", DOCKER_HOST=f"unix://{tmp_path}/relay.sock")
        container = envpack.wait_for_container()
        relay.break_off()
        out, _ = process.communicate(timeout=60)
    # It could not remove its container; the next run can.
    container.remove(force=True)
    assert (process.returncode, json.loads(out)["error"]["kind"]) == (6, "docker-failed")


@pytest.mark.thorough
def test_a_kept_server_responds_until_it_is_removed(envpack, daemon):
    code, document = envpack.verify("--keep")
    assert code == 0, document
    kept = document["verdict"]["kept"]
    try:
        assert kept.startswith("http://127.0.0.1:")
        address = kept.partition(";")[0]
        done = subprocess.run(["curl", "-sf", f"{address}/v2/models/double/ready"], check=False)
        assert done.returncode == 0
        assert envpack.verify()[0] == 0  # a later run leaves it alone
        assert len(daemon.containers()) == 1
    finally:
        subprocess.run(
            ["docker", "-H", daemon.address, *kept.rpartition("docker ")[2].split()], check=True, capture_output=True
        )

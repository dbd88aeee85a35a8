"""Verification in a real container: the same verdict, and nothing left behind."""

import shutil

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.container.conftest import environment_in_home, write_model


def statuses(checks):
    return {check["id"]: check["status"] for check in checks}


def test_a_model_is_served_from_a_read_only_mount_by_an_unprivileged_user(envpack, daemon):
    code, document = envpack.verify()
    verdict = document["verdict"]
    (model,) = verdict["models"]
    assert code == 0, model
    assert (verdict["runtime"], verdict["image"]) == ("docker", daemon.image)
    assert set(statuses(model["checks"]).values()) <= {"ok", "warning"}
    assert model["stub"]["executable"] == "/models/double/triton_python_backend_stub"
    assert statuses(verdict["checks"]) == {
        "repository": "ok",
        "again": "ok",
        "shutdown": "ok",
        "stop": "ok",
    }


@pytest.mark.thorough
def test_a_packed_environment_and_several_models_at_the_same_time(envpack, repository):
    double = repository / "double"
    (environment,) = (entry for entry in double.iterdir() if (entry / "bin/activate").is_file())
    archive = shutil.make_archive(str(repository / "environment"), "tar", environment)
    shutil.move(archive, double / f"{environment.name}.tar")
    config = (double / "config.pbtxt").read_text().replace(environment.name, f"{environment.name}.tar")
    shutil.rmtree(environment)
    (double / "config.pbtxt").unlink()
    (double / "config.pbtxt").write_text(config)
    twin = write_model(repository, "twin", like=double)
    shutil.copy(double / f"{environment.name}.tar", twin)
    code, document = envpack.verify()
    assert code == 0, document["verdict"]["models"]
    assert statuses(document["verdict"]["checks"])["together"] == "ok"
    first = document["verdict"]["models"][0]["phases"][0]
    assert first["name"] == "extraction"
    assert first["seconds"] > 0


def test_a_daemon_without_the_image_is_told_before_a_process_is_taken_for_it(envpack):
    """Without the option that names the image of the tests, the official one is meant, which this daemon lacks."""
    code, document = envpack.verify("--runtime", "auto", "--image", "")
    assert code == 0, document
    assert document["verdict"]["runtime"] == "process"
    (check,) = (check for check in document["verdict"]["checks"] if check["id"] == "runtime")
    assert check["status"] == "warning"
    assert f"does not have the image {find_release(DEFAULT_RELEASE).image}" in check["evidence"]


@pytest.mark.thorough
def test_a_process_that_outlives_its_model_is_named(envpack, repository):
    starts = "__import__('subprocess').Popen(['sleep', '600'], start_new_session=True)"
    write_model(repository, "starts", starts, like=repository / "double")
    code, document = envpack.verify("starts")
    assert code == 1
    (check,) = (check for check in document["verdict"]["checks"] if check["id"] == "shutdown")
    assert check["evidence"].endswith("(sleep 600)")


@pytest.mark.thorough
def test_a_home_that_the_image_closes_is_opened_for_an_environment_in_it(envpack, repository):
    with environment_in_home(repository / "double"):
        code, document = envpack.verify()
    assert code == 0, document["verdict"]["models"]


def test_another_path_in_the_container(envpack):
    code, document = envpack.verify("--set", "served_from=/srv/triton/models")
    assert code == 0, document
    assert document["verdict"]["models"][0]["stub"]["executable"].startswith("/srv/triton/models/double/")


@pytest.mark.thorough
def test_a_blocked_or_dead_model_is_reported_with_its_output(envpack, repository):
    double = repository / "double"
    write_model(repository, "dies", "print('going away', flush=True); __import__('os')._exit(3)", like=double)
    write_model(repository, "hangs", "print('asleep', flush=True); __import__('time').sleep(1000)", like=double)
    code, document = envpack.verify("dies")
    assert code == 1
    assert document["verdict"]["models"][0]["failure"]["kind"] == "stub-died"
    assert "going away" in str(document["verdict"]["models"][0]["failure"]["details"])
    code, document = envpack.verify("hangs", "--timeout", "8")
    assert code == 1
    assert document["verdict"]["models"][0]["failure"]["kind"] == "load-timeout"
    assert "asleep" in str(document["verdict"]["models"][0]["failure"]["details"])


@pytest.mark.thorough
def test_too_little_shared_memory_is_reported(envpack, repository):
    million = ", ".join(["1"] * 1_000_000)
    (repository / "double/envpack").mkdir()
    (repository / "double/envpack/smoke.json").write_text(f'{{"data": [{{"X": [{million}]}}]}}')
    code, document = envpack.verify("--set", "shm_size=3m")
    failure = document["verdict"]["models"][0]["failure"]
    assert (code, failure["kind"]) == (1, "shared-memory-full")
    assert "--set shm_size=" in failure["fix"]
    assert envpack.verify("--set", "shm_size=64m")[0] == 0


@pytest.mark.thorough
def test_a_model_above_the_memory_limit_is_reported(envpack, repository):
    double = repository / "double"
    write_model(repository, "eats", "self.held = bytearray(b'x') * (600 << 20)", like=double)
    code, document = envpack.verify("eats", "--set", "memory=400m")
    failure = document["verdict"]["models"][0]["failure"]
    assert code == 1
    # The kernel chooses which process of the container it kills: nearly always the model's, once the server's.
    assert failure["kind"] in ("stub-died", "server-died")
    if failure["kind"] == "stub-died":
        assert "SIGKILL" in failure["reason"]
        assert "memory ran out" in failure["fix"]
    assert envpack.verify("double", "--set", "memory=400m")[0] == 0


def test_variables_arguments_and_a_preloaded_library_reach_the_model(envpack, repository):
    library = str(next((repository / "double").glob("*/lib/python3*/site-packages/numpy.libs/libquadmath*")))
    see = "assert __import__('os').environ['SEEN'] == 'yes' and 'LD_PRELOAD' in __import__('os').environ"
    write_model(repository, "sees", see, like=repository / "double")
    wanted = (
        "--env",
        "SEEN=yes",
        "--set",
        f"preload={library}",
        "--set",
        "server_arg=--backend-config=python,shm-default-byte-size=4194304",
    )
    code, document = envpack.verify("sees", *wanted, "--set", "server_arg=--id=named")
    assert code == 0, document["verdict"]["models"][0]
    assert statuses(document["verdict"]["models"][0]["checks"])["preload"] == "ok"

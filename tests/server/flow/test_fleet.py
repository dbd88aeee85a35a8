"""A repository of twelve models, built and verified by two workers of this machine, one of which dies in the middle."""

import json
import os
import signal
import subprocess

import pytest

from tests.clusters import task_processes, worker_of
from tests.faults.broken_models import CONFIG, DOUBLE
from tests.faults.command_line import command, envpack, variables
from tests.waiting import soon

pytestmark = pytest.mark.thorough

# Twelve different environments, of two packages each.
MODELS = {f"model{number}": f"numpy==1.26.4\nsix==1.{number}.0\n" for number in range(5, 17)}
ON = ("--on", "local:2", "--json")


@pytest.fixture
def repository(tmp_path):
    for name, requirements in MODELS.items():
        folder = tmp_path / "repository" / name
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(CONFIG)
        (folder / "1/model.py").write_text(DOUBLE)
        (folder / "requirements.txt").write_text(requirements)
    return tmp_path / "repository"


def test_all_models_are_built_although_a_worker_dies_and_all_verify(repository, tmp_path):
    words = ("build", "--repository", repository, "--stub", "never", *ON)
    everywhere = variables({"ENVPACK_CACHE_DIR": str(tmp_path / "cache")})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    building = subprocess.Popen(command(*words), env=everywhere, **pipes)
    made = tmp_path / "cache/environments"
    assert soon(lambda: made.is_dir() and any(not found.name.startswith(".") for found in made.iterdir()), seconds=240)
    os.kill(worker_of(soon(lambda: task_processes(building.pid))[0]), signal.SIGKILL)
    out, err = building.communicate(timeout=300)
    assert building.returncode == 0, err
    tasks = json.loads(out)["cluster"]["tasks"]
    assert sorted(task["models"] for task in tasks) == sorted([name] for name in MODELS)
    assert max(task["attempts"] for task in tasks) == 2
    verified = envpack("verify", "--repository", repository, "--runtime", "process", "--set", "group=6", *ON)
    assert verified.code == 0, verified.err
    verdict = verified.document["verdict"]
    assert verdict["ok"]
    assert {model["name"] for model in verdict["models"] if model["ok"]} == set(MODELS)
    servers = verified.document["cluster"]["tasks"]
    assert [len(task["models"]) for task in servers] == [6, 6]
    assert {task["worker"] for task in servers} == {"0", "1"}

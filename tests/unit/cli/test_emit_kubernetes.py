"""`envpack verify --emit kubernetes` prints a Job that asks for what the command line asks for, and starts nothing."""

import json

import kubernetes_validate
import pytest
import yaml

from envpack.cli.main import run

WORDS = ("verify", "--emit", "kubernetes", "--image", "registry.example/triton:24.10", "--claim", "our-models", "--gpu")


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "double/1").mkdir(parents=True)
    return tmp_path


def test_the_job_is_printed_alone_and_is_valid(repository, capsys):
    assert run([*WORDS, "--repository", str(repository), "double", "--shm-size", "1g"]) == 0
    job = yaml.safe_load(capsys.readouterr().out)
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/triton:24.10"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == "our-models"
    assert volumes["shm"]["emptyDir"]["sizeLimit"] == "1024Mi"


def test_programs_get_the_same_job_as_json(repository, capsys):
    assert run([*WORDS, "--repository", str(repository)]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert run([*WORDS, "--repository", str(repository), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == printed

"""`envpack kubernetes verify` prints a Job that asks for what the command line asks for, and starts nothing."""

import json
import os

import pytest
import yaml

from envpack.cli.main import run
from tests.kubernetes_schema import check

WORDS = ("kubernetes", "verify", "--image", "registry.example/triton:24.10", "--claim", "our-models", "--gpu")
ENVPACK = ("--envpack-image", "registry.example/envpack:0.1")


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "double/1").mkdir(parents=True)
    return tmp_path


def test_the_job_is_printed_alone_and_is_valid(repository, capsys):
    assert run([*WORDS, *ENVPACK, "--repository", str(repository), "double", "--set", "shm_size=1g"]) == 0
    job = yaml.safe_load(capsys.readouterr().out)
    check(job)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/triton:24.10"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == "our-models"
    assert volumes["shm"]["emptyDir"]["sizeLimit"] == "1024Mi"


def test_programs_get_the_same_job_as_json(repository, capsys):
    assert run([*WORDS, *ENVPACK, "--repository", str(repository)]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert run([*WORDS, *ENVPACK, "--repository", str(repository), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == printed


def container(arguments, repository, capsys):
    code = run([*WORDS, "--repository", str(repository), "--json", *arguments])
    document = json.loads(capsys.readouterr().out)
    assert code == 0, document
    pod = document["job"]["spec"]["template"]["spec"]
    return pod["initContainers"][0], pod["containers"][0]


@pytest.mark.parametrize(
    "words",
    [
        ("--server", "/srv/tritonserver"),
        ("--set", "requests=3"),
        ("--env", "A=1", "--env", "B=2"),
        ("--set", "preload=tcmalloc"),
        ("--set", "server_arg=--log-verbose=1"),
        ("--triton", "24.08"),
        ("--timeout", "77"),
        ("--set", "served_from=/mnt/models"),
    ],
)
def test_the_job_gets_every_option(repository, capsys, words):
    _, verify = container([*ENVPACK, *words], repository, capsys)
    command = " ".join(verify["command"])
    pairs = zip(words[::2], words[1::2], strict=True)
    where = ("--repository ", "--set served_from=")
    assert all(f"{option} {value}" in command.replace(*where) for option, value in pairs)
    assert verify["command"].count("--server") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "pull=true"),
        ("--keep",),
        ("--report", "x.html"),
        ("--set", "backends=backends"),
        ("--runtime", "docker"),
        ("--envpack-wheel", "/models/x.whl"),
    ],
)
def test_what_a_job_cannot_honour_is_refused(repository, capsys, words):
    assert run([*WORDS, *ENVPACK, *words, "--repository", str(repository), "--json"]) == 2
    named = words[-1].partition("=")[0] if words[0] == "--set" else words[0]
    assert named in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(("key", "meant"), [("shm_sice", "Did you mean shm_size?"), ("x", "Known: env, gpu, image,")])
def test_a_setting_that_is_unknown_is_refused_with_those_that_there_are(repository, capsys, key, meant):
    assert run([*WORDS, *ENVPACK, "--repository", str(repository), "--set", f"{key}=1"]) == 2
    assert f"there is no setting '{key}'. {meant}" in capsys.readouterr().err


def test_where_envpack_comes_from_must_be_named(repository, capsys):
    assert run([*WORDS, "--repository", str(repository), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    message = "The Job takes envpack from --envpack-image or --envpack-wheel; give one"
    assert (error["kind"], error["message"].rstrip(".")) == ("usage", message)


def test_envpack_comes_from_an_image_that_has_it(repository, capsys):
    prepare, verify = container(ENVPACK, repository, capsys)
    assert prepare["image"] == ENVPACK[1]
    assert "pip install" not in prepare["command"][-1]
    assert "PYTHONPATH" not in {variable["name"] for variable in verify["env"]}


def test_envpack_comes_from_a_wheel_in_the_volume(repository, capsys):
    wheel = "/models/.tools/triton_envpack-0.1.0-py3-none-any.whl"
    prepare, _ = container(["--envpack-wheel", wheel], repository, capsys)
    assert f"--find-links /models/.tools {wheel}" in prepare["command"][-1]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in prepare["volumeMounts"]


def test_published_models_are_named_by_their_address_and_fields_come_from_a_file(tmp_path, repository, capsys):
    (tmp_path / "overlay.yaml").write_text("metadata: {namespace: models}\n")
    words = [
        "s3://bucket/models",
        "double",
        "--secret",
        "bucket",
        "--overlay",
        str(tmp_path / "overlay.yaml"),
        "--json",
    ]
    assert run([*WORDS[:4], *ENVPACK, "--repository", str(repository), *words]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    check(job)
    assert job["metadata"]["namespace"] == "models"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][3:6] == ["verify", "s3://bucket/models", "double"]
    assert container["envFrom"][0]["secretRef"]["name"] == "bucket"


def test_an_age_without_a_key_is_refused_before_a_job_can_fail_for_it(repository, capsys):
    words = ["s3://bucket/models", "--max-age", "3"]
    assert run([*WORDS[:4], *ENVPACK, "--repository", str(repository), *words]) == 2
    assert "--max-age is for --require-signature" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--secret", "bucket"), ("--max-age", "2"), ("--require-signature", "key.pub")])
def test_what_is_for_published_models_is_refused_without_their_address(repository, capsys, words):
    assert run([*WORDS, *ENVPACK, "--repository", str(repository), *words]) == 2
    assert "address" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--claim", "models"), ("--set", "served_from=/mnt")])
def test_what_is_for_the_models_of_a_repository_is_refused_for_an_address(repository, capsys, words):
    assert run([*WORDS[:4], "s3://bucket/models", *ENVPACK, "--repository", str(repository), *words]) == 2
    assert "--claim and served_from are for the models of a repository" in capsys.readouterr().err


def test_a_file_whose_name_is_no_text_is_named_alone(repository, capsys):
    (repository / "double/1/one").touch()
    (repository / os.fsdecode(b"double/1/t\xff")).touch()
    (repository / "double/1/u").touch()
    (repository / "double/config.pbtxt").write_text('backend: "python"\n')
    assert run([*WORDS, *ENVPACK, "--repository", str(repository), "--json"]) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "name-not-text"
    assert error["where"].endswith(r"  double/1/t\udcff'")
    assert "double/1/one" not in error["where"]

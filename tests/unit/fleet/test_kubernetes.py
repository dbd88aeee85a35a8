"""The whole of a Job that builds, and what of a repository travels with it."""

import json

import pytest

import envpack
from envpack.fleet import kubernetes_build as module
from envpack.fleet.kubernetes_build import build_jobs
from envpack.fleet.pods import Overlay, jobs_yaml
from envpack.lock.lockfile import Lock, write_lock
from envpack.repository.model import open_model
from envpack.requirements.target import Target
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.store.shared import open_store
from envpack.support.errors import InputError
from envpack.workflow.recipe import read_recipe
from envpack.workflow.requests import lock_request
from tests.tables import every_row

RESOLVE = Settings(python="3.10", channels=("https://channel.example/conda",))


@pytest.fixture
def project(add_model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    add_model("a", "-r base.txt\nscipy\n")
    (tmp_path / "a/base.txt").write_text("numpy\n")
    return open_project(tmp_path)


@pytest.fixture
def store():
    return open_store("s3://bucket/envpack", push=True)


def test_the_whole_of_a_job(project, store):
    options = RESOLVE.saying(stub="always", toolchain="zig", strip=True, memory=(1 << 30) + 1)
    where = {"image": "registry.example/envpack:1", "secret": "bucket"}
    config_map, job = build_jobs(project.saying(options), ["a"], store, **where)
    name = config_map["metadata"]["name"]
    assert name.startswith("envpack-build-")
    labels = {"app.kubernetes.io/name": "envpack-build", "app.kubernetes.io/version": envpack.__version__}
    labels |= {"app.kubernetes.io/managed-by": "envpack"}
    assert config_map == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": config_map["data"],
    }
    (text,) = config_map["data"].values()
    recipe = json.loads(text)["recipe"]
    assert recipe["requirements"] == {"pip": ["numpy", "scipy"]}
    assert (recipe["target"]["python"], recipe["channels"]) == ("3.10", ["https://channel.example/conda"])
    assert (recipe["stub"], recipe["toolchain"], recipe["strip"]) == ("always", "zig", True)
    command = ["envpack", "build", "--recipe", "/recipe/recipe.json", "--store", "s3://bucket/envpack"]
    command += ["--set", "push=true"]
    container = {
        "name": "build",
        "image": "registry.example/envpack:1",
        "command": command,
        "env": [{"name": "HOME", "value": "/scratch"}, {"name": "ENVPACK_CACHE_DIR", "value": "/scratch/cache"}],
        "envFrom": [{"secretRef": {"name": "bucket", "optional": True}}],
        "resources": {
            "requests": {"cpu": "1", "memory": "1025Mi", "ephemeral-storage": "4096Mi"},
            "limits": {"cpu": "4", "memory": "1025Mi", "ephemeral-storage": "32768Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "recipe", "mountPath": "/recipe", "readOnly": True},
            {"name": "work", "mountPath": "/scratch"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "fsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "recipe", "configMap": {"name": name}},
            {"name": "work", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    assert job == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job["metadata"]["name"], "labels": labels},
        "spec": {
            "backoffLimit": 2,
            "activeDeadlineSeconds": 3600,
            "ttlSecondsAfterFinished": 86400,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    assert job["metadata"]["name"].startswith(name)
    assert len(job["metadata"]["name"]) <= 63
    assert jobs_yaml([config_map, job]).index("apiVersion") == 0


def recipe_of(config_map, folder):
    """The recipe in a ConfigMap, as the Job reads it."""
    ((name, text),) = config_map["data"].items()
    (folder / name).write_text(text)
    return read_recipe(folder / name)


def test_what_decides_the_result_travels_and_no_path_of_this_machine(project, store, tmp_path):
    lock = Lock(Target("linux-64", "3.10", "2.35", ""), ("https://channel.example/conda",), (), ())
    write_lock(lock, tmp_path / "a/envpack.lock")
    said = Settings(python="3.10", platform="linux-aarch64", channels=("https://a", "https://b"), allow_source=("x",))
    config_map, job = build_jobs(project.saying(said), ["a"], store)
    assert str(tmp_path) not in json.dumps(config_map)
    recipe, here = recipe_of(config_map, tmp_path), lock_request(project.saying(said), open_model(tmp_path / "a"))[0]
    assert (recipe.lock_key, recipe.locked) == (here.lock_key, lock)
    ((name, text),) = config_map["data"].items()
    document = json.loads(text)
    document["recipe"]["newer"] = 1
    (tmp_path / name).write_text(json.dumps(document))
    with pytest.raises(InputError, match="this is no recipe of envpack"):
        read_recipe(tmp_path / name)
    assert (recipe.channels, recipe.sources, recipe.target.platform) == (said.channels, ("x",), "linux-aarch64")
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "4096Mi"


@every_row(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"envpack": "0.0.7", "recipe": {}}',
        '{"envpack": "VERSION", "recipe": {"name": 1}}',
        "[" * 9999,
    ],
)
def test_what_is_no_recipe_is_refused(tmp_path, text):
    (tmp_path / "recipe.json").write_text(text.replace("VERSION", envpack.__version__))
    with pytest.raises(InputError) as raised:
        read_recipe(tmp_path / "recipe.json")
    assert (raised.value.kind, raised.value.where) == ("bad-recipe", str(tmp_path / "recipe.json"))


def test_a_recipe_of_another_version_is_refused(project, store, tmp_path, monkeypatch):
    config_map, _ = build_jobs(project.saying(RESOLVE), ["a"], store)
    monkeypatch.setattr(envpack, "__version__", "0.0.7")
    with pytest.raises(InputError, match="and this is 0.0.7"):
        recipe_of(config_map, tmp_path)


def test_a_recipe_that_is_too_large_for_a_config_map_is_refused(project, store, monkeypatch, tmp_path):
    """Its size counts as bytes of the annotation that kubectl writes, where letters like < take six."""
    (tmp_path / "a/requirements.txt").write_text("numpy>=1,<3\n")
    config_map, _ = build_jobs(project.saying(RESOLVE), ["a"], store)
    as_kubectl = json.dumps(config_map).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    monkeypatch.setattr(module, "CLIENT_SIDE_BYTES", len(as_kubectl))
    build_jobs(project.saying(RESOLVE), ["a"], store)
    monkeypatch.setattr(module, "CLIENT_SIDE_BYTES", len(as_kubectl) - 1)
    with pytest.raises(InputError) as raised:
        build_jobs(project.saying(RESOLVE), ["a"], store)
    assert raised.value.kind == "not-portable"


@every_row(
    ("python", "preference", "image", "refused"),
    [
        ("3.12", "only-system", "", False),
        ("3.10", "system", "", False),
        ("3.10", "only-system", "", True),
        ("3.10", "only-system", "registry.example/own:1", False),
        ("3.6", "system", "", True),
    ],
)
def test_a_job_that_would_find_no_python_is_refused(project, store, python, preference, image, refused):
    said = Settings(python=python, channels=("local",), python_preference=preference)
    if refused:
        with pytest.raises(InputError, match=f"no Python {python}"):
            build_jobs(project.saying(said), ["a"], store, image=image)
    else:
        assert build_jobs(project.saying(said), ["a"], store, image=image)


def test_an_ensemble_needs_no_job(project, store, tmp_path):
    (tmp_path / "e/1").mkdir(parents=True)
    (tmp_path / "e/config.pbtxt").write_text(
        'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" model_version: -1 } ] }'
    )
    assert build_jobs(project.saying(RESOLVE), ["e"], store) == ()
    assert json.dumps(build_jobs(project.saying(RESOLVE), ["e", "a"], store))


@pytest.mark.parametrize("directive", ["replace", "delete"])
def test_documents_keep_their_names_whatever_an_overlay_replaces(project, store, directive):
    overlay = Overlay({"$patch": directive, "namespace": "models"})
    config_map, job = build_jobs(project.saying(RESOLVE), ["a"], store, overlay=overlay)
    assert job["metadata"]["name"].startswith(config_map["metadata"]["name"])
    assert {"namespace"} & {*config_map["metadata"]} == ({"namespace"} if directive == "replace" else set())

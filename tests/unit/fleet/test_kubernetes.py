"""The whole of a Job that builds, and what of a repository travels with it."""

import json

import pytest

from envpack.fleet import kubernetes as module
from envpack.fleet.kubernetes import BuildJobOptions, build_jobs, jobs_yaml
from envpack.lock import Lock, write_lock
from envpack.requirements import Target
from envpack.settings import Settings, open_project
from envpack.store import open_store
from envpack.support.errors import InputError

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
    options = RESOLVE.saying(stub="always", toolchain="zig", strip=True)
    jobs = BuildJobOptions(image="registry.example/envpack:1", secret="bucket", memory_bytes=(1 << 30) + 1)
    config_map, job = build_jobs(project.saying(options), ["a"], store, jobs)
    name = config_map["metadata"]["name"]
    assert name.startswith("envpack-build-")
    assert len(name) <= 63
    labels = {"app.kubernetes.io/name": "envpack-build", "app.kubernetes.io/managed-by": "envpack"}
    assert config_map == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {
            "file-0": "-r base.txt\nscipy\n",
            "file-1": "numpy\n",
            "file-2": '[models."a"]\nrequirements = "a/requirements.txt"\n',
            "file-3": module.DEFAULT_CONFIG,
        },
    }
    paths = ("a/requirements.txt", "a/base.txt", "envpack.toml", "a/config.pbtxt")
    script = (
        'mkdir -p "/scratch/repository/$1/1" && cp -rL /project/. /scratch/repository && '
        ': > "/scratch/repository/$1/1/model.py" && shift && exec "$@"'
    )
    command = ["envpack", "build", "--repository", "/scratch/repository", "--python", "3.10", "--triton", "24.10"]
    command += ["--platform", "linux-64", "--channel", "https://channel.example/conda"]
    command += ["--set", "python_preference=system", "--set", "strip=true", "--stub", "always"]
    command += ["--set", "toolchain=zig", "--store", "s3://bucket/envpack", "--set", "push=true", "--", "a"]
    container = {
        "name": "build",
        "image": "registry.example/envpack:1",
        "command": ["sh", "-c", script, "envpack-build", "a", *command],
        "env": [{"name": "HOME", "value": "/scratch"}, {"name": "ENVPACK_CACHE_DIR", "value": "/scratch/cache"}],
        "envFrom": [{"secretRef": {"name": "bucket", "optional": True}}],
        "resources": {"limits": {"memory": "1025Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "project", "mountPath": "/project", "readOnly": True},
            {"name": "work", "mountPath": "/scratch"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    items = [{"key": f"file-{number}", "path": path} for number, path in enumerate(paths)]
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
            {"name": "project", "configMap": {"name": name, "items": items}},
            {"name": "work", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    assert job == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"backoffLimit": 2, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    assert jobs_yaml([config_map, job]).index("apiVersion") == 0


def words_of(documents):
    (container,) = documents[1]["spec"]["template"]["spec"]["containers"]
    return container["command"]


def test_options_that_are_not_the_usual_ones_travel(project, store):
    options = Settings(
        python="3.10", platform="linux-aarch64", channels=("https://a", "https://b"), allow_source=("x", "y")
    )
    documents = build_jobs(project.saying(options), ["a"], store, BuildJobOptions())
    words = " ".join(words_of(documents))
    assert "--channel https://a --channel https://b " in words
    assert "--allow-source x --allow-source y" in words
    assert "strip=true" not in words
    assert "abi=" not in words
    pod = documents[1]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "4096Mi"}


def test_a_lockfile_travels(project, store, tmp_path):
    write_lock(
        Lock(Target("linux-64", "3.10", "2.35", ""), ("https://channel.example/conda",), (), ()),
        tmp_path / "a/envpack.lock",
    )
    config_map, job = build_jobs(project.saying(RESOLVE), ["a"], store, BuildJobOptions())
    items = job["spec"]["template"]["spec"]["volumes"][0]["configMap"]["items"]
    (key,) = (item["key"] for item in items if item["path"] == "a/envpack.lock")
    assert config_map["data"][key] == (tmp_path / "a/envpack.lock").read_text()


def test_a_model_without_requirements_needs_none(project, store, tmp_path, add_model):
    folder = add_model("plain")
    (folder / "requirements.txt").unlink()
    config_map, _ = build_jobs(project.saying(RESOLVE), ["plain"], store, BuildJobOptions())
    assert list(config_map["data"].values()) == [module.DEFAULT_CONFIG]


def test_files_that_are_too_large_for_a_config_map_are_refused(project, store, tmp_path, monkeypatch):
    size = sum(map(len, build_jobs(project.saying(RESOLVE), ["a"], store, BuildJobOptions())[0]["data"].values()))
    monkeypatch.setattr(module, "_MOST_BYTES", size)
    build_jobs(project.saying(RESOLVE), ["a"], store, BuildJobOptions())
    monkeypatch.setattr(module, "_MOST_BYTES", size - 1)
    with pytest.raises(InputError) as raised:
        build_jobs(project.saying(RESOLVE), ["a"], store, BuildJobOptions())
    assert raised.value.message == (f"a Job cannot build a: its requirements and lock have more than {size - 1} bytes")
    assert (raised.value.kind, raised.value.where) == ("not-portable", str(tmp_path / "a"))


def test_an_ensemble_needs_no_job(project, store, tmp_path):
    (tmp_path / "e/1").mkdir(parents=True)
    (tmp_path / "e/config.pbtxt").write_text(
        'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" model_version: -1 } ] }'
    )
    assert build_jobs(project.saying(RESOLVE), ["e"], store, BuildJobOptions()) == ()
    assert json.dumps(build_jobs(project.saying(RESOLVE), ["e", "a"], store, BuildJobOptions()))

"""The Job is valid for Kubernetes and has the least privileges."""

from dataclasses import replace

import kubernetes_validate
import pytest
import yaml

from envpack.verification import JobOptions, job_yaml, make_job

VERSIONS = ("1.25", "1.30", kubernetes_validate.latest_version())
JOB = JobOptions(
    image="example/tritonserver:24.10-py3",
    models=("Model_A",),
    gpus=1,
    shm_bytes=(64 << 20) + 1,
    envpack_image="envpack",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_job_is_valid(version):
    kubernetes_validate.validate(yaml.safe_load(job_yaml(JOB)), version, strict=True)


def test_the_validator_rejects_an_invalid_job():
    wrong = make_job(JOB)
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_job_verifies_the_given_models():
    pod = make_job(JOB)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == JOB.image
    assert container["command"][2:5] == ["envpack.cli", "verify", "Model_A"]
    assert container["command"][-1] == "--gpu"
    assert container["resources"]["limits"] == {"memory": "4096Mi", "nvidia.com/gpu": 1}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "65Mi"}
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}


def test_the_job_is_never_retried():
    """A second attempt could pass and hide the first verdict."""
    spec = make_job(JOB)["spec"]
    assert spec["backoffLimit"] == 0
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("options", [JOB, replace(JOB, envpack_image="", envpack_wheel="/models/x.whl")])
def test_every_container_has_the_least_privileges(options):
    pod = make_job(options)["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "runAsGroup": 65534,
        "fsGroup": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(pod)
    containers = [*pod["initContainers"], *pod["containers"]]
    assert [container["name"] for container in containers] == ["envpack", "verify"]
    for container in containers:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("options", [JOB, replace(JOB, envpack_image="", envpack_wheel="/models/x.whl")])
def test_only_the_init_container_writes_the_tools_and_nothing_writes_the_models(options):
    pod = make_job(options)["spec"]["template"]["spec"]
    assert all("hostPath" not in volume for volume in pod["volumes"])
    writable = {
        container["name"]: [mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
        for container in (*pod["initContainers"], *pod["containers"])
    }
    assert writable == {"envpack": ["tools", "tmp"], "verify": ["tmp", "shm"]}


def test_the_yaml_has_a_valid_name():
    assert "&id" not in job_yaml(JOB)
    assert make_job(JOB)["metadata"]["name"] == "envpack-verify-model-a"

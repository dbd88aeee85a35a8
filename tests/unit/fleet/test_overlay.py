"""What a user adds to Kubernetes documents."""

import pytest

from envpack.fleet.kubernetes_verify import Published, verification_job
from envpack.fleet.pods import Overlay, read_overlay
from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import InputError
from tests.kubernetes_schema import check
from tests.signing_keys import write_pair
from tests.tables import every_row

PLATFORM = """
metadata:
  namespace: models
  labels: {team: search}
spec:
  activeDeadlineSeconds: 600
  template:
    spec:
      serviceAccountName: envpack
      automountServiceAccountToken: true
      priorityClassName: batch
      imagePullSecrets: [{name: registry}]
      tolerations: [{key: dedicated, operator: Exists}]
      containers:
      - name: verify
        env: [{name: AWS_REGION, value: eu-west-1}, {name: HOME, value: /scratch}]
        resources: {limits: {cpu: null, memory: 16Gi}}
      initContainers:
      - name: wait
        image: busybox
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        file = tmp_path / "overlay.yaml"
        file.write_text(text)
        return file

    return write


def job(overlay, tmp_path):
    project = Project(repository=tmp_path, said=Settings(image="triton"))
    return verification_job(project, (), envpack_image="envpack", overlay=overlay)


def test_what_a_platform_asks_for_is_merged(write, tmp_path):
    found = job(read_overlay(write(PLATFORM)), tmp_path)
    check(found)
    assert (found["metadata"]["namespace"], found["metadata"]["labels"]["team"]) == ("models", "search")
    assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "envpack"
    assert found["spec"]["activeDeadlineSeconds"] == 600
    pod = found["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("envpack", True)
    assert pod["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert [container["name"] for container in pod["initContainers"]] == ["envpack", "wait"]
    (verify,) = pod["containers"]
    variables = {variable["name"]: variable["value"] for variable in verify["env"]}
    assert (variables["AWS_REGION"], variables["HOME"]) == ("eu-west-1", "/scratch")
    assert (verify["image"], verify["securityContext"]["readOnlyRootFilesystem"]) == ("triton", True)
    assert verify["resources"]["limits"] == {"memory": "16Gi", "ephemeral-storage": "32768Mi"}


def test_parts_can_be_replaced_and_deleted(write, tmp_path):
    text = """
    spec:
      template:
        metadata: {labels: {$patch: delete}}
        spec:
          securityContext: {$patch: replace, runAsUser: 1000}
          volumes: [{name: shm, $patch: delete}]
    """
    template = job(read_overlay(write(text)), tmp_path)["spec"]["template"]
    pod = template["spec"]
    assert template["metadata"] == {}
    assert pod["securityContext"] == {"runAsUser": 1000}
    assert [volume["name"] for volume in pod["volumes"]] == ["models", "tools", "tmp"]


def test_a_document_is_not_changed():
    document = {"kind": "ConfigMap", "metadata": {"name": "n", "labels": {"a": "b"}}, "data": {}}
    merged = Overlay(metadata={"labels": {"c": "d"}}, spec={"x": 1}).on(document)
    assert document == {"kind": "ConfigMap", "metadata": {"name": "n", "labels": {"a": "b"}}, "data": {}}
    assert merged == {"kind": "ConfigMap", "metadata": {"name": "n", "labels": {"a": "b", "c": "d"}}, "data": {}}


# Aliases by which a short text has a million parts.
LAUGHS = ", ".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7))])


@every_row(
    ("text", "what"),
    [
        ("[1]", "not a YAML mapping"),
        ("", "not a YAML mapping"),
        ("a: b: c", "mapping values are not allowed"),
        ("spec: [1]", "spec is a list"),
        ("data: {}", "data does not belong in a Job"),
        ("kind: Pod", "Pod does not belong in a Job"),
        ("metadata: {name: mine}", "made of its content"),
        ("[" * 3000, ""),
        ("spec: {nodeSelector: {on: x, a: b}}", "the key True in nodeSelector is no text: write it in quotes"),
        ("metadata: {annotations: {1: a, b: c}}", "the key 1 in annotations is no text"),
        ("metadata: {annotations: {~: a}}", "the key None in annotations is no text"),
        ("metadata: {annotations: {built: 2024-01-01}}", "built is 2024-01-01, which YAML reads as a date: write it"),
        ("metadata: {annotations: {a: b, port: 8080}}", "port in annotations has to be text: write 8080 in quotes"),
        ("spec: {template: {spec: {nodeSelector: {gpu: true}}}}", "gpu in nodeSelector has to be text: write true in"),
        ("spec: {env: [{name: A, value: 1.5}]}", "value in an element of env has to be text: write 1.5 in quotes"),
        ("spec: {a: [[1, .inf]]}", "an element of an element of a is inf, which JSON does not have"),
        ("spec: {a: &x {b: *x}}", "spec is nested without end, or too deeply"),
        (f"spec: {{{LAUGHS}}}", "it has more than 100000 parts"),
        ("--- {}\n--- {}", "single document"),
    ],
)
def test_what_is_no_overlay_is_refused(write, text, what):
    with pytest.raises(InputError) as caught:
        read_overlay(write(text))
    assert (caught.value.kind, what in caught.value.message) == ("bad-overlay", True)


@every_row(
    ("spec", "what"),
    [
        ("{template: 1}", "template is a value instead of a mapping"),
        ("{template: {spec: {containers: {}}}}", "containers is a mapping instead of a list"),
        ("{template: {spec: {containers: [{image: x}]}}}", "an element of containers has no name"),
        ("{template: {spec: {volumes: [models]}}}", "an element of volumes has no name"),
        (
            "{template: {spec: {containers: [{name: build, resources: {limits: {memory: 1Gi}}}]}}}",
            "build in containers has no image; those that the Job has: verify",
        ),
        ("{template: {spec: {containers: [{name: verify, image: null}]}}}", "verify in containers has no image"),
        ("{template: {spec: {initContainers: [{name: wait}]}}}", "wait in initContainers has no image"),
        (
            "{template: {spec: {securityContext: {$patch: remove}}}}",
            "securityContext has $patch: remove, and needs",
        ),
        (
            "{template: {spec: {volumes: [{name: shm, $patch: [1]}]}}}",
            "an element of volumes has $patch: [1], and",
        ),
        ("{template: {spec: {$retainKeys: [volumes]}}}", "spec has the directive $retainKeys, which envpack does not"),
    ],
)
def test_what_does_not_fit_the_document_is_refused(write, tmp_path, spec, what):
    overlay = read_overlay(write(f"spec: {spec}"))
    with pytest.raises(InputError) as caught:
        job(overlay, tmp_path)
    assert what in caught.value.message
    assert caught.value.where == str(tmp_path / "overlay.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError) as caught:
        read_overlay(tmp_path / "none.yaml")
    assert caught.value.where == str(tmp_path / "none.yaml")


@every_row(
    "text",
    [
        "spec: {$patch: delete}",
        "spec: {$patch: replace, backoffLimit: 1}",
        "spec: {template: null}",
        "spec: {template: {spec: {containers: null}}}",
        "spec: {template: {spec: {containers: [{name: verify, $patch: delete}]}}}",
    ],
)
def test_what_a_job_needs_cannot_be_removed(write, tmp_path, text):
    with pytest.raises(InputError, match="needs all of them"):
        job(read_overlay(write(text)), tmp_path)


def test_keys_survive_an_overlay_without_labels(write, tmp_path):
    published = Published(address="s3://bucket/models", keys=(write_pair(tmp_path)[1],))
    overlay = read_overlay(write("spec: {template: {metadata: {labels: null}}}"))
    project = Project(repository=tmp_path, said=Settings(image="triton"))
    found = verification_job(project, (), published=published, envpack_image="envpack", overlay=overlay)
    assert list(found["spec"]["template"]["metadata"]["annotations"]) == ["envpack/key-0.pub"]

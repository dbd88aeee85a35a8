"""Images that a daemon builds: the Dockerfile, the labels, and what becomes of a base image that is missing."""

import contextlib
import io
import json
import tarfile

import docker
import pytest

from envpack.deployment import ImageOptions, assemble, build_image, image as module, plan_deployment
from envpack.repository import backends_folder
from envpack.support.errors import ServerError

from .images import Steps


class Found:
    """An image in the daemon."""

    def __init__(self, name, digests=("nvcr.io/x@sha256:1",)):
        self.id, self.attrs = f"id of {name}", {"RepoDigests": list(digests), "Size": 7_000_000}


class Daemon:
    """A daemon that has some images, and notes what it is asked."""

    def __init__(self, *names):
        self.names, self.asked, self.messages, self.closed, self.refuses = set(names), [], [{"stream": "ok"}], False, ""
        self.client = self.images = self.api = self

    def get(self, name):
        if name not in self.names:
            raise docker.errors.ImageNotFound(name)
        return Found(name)

    def pull(self, name):
        self.asked.append(f"pull {name}")
        if self.refuses:
            raise docker.errors.APIError(self.refuses)
        self.names.add(name)
        return Found(name)

    def build(self, *, fileobj, tag, labels, **options):
        assert options == {"custom_context": True, "rm": True, "forcerm": True, "pull": False, "decode": True}
        with tarfile.open(fileobj=io.BytesIO(b"".join(fileobj))) as context:
            self.dockerfile = context.extractfile("Dockerfile").read().decode().splitlines()
            self.files = context.getnames()
        self.labels = labels
        self.names.add(tag)
        return iter(self.messages)

    def close(self):
        self.closed = True


BASE = "nvcr.io/nvidia/tritonserver:24.10-py3"


@pytest.fixture
def daemon(monkeypatch):
    found = Daemon(BASE)
    monkeypatch.setattr(module, "find_daemon", lambda: found)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    return found


@pytest.fixture
def tree(plan, tmp_path):
    assemble(plan, tmp_path / "tree")
    return tmp_path / "tree"


def test_the_image_has_models_backends_and_the_command_that_serves_them(daemon, plan, tree):
    steps = Steps()
    built = build_image(plan, tree, "registry.example/team/models:1", progress=steps)
    assert (built.tag, built.id, built.base, built.size) == (
        "registry.example/team/models:1", "id of registry.example/team/models:1", BASE, 7_000_000,
    )  # fmt: skip
    assert daemon.dockerfile == [
        f"FROM {BASE}",
        'COPY ["models", "/models/"]',
        'COPY ["envpack-layout.json", "/opt/envpack/envpack-layout.json"]',
        'COPY ["backends", "/opt/tritonserver/backends/"]',
        "ENV PYTHONNOUSERSITE=1",
        'CMD ["tritonserver", "--model-repository=/models"]',
    ]
    assert {"models/early/1/model.py", "backends/python_3_8/triton_python_backend_stub"} <= set(daemon.files)
    assert daemon.labels == {
        "org.opencontainers.image.title": "models",
        "org.opencontainers.image.description": "Triton 24.10 with both, early, late",
        "org.opencontainers.image.created": "1970-01-02T00:00:00+00:00",
        "org.opencontainers.image.base.name": BASE,
        "org.opencontainers.image.base.digest": "sha256:1",
    }
    assert steps.seen == [f"build registry.example/team/models:1 from {BASE}: 7 MB"]
    assert (daemon.closed, daemon.asked) == (True, [])


def test_a_path_on_the_server_may_have_a_dollar(daemon, project, release, tmp_path):
    plan = plan_deployment(project, backends_folder(project), release, ["late"], served_from="/srv/$x/")
    assemble(plan, tmp_path / "tree")
    daemon.names.add("own:1")
    build_image(plan, tmp_path / "tree", "models:1", ImageOptions(base="own:1"))
    assert daemon.dockerfile[:2] == ["FROM own:1", 'COPY ["models", "/srv/\\\\$x/"]']
    assert not [line for line in daemon.dockerfile if "backends" in line]


def test_without_an_epoch_the_image_has_the_current_time(daemon, plan, tree, monkeypatch):
    for value in ("", "soon"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
        build_image(plan, tree, "models:1")
        created = daemon.labels["org.opencontainers.image.created"]
        assert created > "2024"
        assert created.endswith(":00+00:00") or "." not in created


def test_a_missing_base_image_is_pulled_only_on_request(daemon, plan, tree):
    daemon.names.clear()
    with pytest.raises(ServerError, match="the base image is not available: the daemon does not have it") as raised:
        build_image(plan, tree, "models:1")
    assert (raised.value.kind, raised.value.where, raised.value.hint) == (
        "image-missing", BASE, "add --pull to fetch it",
    )  # fmt: skip
    steps = Steps()
    daemon.refuses = "denied"
    with pytest.raises(ServerError, match="the base image is not available: it cannot be pulled: .*denied") as raised:
        build_image(plan, tree, "models:1", ImageOptions(pull=True))
    assert raised.value.kind == "image-missing"
    daemon.refuses = ""
    build_image(plan, tree, "models:1", ImageOptions(pull=True), steps)
    assert daemon.asked == [f"pull {BASE}"] * 2


def test_an_error_of_the_build_is_named(daemon, plan, tree):
    daemon.messages = [{"stream": "x"}, {"error": "no space left on device\n"}]
    with pytest.raises(ServerError, match="the image could not be built: no space left on device") as raised:
        build_image(plan, tree, "models:1")
    assert (raised.value.kind, raised.value.where, daemon.closed) == ("image-failed", "models:1", True)


def test_a_daemon_that_fails_is_no_missing_image(daemon, plan, tree, monkeypatch):
    @contextlib.contextmanager
    def gone():
        raise ServerError("the daemon is gone", kind="docker-missing", hint="start it")
        yield

    monkeypatch.setattr(module, "daemon_errors", gone)
    with pytest.raises(ServerError, match="the daemon is gone") as raised:
        build_image(plan, tree, "models:1")
    assert raised.value.kind == "docker-missing"
    assert json.dumps(daemon.asked) == "[]"

"""What is verified, with which server, and what is refused before a server starts."""

import pytest

from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.send import publish
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.support.errors import InputError, ModelsError, StorageError, UsageError
from envpack.support.progress import NoProgress
from envpack.verification.published import verify_published
from envpack.workflow import verify as module
from envpack.workflow.verify import (
    check_published,
    models_to_verify,
    server_spec,
    verify_models,
    verify_there,
)

GPU = "instance_group [ { count: 1 kind: KIND_GPU } ]\n"
PLAIN = 'backend: "python"\n'
IMAGE = "oci://registry.example/team/models:1"


def ensemble(*steps):
    listed = ", ".join(f'{{ model_name: "{name}" model_version: -1 }}' for name in steps)
    return f'platform: "ensemble"\nensemble_scheduling {{ step [ {listed} ] }}\n'


CONFIGS = {
    "plain": PLAIN,
    "gpu": PLAIN + GPU,
    "both": ensemble("plain", "gpu"),
    "nested": ensemble("both"),
    "light": ensemble("plain"),
    "lost": ensemble("absent"),
    "broken": "input [",
}


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    for name, config in CONFIGS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        if "ensemble" not in config:
            (folder / name / "1/model.py").touch()
    return folder


@pytest.fixture
def address(tmp_path):
    """The same models in an object store."""
    (tmp_path / "remote").mkdir()
    files = [PublishedFile(f"{name}/config.pbtxt", content=text.encode()) for name, text in CONFIGS.items()]
    url = f"file://{tmp_path}/remote"
    publish(Publication(tuple(files), ()), Objects(parse_location(url)))
    return url


NEEDS_GPU = {"plain": False, "gpu": True, "both": True, "nested": True, "light": False, "lost": False}


@pytest.mark.parametrize("place", ["repository", "address"])
def test_a_model_needs_a_gpu_if_one_that_it_runs_does(place, request):
    found, unreadable = models_to_verify(str(request.getfixturevalue(place)), ())
    assert (found, unreadable) == (NEEDS_GPU, ("broken",))


@pytest.mark.parametrize("place", ["repository", "address"])
def test_only_the_models_that_are_named_are_verified(place, request):
    where = str(request.getfixturevalue(place))
    assert models_to_verify(where, ["nested", "plain"]) == ({"nested": True, "plain": False}, ())
    with pytest.raises(InputError) as raised:
        models_to_verify(where, ["nobody"])
    assert raised.value.kind == "model-missing"
    with pytest.raises((InputError, ModelsError)) as raised:
        models_to_verify(where, ["broken"])
    assert "broken" in raised.value.where


def test_a_model_is_published_if_it_has_a_configuration_or_code(tmp_path):
    (tmp_path / "remote/code/1").mkdir(parents=True)
    (tmp_path / "remote/code/1/model.py").write_text("x")
    (tmp_path / "remote/notes").mkdir()
    (tmp_path / "remote/notes/README").write_text("x")
    assert models_to_verify(f"file://{tmp_path}/remote", ()) == ({"code": False}, ())
    with pytest.raises(InputError) as raised:
        models_to_verify(f"file://{tmp_path}/remote", ["notes"])
    assert (raised.value.kind, raised.value.where) == ("model-missing", "notes/config.pbtxt")
    assert raised.value.hint == "publish it, or name another model"


def test_a_folder_without_models_is_an_error(tmp_path):
    with pytest.raises(InputError) as raised:
        models_to_verify(str(tmp_path), ())
    assert (raised.value.kind, raised.value.where) == ("repository-empty", str(tmp_path))


def test_an_address_without_models_is_an_error_that_names_it(tmp_path):
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote/README").write_text("x")
    url = f"file://{tmp_path}/remote"
    for use in (lambda: models_to_verify(url, ()), lambda: verify_published(parse_location(url))):
        with pytest.raises(InputError) as raised:
            use()
        error = raised.value
        assert (error.kind, error.message, error.where) == ("repository-empty", "no model is published there", url)
        assert error.hint == "correct the address, or publish models there: envpack publish ADDRESS"


def test_a_configuration_that_is_no_text_is_named(tmp_path):
    (tmp_path / "remote/m").mkdir(parents=True)
    (tmp_path / "remote/m/config.pbtxt").write_bytes(b"name: \xff")
    with pytest.raises((InputError, ModelsError)):
        models_to_verify(f"file://{tmp_path}/remote", ["m"])


def test_a_configuration_is_read_up_to_a_limit(address, monkeypatch):
    monkeypatch.setattr(module, "_CONFIG_BYTES", 3)
    with pytest.raises((StorageError, InputError, ModelsError)):
        models_to_verify(address, ["plain"])


# The server


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            {"runtime": "docker", "server": "/opt/tritonserver"},
            "--server is for a process of this machine, and --runtime docker starts a container",
        ),
        (
            {"runtime": "process", "image": "x"},
            "--image is for containers, and --runtime process starts none",
        ),
        (
            {"runtime": "process", "pull": True},
            "pull is for containers, and --runtime process starts none",
        ),
        (
            {"server": "/opt/tritonserver", "image": "x", "memory": 1 << 30},
            "--image and memory are for containers, and --server starts none",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(repository, said, message):
    with pytest.raises(UsageError) as raised:
        server_spec(open_project(repository, Settings(**said)))
    error = raised.value
    assert (error.kind, error.message, error.hint) == ("usage", message, "envpack verify --help says what it takes")


@pytest.mark.parametrize(
    ("runtime", "said", "message"),
    [
        ("process", {"image": "x"}, "--image is for containers, and {} starts none"),
        ("docker", {"server": "/s"}, "--server is for a process of this machine, and {} starts a container"),
    ],
)
def test_an_option_that_the_runtime_of_the_file_ignores_is_refused(repository, runtime, said, message):
    (repository / "envpack.toml").write_text(f'runtime = "{runtime}"\nimage = "y"\n')
    with pytest.raises(UsageError) as raised:
        server_spec(open_project(repository, Settings(**said)))
    assert raised.value.message == message.format(f"runtime {runtime} in {repository / 'envpack.toml'}")
    assert server_spec(open_project(repository, Settings(**said, runtime="auto")))


def test_the_server_is_that_of_the_settings(repository):
    spec = server_spec(open_project(repository, Settings(image="x", runtime="docker", env=("A=1",))))
    assert (spec.settings.image, spec.settings.runtime, spec.all_variables()) == ("x", "docker", {"A": "1"})
    assert (spec.backends, spec.samples) == (repository.parent / "backends", repository)
    with pytest.raises(UsageError, match="env has '=1', which names no variable"):
        server_spec(open_project(repository, Settings(env=("=1",))))


@pytest.fixture
def verified(monkeypatch):
    """Replaces the verification: records its arguments."""
    asked = []
    for name in ("verify", "verify_image", "verify_published"):
        monkeypatch.setattr(module, name, lambda *what, name=name, **how: asked.append((name, what, how)) or "verdict")
    return asked


def test_a_repository_is_verified_as_its_settings_say(repository, verified):
    project, progress = open_project(repository, Settings(timeout=7)), NoProgress()
    assert verify_models(project, "", ["plain"], progress) == "verdict"
    ((name, what, how),) = verified
    assert (name, what) == ("verify", (repository, ["plain"]))
    assert (how.pop("spec").settings.timeout, how) == (7, {"progress": progress, "project": project})


def test_published_models_are_verified_at_their_address(repository, verified):
    project, progress = open_project(repository), NoProgress()
    for url, expected in (("s3://bucket/models", "verify_published"), (IMAGE, "verify_image")):
        assert verify_models(project, url, ["m"], progress, trust="trust") == "verdict"
        name, (where, names), how = verified.pop()
        assert (name, str(where), names) == (expected, url.removeprefix("oci://"), ["m"])
        assert (how["trust"], how["progress"], how["spec"].samples) == ("trust", progress, repository)


@pytest.mark.parametrize("said", [{"runtime": "docker"}, {"image": "x"}])
def test_a_container_cannot_load_published_models(repository, verified, said):
    with pytest.raises(UsageError) as raised:
        verify_models(open_project(repository, Settings(**said)), IMAGE, (), NoProgress())
    what = "a server loads published models as a process of this machine, not in a container"
    assert (raised.value.message, verified) == (what, [])


def test_what_the_file_says_of_containers_is_for_the_models_beside_it(repository, verified):
    (repository / "envpack.toml").write_text('runtime = "docker"\nimage = "x"\n')
    assert verify_models(open_project(repository), IMAGE, (), NoProgress()) == "verdict"
    assert verified.pop()[2]["spec"].settings.runtime == "process"


@pytest.mark.parametrize("url", ["s3://bucket/models", "gs://bucket/models", IMAGE])
def test_an_address_that_others_can_read(url):
    check_published(url)


@pytest.mark.parametrize(
    ("url", "kind", "message"),
    [
        ("file:///srv/models", "usage", "a folder of this machine is no address for others"),
        ("s3://", "bad-store-address", ""),
        ("oci://registry.example", "bad-image-address", ""),
        ("oci://registry.example/Team/models:1", "bad-image-address", ""),
    ],
)
def test_an_address_that_is_none_or_for_this_machine_only_is_refused(url, kind, message):
    with pytest.raises(UsageError) as raised:
        check_published(url)
    assert (raised.value.kind, message in raised.value.message) == (kind, True)


def test_a_worker_verifies_the_models_that_it_has(repository, verified):
    spec, progress = server_spec(open_project(repository)), NoProgress()
    made = verify_there(str(repository), ["plain", "gpu"], spec, progress=progress, store=None)
    assert (made.fresh, made.verdict) == (True, "verdict")
    assert verified == [("verify", (repository, ["plain", "gpu"]), {"spec": spec, "progress": progress})]
    made = verify_there("s3://bucket/models", ["m"], spec, "trust", progress=progress, store=None)
    assert (made.fresh, made.verdict, verified[1][0], verified[1][2]["trust"]) == (
        *(True, "verdict", "verify_published"),
        "trust",
    )
    with pytest.raises(InputError) as raised:
        verify_there(str(repository), ["plain", "absent"], spec, progress=progress, store=None)
    error = raised.value
    assert (error.kind, error.where) == ("repository-not-shared", str(repository))
    assert error.message == "the worker's machine has no model absent there"

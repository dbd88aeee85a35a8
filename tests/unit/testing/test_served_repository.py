"""The folder that a server loads from for `envpack test`: links to the user's models, and what they lack."""

import json
from pathlib import Path

import pytest

from envpack.local.starting import Python
from envpack.repository.config_editor import get_string_parameter
from envpack.repository.model import open_model
from envpack.settings.project import open_project
from envpack.support.errors import InputError
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import NoProgress
from envpack.testing import served_models as module
from envpack.testing.served_models import ServedRepository

PLAIN = 'backend: "python"\ninput { name: "X" data_type: TYPE_FP32 dims: [1] }\n'
CALLS = 'import triton_python_backend_utils as pb_utils\nr = pb_utils.InferenceRequest(model_name="plain")\n'
ENSEMBLE = 'platform: "ensemble"\nensemble_scheduling { step [ %s ] }\n'


def environment(value):
    return PLAIN + f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: {json.dumps(value)} }} }}\n'


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    add(folder, "plain")
    (folder / "shared.json").write_text("{}")
    return folder


def add(folder, name, config=PLAIN, code=""):
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1/model.py").write_text(code)
    (folder / name / "config.pbtxt").write_text(config)
    return folder / name


@pytest.fixture
def served(repository, tmp_path, monkeypatch):
    """A server's folder; replaces the builds of environments and stubs, and records them."""
    stub = tmp_path / "made/stub"
    stub.parent.mkdir()
    stub.write_bytes(b"stub")
    stub.chmod(0o755)
    made = []

    def python_of(project, model, progress, store):
        made.append((project.repository, model.name, progress, store))
        return Python(stub, tmp_path / "made/prefix")

    monkeypatch.setattr(module, "python_of", python_of)
    progress = NoProgress()
    found = ServedRepository(open_project(repository), tmp_path / "served", progress, store="store")
    found.made, found.progress = made, progress
    return found


def put_environment(folder):
    (folder / "env/bin").mkdir(parents=True)
    (folder / "env/bin/activate").touch()


def test_everything_in_the_repository_is_there_by_links(served, repository):
    links = {entry.name: entry.readlink() for entry in served.folder.iterdir()}
    assert links == {name: repository / name for name in ("plain", "shared.json")}


def test_a_model_without_an_environment_gets_one_and_the_users_folder_stays_as_it_is(served, repository, tmp_path):
    before = {file: file.read_text() for file in repository.rglob("*") if file.is_file()}
    assert served.place("plain") == ("plain",)
    assert served.made == [(repository, "plain", served.progress, "store")]
    placed = served.model("plain")
    assert placed.folder == served.folder / "plain"
    assert get_string_parameter(placed.config, "EXECUTION_ENV_PATH") == str(tmp_path / "made/prefix")
    assert [tensor.name for tensor in placed.config.input] == ["X"]
    stub = placed.folder / STUB_NAME
    assert (stub.read_bytes(), stub.is_symlink(), bool(stub.stat().st_mode & 0o100)) == (b"stub", False, True)
    assert (placed.folder / "1").readlink() == repository / "plain/1"
    assert not (placed.folder / "config.pbtxt").is_symlink()
    assert {file: file.read_text() for file in repository.rglob("*") if file.is_file()} == before


def test_a_model_is_placed_as_it_is_now(served, repository):
    served.place("plain")
    (repository / "plain/config.pbtxt").write_text(PLAIN.replace('"X"', '"Z"'))
    (repository / "plain/1/other.py").touch()
    (repository / "plain/labels.txt").touch()
    served.place("plain")
    assert [tensor.name for tensor in served.model("plain").config.input] == ["Z"]
    assert (served.folder / "plain/labels.txt").is_symlink()
    assert (repository / "plain/1/other.py").exists(), "only links are removed"


def test_what_a_model_runs_and_calls_is_placed_before_it(served, repository):
    add(repository, "calls", code=CALLS)
    step = '{ model_name: "%s" model_version: -1 }'
    add(repository, "all", ENSEMBLE % ", ".join(step % name for name in ("calls", "absent")))
    assert served.place("all") == ("plain", "calls", "all")
    assert [name for _, name, *_ in served.made] == ["plain", "calls"], "an ensemble has no environment"
    served.made.clear()
    assert served.place("all", besides={"plain"}) == ("plain", "calls", "all")
    assert [name for _, name, *_ in served.made] == ["calls"]


def test_models_that_have_all_that_a_server_needs_are_only_linked(served, repository, tmp_path):
    (tmp_path / "backends/python_3_8").mkdir(parents=True)
    with_stub = add(repository, "stub", environment("$$TRITON_MODEL_DIRECTORY/env"))
    put_environment(with_stub)
    (with_stub / STUB_NAME).touch()
    put_environment(add(repository, "stubless", environment("$$TRITON_MODEL_DIRECTORY/env")))
    archive = add(repository, "archive", environment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"))
    (archive / "env.tar.gz").write_bytes(b"\x1f\x8b")
    add(repository, "backend", PLAIN.replace('"python"', '"python_3_8"'))
    backend = add(repository, "both", environment("$$TRITON_MODEL_DIRECTORY/env").replace('"python"', '"python_3_8"'))
    put_environment(backend)
    add(repository, "foreign", 'backend: "onnxruntime"\n')
    for name in ("stub", "stubless", "archive", "backend", "both", "foreign"):
        served.place(name)
        assert (served.folder / name / "config.pbtxt").is_symlink(), name
    assert served.made == []


def test_models_that_lack_something_are_completed(served, repository, tmp_path):
    add(repository, "missing", environment("$$TRITON_MODEL_DIRECTORY/env"))
    add(repository, "backend", PLAIN.replace('"python"', '"python_3_8"'))
    for name in ("missing", "backend"):
        served.place(name)
        placed = served.model(name)
        assert get_string_parameter(placed.config, "EXECUTION_ENV_PATH") == str(tmp_path / "made/prefix"), name
        assert placed.backend == "python", name
    assert open_model(repository / "backend").backend == "python_3_8"


def test_a_text_of_the_server_names_the_users_files(served, repository):
    text = f"{served.folder}/plain/1/model.py:3, not {served.folder}x"
    assert served.here(text) == f"{repository}/plain/1/model.py:3, not {served.folder}x"


def test_a_relative_repository_is_linked_by_its_whole_path(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(repository.parent)
    served = ServedRepository(open_project(Path("models")), tmp_path / "served", NoProgress())
    assert (served.folder / "plain").readlink() == repository / "plain"
    assert served.here(f"{served.folder}/plain") == f"{repository}/plain"


def test_a_model_that_does_not_exist_is_an_error(served):
    with pytest.raises(InputError) as raised:
        served.place("absent")
    assert raised.value.kind == "model-missing"


# EXECUTION_ENV_PATH, and the kind, the place and words of the error for an environment that no server can use.
UNUSABLE = {
    "relative": ("env", "bad-environment-path", "config.pbtxt", "'env' is relative"),
    "middle": ("/x/$$TRITON_MODEL_DIRECTORY/env", "bad-environment-path", "config.pbtxt", "counts at its beginning"),
    "linked": ("$$TRITON_MODEL_DIRECTORY/linked", "bad-path", "linked", "links lead to"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_environment_that_no_server_can_use_is_not_replaced_by_one_of_the_cache(served, repository, name):
    value, kind, place, message = UNUSABLE[name]
    folder = add(repository, name, environment(value))
    put_environment(folder)
    (folder / "my files").mkdir()
    (folder / "env").rename(folder / "my files/env")
    (folder / "linked").symlink_to("my files/env")
    (folder / "env").symlink_to("linked")
    with pytest.raises(InputError) as refused:
        served.place(name)
    assert (refused.value.kind, refused.value.where) == (kind, str(folder / place))
    assert message in refused.value.message
    assert served.made == []


def test_an_environment_in_a_cache_by_a_path_with_a_space_is_refused(served, tmp_path):
    (tmp_path / "my cache").mkdir()
    (tmp_path / "made/prefix").symlink_to(tmp_path / "my cache")
    with pytest.raises(InputError) as refused:
        served.place("plain")
    error = refused.value
    assert (error.kind, error.where) == ("bad-path", str(tmp_path / "made/prefix"))
    assert error.message == "the path of the cache contains ' ', and servers pass it to a shell unquoted"
    assert error.hint == "set ENVPACK_CACHE_DIR to a path of letters, digits, '/', '_', '-' and '.'"

"""The files of a model: each in the model's folder, whatever an artifact calls it."""

import pytest

from envpack.repository.adoption.artifact import Artifact
from envpack.repository.adoption.files import write_artifact
from envpack.repository.adoption.kinds import inspect_artifact
from envpack.support.errors import InputError
from tests.tables import every_row


@pytest.fixture
def artifact(tmp_path):
    """Makes an artifact with files and requirements of these names; all have the same content."""
    (tmp_path / "source").mkdir()
    content = tmp_path / "source/content"
    content.write_text("new")

    def make(files=(), requirements=()):
        named = (dict.fromkeys(names, content) for names in (files, requirements))
        return Artifact(kind="onnx", title="", source=content, files=next(named), requirements=next(named))

    return make


@every_row("name", ["../../victim/model.py", "a/../../../victim/model.py", "/absolute", "..", ".", ""])
def test_a_name_outside_of_the_model_is_refused(tmp_path, artifact, name):
    victim, made = tmp_path / "victim/model.py", tmp_path / "made"
    victim.parent.mkdir(exist_ok=True)
    victim.write_text("old")
    for contents in ({"files": [name]}, {"requirements": [name]}):
        with pytest.raises(InputError) as refused:
            write_artifact(artifact(**contents), made)
        error = refused.value
        assert (error.kind, error.where) == ("bad-artifact", str(tmp_path / "source/content"))
        assert error.message == f"it names {name!r}, which lies outside of its folder"
        assert error.hint == "write the artifact again, with all files in one folder"
    assert victim.read_text() == "old"


def test_a_file_and_a_requirements_file_may_have_the_same_name(tmp_path, artifact):
    write_artifact(artifact(["requirements.txt"], ["requirements.txt"]), tmp_path / "made")
    assert (tmp_path / "made/1/requirements.txt").read_text() == "new"
    assert (tmp_path / "made/requirements.txt").read_text() == "new"


@every_row(
    ("files", "named"),
    [
        ({"app.py": "import model\n", "model.py": ""}, "model.py"),
        ({"model.py": ""}, "model.py"),
        ({"app.py": "import model\n", "model/__init__.py": ""}, "model"),
        ({"app.py": "import model.net\n", "model/net.py": ""}, "model"),
        ({"model/app.py": ""}, "model"),
    ],
)
def test_a_module_with_the_name_of_the_models_own_is_refused(tmp_path_factory, monkeypatch, files, named):
    folder = tmp_path_factory.mktemp("source")
    monkeypatch.chdir(folder)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{content}def f(): ...\n")
    module = next(iter(files)).removesuffix(".py").replace("/", ".")
    pickle = folder / "net.pkl"
    pickle.write_bytes(b"\x80\x04\x8c" + bytes([len(module)]) + module.encode() + b"\x94\x8c\x01f\x94\x93.")
    for artifact in (f"{module}:f", str(pickle)):
        with pytest.raises(InputError) as refused:
            write_artifact(inspect_artifact(artifact), folder / "made")
        error = refused.value
        assert (error.kind, error.where) == ("bad-artifact", str(folder / named))
        assert error.message == "the model.py that envpack writes has the same name"
        assert error.hint == "give it another name"


def test_a_folder_of_mlflow_that_is_a_package_is_refused(tmp_path):
    """Its copy is called model, and would be imported in the place of model.py."""
    source = tmp_path / "trained"
    source.mkdir()
    artifact = Artifact(kind="mlflow", title="", source=source, files={"model": source}, requirements={})
    write_artifact(artifact, tmp_path / "made")
    (source / "__init__.py").touch()
    with pytest.raises(InputError, match=r"the model\.py that envpack writes has the same name") as refused:
        write_artifact(artifact, tmp_path / "again")
    assert refused.value.where == str(source)

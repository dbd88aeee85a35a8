"""What the bytes of pickled estimators say; real pickles, of classes that look like those of scikit-learn."""

import bz2
import gzip
import lzma
import pickle
import sys
import types
import zlib

import pytest

from envpack.repository.adoption.kinds import inspect_artifact
from envpack.support.errors import InputError
from tests.tables import every_row


class Estimator:
    """Adds the version to its state, as scikit-learn does."""

    def __getstate__(self):
        return {**self.__dict__, "_sklearn_version": "1.5.2"}


class Booster:
    """A model of another package."""


class Trap:
    """Its pickle would write a file."""

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture(autouse=True)
def packages(monkeypatch):
    """Modules in which the classes above seem to be."""
    for kind, name in ((Estimator, "sklearn"), (Booster, "xgboost")):
        module = types.ModuleType(name)
        setattr(module, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(kind, "__module__", name)


def pickled(model, protocol, **state):
    model.__dict__.update(state)
    return pickle.dumps(model, protocol)


def requirements_of(file, python=""):
    (name, text), *others = inspect_artifact(str(file), python=python).requirements.items()
    assert others == []
    return name, text


def as_lzma(content):
    return lzma.compress(content, format=lzma.FORMAT_ALONE)


@every_row(
    ("protocol", "pack"),
    [
        *((protocol, bytes) for protocol in (2, 3, 4, 5)),
        *((4, gzip.compress), (5, zlib.compress), (2, gzip.compress)),
        *((4, bz2.compress), (4, lzma.compress), (4, as_lzma)),
    ],
)
def test_the_version_is_pinned(tmp_path, protocol, pack):
    file = tmp_path / f"{protocol}{pack.__name__}.pkl"
    file.write_bytes(pack(pickled(Estimator(), protocol, coef_=[1.0])))
    assert requirements_of(file) == ("requirements.txt", "scikit-learn==1.5.2\nnumpy\n")


@every_row(
    ("state", "lines"),
    [
        ({"coef_": "numpy.core.multiarray"}, ["scikit-learn==1.5.2", "numpy<2"]),
        ({"coef_": "numpy._core.multiarray"}, ["scikit-learn==1.5.2", "numpy>=2"]),
        ({"feature_names_in_": ["a"]}, ["scikit-learn==1.5.2", "numpy", "pandas"]),
        ({"steps": Booster()}, ["scikit-learn==1.5.2", "numpy", "xgboost"]),
    ],
)
def test_other_packages_are_those_that_it_names(tmp_path, state, lines):
    file = tmp_path / "model.pkl"
    file.write_bytes(pickled(Estimator(), 4, **state))
    assert requirements_of(file)[1].splitlines() == lines


@pytest.mark.parametrize(("version", "numpy"), [("0.24.2", "numpy<2"), ("1.4.0", "numpy<2"), ("1.4.2", "numpy")])
def test_an_older_version_gets_the_numpy_that_it_was_built_for(tmp_path, version, numpy):
    file = tmp_path / "model.pkl"
    old = pickled(Estimator(), 4).replace(b"\x8c\x051.5.2", b"\x8c%c%s" % (len(version), version.encode()))
    file.write_bytes(old)
    assert requirements_of(file) == ("requirements.txt", f"scikit-learn=={version}\n{numpy}\n")


def test_a_package_whose_version_is_unknown_is_named(tmp_path):
    file = tmp_path / "model.pkl"
    file.write_bytes(pickled(Booster(), 4))
    assert "xgboost" in inspect_artifact(str(file)).notes[0]


def test_the_python_that_the_user_names_is_written_down(tmp_path):
    file = tmp_path / "model.pkl"
    file.write_bytes(pickled(Estimator(), 4))
    name, text = requirements_of(file, python="3.9")
    assert (name, text.splitlines()[0]) == ("python_env.yaml", "python: '3.9'")


def test_requirements_beside_the_file_count_more(tmp_path):
    file = tmp_path / "model.pkl"
    file.write_bytes(pickled(Booster(), 4))
    (tmp_path / "requirements.txt").write_text("xgboost==1.7\n")
    artifact = inspect_artifact(str(file))
    assert (artifact.requirements, artifact.notes) == ({"requirements.txt": tmp_path / "requirements.txt"}, ())


def test_a_module_beside_the_file_comes_along(tmp_path):
    file = tmp_path / "model.pkl"
    file.write_bytes(pickled(Booster(), 4).replace(b"xgboost", b"mymodel"))
    (tmp_path / "mymodel").mkdir()
    (tmp_path / "mymodel/__init__.py").touch()
    artifact = inspect_artifact(str(file))
    assert artifact.files == {"mymodel": tmp_path / "mymodel", "model.joblib": file}
    assert "mymodel" not in artifact.requirements["requirements.txt"]


def test_what_a_module_beside_the_file_imports_comes_along(tmp_path):
    file = tmp_path / "model.pkl"
    file.write_bytes(pickled(Booster(), 4).replace(b"\x07xgboost", b"\x0ctraining.net"))
    (tmp_path / "training").mkdir()
    (tmp_path / "training/net.py").write_text("import json\nimport numpy\nimport sklearn.svm\nimport helper\n")
    (tmp_path / "helper.py").write_text("import PIL\nimport pandas\n")
    artifact = inspect_artifact(str(file))
    assert artifact.files == {
        "helper.py": tmp_path / "helper.py",
        "training": tmp_path / "training",
        "model.joblib": file,
    }
    assert artifact.requirements["requirements.txt"].split() == ["scikit-learn", "numpy", "pillow", "pandas"]


@every_row("pack", [bytes, gzip.compress, lzma.compress])
def test_a_file_that_was_cut_off_is_not_taken_for_another_model(tmp_path, pack):
    content = pack(pickled(Estimator(), 4, coefficients=list(range(1000))))
    (tmp_path / "m.joblib").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError) as raised:
        inspect_artifact(str(tmp_path / "m.joblib"))
    assert raised.value.message == "the pickle breaks off"


def test_nothing_is_unpickled(tmp_path):
    trap, file = Trap(), tmp_path / "model.pkl"
    trap.path = str(tmp_path / "written")
    file.write_bytes(pickle.dumps([trap, {"_sklearn_version": "1.5.2"}]))
    inspect_artifact(str(file))
    assert not (tmp_path / "written").exists()


def test_a_class_of_a_script_is_refused(tmp_path):
    file = tmp_path / "model.pkl"
    file.write_bytes(pickled(Booster(), 4).replace(b"\x8c\x07xgboost", b"\x8c\x08__main__"))
    with pytest.raises(InputError, match="Booster of the program that wrote it"):
        inspect_artifact(str(file))


@pytest.mark.parametrize("count", range(60, 130))  # of what is pickled before, which becomes a letter
def test_a_text_before_a_class_is_no_part_of_its_name(tmp_path, count):
    file = tmp_path / "model.pkl"
    file.write_bytes(pickled(Estimator(), 2, **{f"a{number}": None for number in range(count)}, class_by=Booster()))
    assert requirements_of(file)[1].split() == ["scikit-learn==1.5.2", "numpy", "xgboost"]


@every_row(("place", "folder"), [("models/a.pkl", "."), ("models/deep/b.pkl", "."), ("models/deep/deeper/c.pkl", "")])
def test_a_module_of_the_project_above_is_no_package_of_that_name(tmp_path, place, folder):
    project = tmp_path / "project"
    (project / place).parent.mkdir(parents=True, exist_ok=True)
    (project / "xgboost.py").write_text("")
    (project / place).write_bytes(pickled(Booster(), 4))
    if not folder:
        assert requirements_of(project / place) == ("requirements.txt", "scikit-learn\nnumpy\nxgboost\n")
        return
    with pytest.raises(InputError, match=f"it needs xgboost.py, which is not beside it, but in {project}") as refused:
        inspect_artifact(str(project / place))
    copy = project / (project / place).name
    assert refused.value.hint == f"copy the file there, and name that copy: {copy}"
    copy.write_bytes((project / place).read_bytes())
    assert inspect_artifact(str(copy)).files == {"model.joblib": copy, "xgboost.py": project / "xgboost.py"}


@every_row(("pythons", "allowed"), [(">=3.12", True), (">=3.6", True), (">=3.99", False)])
def test_a_lock_of_several_pythons_is_copied_whole(tmp_path, pythons, allowed):
    package = '[[package]]\nname = "p"\nversion = "1"\nsource = { virtual = "." }\n'
    files = {
        "pyproject.toml": f'[project]\nname = "p"\nversion = "1"\nrequires-python = "{pythons}"\n',
        "uv.lock": f'version = 1\nrequires-python = "{pythons}"\n{package}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "model.pkl").write_bytes(pickled(Estimator(), 4))
    if allowed:
        copied = inspect_artifact(str(tmp_path / "model.pkl")).requirements
        assert copied == {name: tmp_path / name for name in files}
    else:
        with pytest.raises(InputError, match="the lock is for several versions of Python"):
            inspect_artifact(str(tmp_path / "model.pkl"))

"""`envpack init --template`: what is written, and that mypy and pyright find nothing in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.repository.code import called_models
from envpack.repository.model import open_model
from envpack.settings.examples import copy_template, example_files
from envpack.support.errors import InputError
from tests.needed_pythons import need_interpreter

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A repository with one model of each template, which has the template's name."""
    repository = tmp_path_factory.mktemp("models")
    for name in example_files("templates"):
        copy_template(name, repository / f"{name}_model")
    return repository


@pytest.fixture(scope="module")
def typings(tmp_path_factory):
    """What an installation of the wheel adds to the search path of type checkers: envpack and its type stubs."""
    folder = tmp_path_factory.mktemp("typings")
    (folder / "envpack").symlink_to(CHECKOUT / "envpack")
    for stubs in (CHECKOUT / "typings").iterdir():
        (folder / stubs.name.removesuffix("-stubs")).symlink_to(stubs)
    return folder


def test_each_template_is_a_model_with_samples_and_tests(written):
    for name in example_files("templates"):
        folder = written / f"{name}_model"
        assert open_model(folder).backend == "python"
        assert json.loads((folder / "envpack/smoke.json").read_text())["data"]
        assert (folder / f"tests/test_{name}_model.py").is_file()
    assert not [path for path in written.rglob("*") if "MODEL" in path.name]
    assert not [path for path in written.rglob("*") if path.is_file() and "MODEL" in path.read_text()]


def test_each_template_can_be_imported_by_the_oldest_python(written):
    # This bare interpreter has no packages, so what the templates import is replaced: their own code is what is tried.
    program = """
import runpy, sys, unittest.mock
sys.modules.update(dict.fromkeys(["numpy", "torch", "triton_python_backend_utils"], unittest.mock.MagicMock()))
for path in sys.argv[1:]:
    assert "TritonPythonModel" in runpy.run_path(path)
"""
    command = [need_interpreter("3.6").executable, "-c", program, *written.glob("*/1/model.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_model_that_bls_calls_comes_with_it(written):
    assert called_models(written / "bls_model") == ("bls_model_doubler",)
    open_model(written / "bls_model_doubler")


def test_nothing_is_written_beside_a_model_that_exists(tmp_path):
    """The second model of the template is there."""
    (tmp_path / "first_doubler").mkdir()
    with pytest.raises(InputError, match="exists") as caught:
        copy_template("bls", tmp_path / "first")
    assert caught.value.kind == "not-empty"
    assert [path.name for path in tmp_path.iterdir()] == ["first_doubler"]


@pytest.mark.thorough
def test_mypy_finds_nothing(written, typings):
    # PyTorch is not installed here. Two modules of one name cannot be checked in one run.
    options = ["--strict", "--config-file=", f"--cache-dir={typings / 'cache'}", "--ignore-missing-imports"]
    options.append("--follow-imports=silent")  # what an installation has is not checked
    environment = {**os.environ, "MYPYPATH": str(typings)}
    for source in (*written.glob("*/1/model.py"), *written.glob("*/tests/*.py")):
        command = [sys.executable, "-m", "mypy", *options, source]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_pyright_finds_nothing(written, typings, tmp_path):
    # Without PyTorch, all of its types are unknown.
    found = pyright(tmp_path, typings, include=[str(written)], exclude=[str(written / "torch_model/1")])
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == 2 * len(example_files("templates"))  # bls has one more, torch one less


def test_pyright_finds_a_wrong_type(written, typings, tmp_path):
    text = (written / "model_model/1/model.py").read_text()
    (tmp_path / "model.py").write_text(text.replace('pb_utils.Tensor("Y", ', "pb_utils.Tensor(3, "))
    (error,) = pyright(tmp_path, typings, include=["model.py"])["generalDiagnostics"]
    assert '"Literal[3]" is not assignable to "str"' in error["message"]


def pyright(folder, typings, **settings):
    """What pyright says of sources in its strict mode."""
    document = {"extraPaths": [str(typings)], "typeCheckingMode": "strict", **settings}
    (folder / "pyrightconfig.json").write_text(json.dumps(document))
    command = [sys.executable, "-m", "basedpyright", "--project", folder, "--outputjson"]
    command += ["--pythonpath", sys.executable]  # else it looks for packages beside the python of PATH
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)

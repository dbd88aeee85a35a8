"""What an MLflow model's files say of its requirements and its Python."""

import pytest

from envpack.repository.adoption.files import write_artifact
from envpack.repository.adoption.kinds import inspect_artifact
from envpack.requirements.format import find_requirements, read_requirements
from envpack.support.errors import InputError
from tests.wheels import make_wheel

MLMODEL = """\
flavors:
  python_function:
    loader_module: mlflow.sklearn
    model_path: model.pkl
    python_version: 3.11.2
  sklearn:
    sklearn_version: 1.5.2
signature:
  inputs: '[{"type": "double", "name": "x"}]'
  outputs: '[{"type": "double"}]'
"""
PYTHON_ENV = "python: 3.9.18\nbuild_dependencies: [pip]\ndependencies:\n- -r requirements.txt\n"
CONDA = "channels: [conda-forge]\ndependencies:\n- python=3.10.4\n- pip<=23\n{}- pip:\n  - mlflow==1.2\n  - numpy\n"


@pytest.fixture
def model(tmp_path):
    """Writes an MLflow model with some more files; gives what its requirements are as those of a Triton model."""

    def write(**files):
        source, made = tmp_path / "source", tmp_path / "made"
        source.mkdir(exist_ok=True)
        made.mkdir()
        (source / "MLmodel").write_text(MLMODEL)
        (source / "model.pkl").write_bytes(b"\x80\x04N.")
        for name, content in files.items():
            (source / name.replace("_txt", ".txt").replace("_yaml", ".yaml")).write_text(content)
        write_artifact(inspect_artifact(str(source)), made)
        assert (made / "1/model/model.pkl").read_bytes() == b"\x80\x04N."
        found = read_requirements(find_requirements(made), python=lambda _: "")
        return found.source.name, found.python, found.pip, found.conda

    return write


def test_python_and_packages_come_from_python_env_yaml(model):
    files = {"python_env_yaml": PYTHON_ENV, "requirements_txt": "mlflow==2.2\nnumpy\n", "conda_yaml": CONDA.format("")}
    assert model(**files) == ("python_env.yaml", "3.9", ("mlflow==2.2", "numpy"), ())


def test_setuptools_of_the_machine_that_logged_it_is_required(model, tmp_path):
    files = {
        "python_env_yaml": PYTHON_ENV.replace("[pip]", "[pip, setuptools==65.5.0]"),
        "requirements_txt": "mlflow\n",
    }
    assert model(**files) == ("python_env.yaml", "3.9", ("mlflow", "setuptools==65.5.0"), ())
    assert "-r 1/model/requirements.txt" in (tmp_path / "made/python_env.yaml").read_text()


def test_conda_yaml_counts_if_it_has_packages_of_conda(model):
    files = {"python_env_yaml": PYTHON_ENV, "requirements_txt": "mlflow\n", "conda_yaml": CONDA.format("- ffmpeg=6\n")}
    assert model(**files) == ("conda.yaml", "3.10", ("mlflow==1.2", "numpy"), ("ffmpeg=6",))


def test_conda_yaml_with_pip_packages_alone_needs_no_channel(model):
    assert model(conda_yaml=CONDA.format("")) == ("python_env.yaml", "3.10", ("mlflow==1.2", "numpy"), ())


def test_the_account_of_an_index_is_not_written(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "very-secret")
    address = "https://me:${TOKEN}@index.example/simple"
    conda = CONDA.format("").replace("  - numpy\n", f"  - numpy\n  - --extra-index-url {address}\n")
    assert model(conda_yaml=conda)[0] == "python_env.yaml"
    written = (tmp_path / "made/python_env.yaml").read_text()
    assert "--extra-index-url https://index.example/simple" in written
    assert "very-secret" not in written


def test_without_an_environment_file_the_flavor_names_the_python(model):
    assert model(requirements_txt="numpy<2\n") == ("python_env.yaml", "3.11", ("numpy<2",), ())


def test_a_wheel_of_the_artifact_is_that_of_the_copy(model, tmp_path):
    make_wheel(tmp_path / "source", "leaf", "1.0", {"leaf.py": ""})
    wheel = tmp_path / "made/1/model/leaf-1.0-py3-none-any.whl"
    assert model(requirements_txt="./leaf-1.0-py3-none-any.whl\n")[2] == (f"leaf @ {wheel.as_uri()}",)


@pytest.mark.parametrize("target", ["/etc/hostname", "..", ".", "../elsewhere"])
def test_a_link_out_of_the_artifact_is_refused(model, tmp_path, target):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/linked").symlink_to(target)
    with pytest.raises(InputError, match="which is not a part of the artifact") as refused:
        model(requirements_txt="numpy\n")
    assert refused.value.where == str(tmp_path / "source/linked")


def test_a_link_inside_of_the_artifact_becomes_a_copy(model, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/linked").symlink_to("MLmodel")
    model(requirements_txt="numpy\n")
    copy = tmp_path / "made/1/model/linked"
    assert (copy.is_symlink(), copy.read_text()) == (False, MLMODEL)


@pytest.mark.parametrize("path", ["/home/ada/churn/chain.py", "src/chain.py", "chain.py"])
def test_code_that_was_logged_is_named_by_the_path_that_it_had_then(tmp_path, path):
    flavor = MLMODEL.replace("model_path: model.pkl", f"model_code_path: {path}")
    (tmp_path / "MLmodel").write_text(flavor)
    (tmp_path / "requirements.txt").write_text("mlflow\n")
    with pytest.raises(InputError) as raised:
        inspect_artifact(str(tmp_path))
    assert raised.value.message == "it names 'chain.py', which the folder does not have"
    (tmp_path / "chain.py").touch()
    assert inspect_artifact(str(tmp_path)).kind == "mlflow"


def test_a_folder_may_be_named_by_a_path_with_dots(tmp_path, monkeypatch):
    for name in ("models", "repository"):
        (tmp_path / name).mkdir()
    (tmp_path / "models/MLmodel").write_text(MLMODEL)
    (tmp_path / "models/requirements.txt").write_text("mlflow\n")
    (tmp_path / "models/model.pkl").touch()
    monkeypatch.chdir(tmp_path / "repository")
    assert inspect_artifact("../models").source == tmp_path / "models"


@pytest.mark.parametrize(("name", "is_proposed"), [("model.pkl", True), ("model.skops", False)])
def test_only_a_pickle_is_proposed_in_place_of_a_model_without_a_signature(tmp_path, name, is_proposed):
    text = MLMODEL.partition("signature:")[0].replace("model.pkl", name)
    (tmp_path / "MLmodel").write_text(f"{text}    pickled_model: {name}\n")
    (tmp_path / name).touch()
    with pytest.raises(InputError) as raised:
        inspect_artifact(str(tmp_path))
    assert (f"--from {tmp_path / name}" in raised.value.hint) is is_proposed

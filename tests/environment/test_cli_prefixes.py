"""`envpack build --from-prefix` as users run it: a virtual environment with NumPy, built, built again, and refused."""

import os
import subprocess
from pathlib import Path

import pytest

from envpack.conda.choice import interpreter_for
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import assert_refused, envpack, listing
from tests.needed_pythons import need
from tests.waiting import settled

pytestmark = pytest.mark.thorough

PYTHON = "3.10"


@pytest.fixture(scope="module")
def changes():
    return {"ENVPACK_CACHE_DIR": os.environ["ENVPACK_TEST_CACHE"], "CXX": None}


@pytest.fixture(scope="module")
def virtual(tmp_path_factory):
    root = tmp_path_factory.mktemp("virtual") / "env"
    subprocess.run([interpreter_for(need(PYTHON)).executable, "-m", "venv", root], check=True)
    subprocess.run([root / "bin/python", "-m", "pip", "install", "--quiet", "numpy<2"], check=True)
    return root


@pytest.fixture
def repository(tmp_path):
    return BadInput("", "", 0, "", (), MODEL).write(tmp_path)


def test_build_and_build_again(repository, virtual, changes):
    words = ("build", "--repository", repository, "m", "--from-prefix", virtual, "--json")
    first = envpack(*words, changes=changes)
    assert first.code == 0, first.err
    (model,) = first.document["models"]
    assert (model["python"], model["numpy"][:2], model["changed"]) == (interpreter_for(PYTHON).version, "1.", True)
    said = subprocess.run(
        [f"{model['environment']}/bin/python3", "-c", "import numpy; print(numpy.__file__)"],
        env={}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert said.stdout.startswith(model["environment"])
    before = listing(repository)
    assert settled(virtual)
    assert envpack(*words, changes=changes).code == 0
    again = envpack(*words, changes=changes)
    assert again.document["models"] == [model | {"changed": False}]
    assert listing(repository) == before


def test_the_project_can_say_it(repository, virtual, changes):
    (repository / "envpack.toml").write_text(f'[models.m]\nfrom_prefix = "{virtual}"\n')
    built = envpack("build", "--repository", repository, "--json", changes=changes)
    assert built.code == 0, built.err
    assert Path(built.document["models"][0]["environment"]).name == f"python{PYTHON}"
    locked = envpack("lock", "--repository", repository, "m", "--json", changes=changes)
    assert (locked.code, locked.document["models"][0]["file"]) == (0, None)
    words = ("build", "--repository", repository, "m", "--python", "3.8", "--json")
    assert_refused(envpack(*words, changes=changes), 3, "other-python", str(virtual))


def test_an_environment_without_numpy_changes_nothing(repository, tmp_path, changes):
    subprocess.run([interpreter_for(PYTHON).executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    before = listing(repository)
    words = ("build", "--repository", repository, "m", "--from-prefix", tmp_path / "env", "--json")
    refused = envpack(*words, changes=changes)
    assert_refused(refused, 3, "numpy-missing", str(tmp_path / "env"), "uv pip install --python")
    assert listing(repository) == before
    command = refused.document["error"]["hint"].removeprefix("install NumPy into it: ")
    subprocess.run(command, shell=True, check=True)
    assert envpack(*words, changes=changes).code == 0


def test_what_is_no_environment_changes_nothing(repository, tmp_path, changes):
    before = listing(repository)
    words = ("build", "--repository", repository, "m", "--from-prefix", tmp_path, "--json")
    assert_refused(envpack(*words, changes=changes), 3, "not-a-prefix", str(tmp_path))
    assert listing(repository) == before

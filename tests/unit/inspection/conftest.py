import os
import shutil
import subprocess

import pytest

from envpack.repository.model import open_model
from envpack.repository.placement import in_model_folder, point_to_environment
from envpack.settings.project import Project
from envpack.settings.releases import find_release
from envpack.support.elf import _patchelf
from tests.unit.stub.elf_files import _library_of_this_process, for_any_release, write_library

TENSORS = """input { name: "X" data_type: TYPE_FP32 dims: [1] }
output { name: "Y" data_type: TYPE_FP32 dims: [1] }
"""


def step(model, read, written):
    """A step of an ensemble that reads and writes one tensor."""
    maps = f'input_map {{ key: "X" value: "{read}" }} output_map {{ key: "Y" value: "{written}" }}'
    return f'{{ model_name: "{model}" model_version: -1 {maps} }}'


@pytest.fixture(scope="session")
def release():
    return find_release("24.10")


@pytest.fixture(scope="session")
def environment(tmp_path_factory, release):
    """The relevant files of an execution environment for the server's own Python; its libpython is a small library."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/activate").write_text("true")
    write_library(folder / f"lib/libpython{release.python}.so.1.0")
    return folder


@pytest.fixture(scope="session")
def foreign_stub(tmp_path_factory, release):
    """A program that is linked against libpython, as every stub except envpack's is."""
    stub = tmp_path_factory.mktemp("stub") / "triton_python_backend_stub"
    stub.write_bytes(for_any_release(_library_of_this_process("libm.so.6")))
    library = f"libpython{release.python}.so.1.0"
    subprocess.run([_patchelf(), "--add-needed", library, stub], check=True)
    stub.chmod(0o755)
    return stub


@pytest.fixture
def project(tmp_path, environment):
    """Two models with an environment each, and an ensemble of them."""
    repository = tmp_path / "repository"
    for name in ("one", "two"):
        folder = repository / name
        (folder / "1").mkdir(parents=True)
        (folder / "1/model.py").write_text("code")
        (folder / "config.pbtxt").write_text(f'backend: "python"\n{TENSORS}')
        shutil.copytree(environment, folder / "env", copy_function=os.link)
        point_to_environment(open_model(folder), in_model_folder("env"))
    (repository / "both/1").mkdir(parents=True)
    steps = f"{step('one', 'X', 'between')}, {step('two', 'between', 'Y')}"
    ensemble = f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ step [ {steps} ] }}\n'
    (repository / "both/config.pbtxt").write_text(ensemble)
    return Project(repository=repository)

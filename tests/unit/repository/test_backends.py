import os
import subprocess
import sys

import pytest

from envpack.repository.model import open_model
from envpack.repository.placement import (
    backend_for,
    backends_folder,
    find_backends,
    point_to_environment,
    python_of_backend,
    unpacking_backends,
)
from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import InputError
from envpack.support.placed_files import STUB_NAME

FILES = ["libtriton_python_3_8.so", "model.py", STUB_NAME, "triton_python_backend_utils.py"]

AS_PROGRAM = """
if __name__ == "__main__":
    import sys

    sys.path[:] = [*sys.path[1:], sys.argv[1]]
    import model

    print(model.TritonPythonModel.__module__, "has", model.TritonPythonModel.origin)
else:
    import beside, below

    class TritonPythonModel:
        origin = beside.X + below.X
"""


@pytest.fixture
def stub(tmp_path):
    file = tmp_path / "stub"
    file.write_bytes(b"\x7fELF")
    return file


@pytest.fixture
def backend(tmp_path):
    return backend_for("3.8", tmp_path / "deployed/backends")


def test_the_python_version_in_a_backend_name():
    assert python_of_backend("python_3_12") == "3.12"
    assert [python_of_backend(name) for name in ("python", "python_3", "my_python_3_8", "python_3_8_x")] == [""] * 4


def test_the_default_folder_is_beside_the_repository(tmp_path):
    project = Project(repository=tmp_path / "models", settings=Settings(backends=tmp_path / "b"))
    assert backends_folder(Project(repository=tmp_path / "models")) == tmp_path / "backends"
    assert backends_folder(project) == tmp_path / "b"
    assert backends_folder(project.saying(Settings(backends=tmp_path / "c"))) == tmp_path / "c"


def test_a_complete_folder_stays_unchanged(backend, stub):
    assert backend.place(stub) is True
    assert sorted(os.listdir(backend.folder)) == FILES
    assert os.readlink(backend.library) == "../python/libtriton_python.so"
    assert backend.stub.stat().st_mode & 0o777 == 0o755
    assert backend.place(stub) is False
    (backend.folder.parent / "python_3_9").touch()
    (backend.folder.parent / "other").mkdir()
    assert [found.name for found in find_backends(backend.folder.parent)] == ["python_3_8"]


def test_a_second_backend_is_placed_beside_the_first(backend, stub):
    second = backend_for("3.9", backend.folder.parent)
    assert (backend.place(stub), second.place(stub)) == (True, True)
    assert sorted(os.listdir(backend.folder.parent)) == ["python_3_8", "python_3_9"]


@pytest.mark.parametrize("name", FILES)
def test_missing_and_wrong_files_are_replaced(backend, stub, name):
    backend.place(stub)
    (backend.folder / name).unlink()
    assert backend.place(stub) is True
    (backend.folder / name).unlink()
    (backend.folder / name).write_text("something else")
    assert backend.place(stub) is True
    assert backend.place(stub) is False
    assert sorted(os.listdir(backend.folder)) == FILES


def test_the_library_can_be_a_copy_and_a_link_again(backend, stub, tmp_path):
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        (tmp_path / name).write_text(name)
    assert backend.place(stub, server=tmp_path) is True
    assert backend.library.read_text() == "libtriton_python.so"
    assert backend.place(stub, server=tmp_path) is False
    assert backend.place(stub) is True
    assert backend.library.is_symlink()


def test_a_folder_without_a_server_is_an_error(backend, stub, tmp_path):
    with pytest.raises(InputError, match="libtriton_python.so") as caught:
        backend.place(stub, server=tmp_path)
    assert caught.value.kind == "no-python-backend"
    assert not backend.folder.exists()


def test_the_bridge_exports_the_class_of_the_served_model(backend, stub, tmp_path):
    backend.place(stub)
    model = tmp_path / "core"
    (model / "1").mkdir(parents=True)
    (model / "1/served.py").write_text(AS_PROGRAM)
    (model / "1/beside.py").write_text("X = 'beside '")
    (model / "below.py").write_text("X = 'below'")
    # As in a stub, the model's file is the first argument of the process.
    command = [sys.executable, model / "1/served.py", backend.folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "1.served has beside below\n", done.stderr


def test_backend_and_environment_are_set_in_one_step(tmp_path):
    folder = tmp_path / "core"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").touch()
    (folder / "config.pbtxt").write_text('backend: "python" # ours\n')
    assert point_to_environment(open_model(folder), "/envs/one", "python_3_8") is True
    model = open_model(folder)
    assert model.backend == "python_3_8"
    assert (folder / "config.pbtxt").read_text().startswith('backend: "python_3_8" # ours\nparameters {')
    assert point_to_environment(model, "/envs/one", "python_3_8") is False


def test_backends_that_unpack_archives(tmp_path):
    (tmp_path / "env.tar").touch()
    (tmp_path / "env").mkdir()
    for name, backend, environment in (
        ("a", "python", "env.tar"),
        ("b", "python_3_8", "env"),
        ("c", "x", "none"),
    ):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/model.py").touch()
        (tmp_path / name / "config.pbtxt").write_text(f'backend: "{backend}"')
        point_to_environment(open_model(tmp_path / name), str(tmp_path / environment))
    assert unpacking_backends(open_model(tmp_path / name) for name in "abc") == ("python",)
    (tmp_path / "env").rmdir()
    (tmp_path / "env").touch()
    assert unpacking_backends(open_model(tmp_path / name) for name in "abc") == ("python", "python_3_8")

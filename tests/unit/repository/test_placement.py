import errno
from pathlib import Path

import pytest

from envpack.repository.model import config_text, open_model
from envpack.repository.placement import (
    forget_release,
    in_model_folder,
    is_stub_placed,
    place_stub,
    point_to_environment,
    remove_stub,
)
from envpack.settings.releases import find_release
from envpack.support.errors import InputError
from envpack.support.placed_files import STUB_NAME


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "core"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text("")
    return open_model(folder)


def test_the_configuration_is_created_once(model):
    value = in_model_folder("env")
    assert point_to_environment(model, value) is True
    assert point_to_environment(model, value) is False
    assert 'string_value: "$$TRITON_MODEL_DIRECTORY/env"' in config_text(model)
    assert config_text(model).startswith('backend: "python"\n')


def test_mode_and_link_of_the_configuration_are_kept(model, tmp_path):
    real = tmp_path / "shared.pbtxt"
    real.write_text('backend: "python"')
    real.chmod(0o640)
    (model.folder / "config.pbtxt").symlink_to(real)
    assert point_to_environment(model, "/envs/one")
    assert (model.folder / "config.pbtxt").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("value", ["env", "", "/a/$$TRITON_MODEL_DIRECTORY/b", "$$TRITON_MODEL_DIRECTORY/../env"])
def test_paths_that_the_server_cannot_resolve_are_errors(model, value):
    with pytest.raises(InputError) as caught:
        point_to_environment(model, value)
    assert caught.value.kind == "bad-environment-path"


def test_a_stub_is_copied_once_and_is_executable(model, tmp_path):
    binary = tmp_path / "stub"
    binary.write_bytes(b"\x7fELF")
    placed = model.folder / "triton_python_backend_stub"
    assert place_stub(binary, model.folder) is True
    assert placed.stat().st_mode & 0o777 == 0o755
    assert place_stub(binary, model.folder) is False
    placed.chmod(0o100)
    assert place_stub(binary, model.folder) is True
    assert placed.stat().st_mode & 0o777 == 0o755
    placed.chmod(0o777)  # as every file on a Windows drive
    assert is_stub_placed(binary, model.folder)
    assert place_stub(binary, model.folder) is False


def test_a_release_file_exists_only_for_a_named_release(model, tmp_path):
    binary = tmp_path / "stub"
    binary.write_bytes(b"\x7fELF")
    file = model.folder / "triton_python_backend_stub.release"
    assert place_stub(binary, model.folder, find_release("24.10")) is True
    assert file.read_text() == "24.10\n"
    assert place_stub(binary, model.folder, find_release("24.10")) is False
    assert place_stub(binary, model.folder, find_release("99.01", abi="24.10")) is False
    assert place_stub(binary, model.folder, find_release("99.01", abi="25.04")) is True
    assert file.read_text() == "25.04\n"
    assert place_stub(binary, model.folder) is False
    assert file.read_text() == "25.04\n"
    assert forget_release(model.folder) is True
    assert forget_release(model.folder) is False
    assert not file.exists()


def test_what_is_not_there_is_not_removed(model, monkeypatch):
    """A file system that is mounted read-only refuses to remove a file that does not exist."""

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert (forget_release(model.folder), remove_stub(model.folder)) == (False, False)
    (model.folder / "triton_python_backend_stub.release").touch()
    for remove in (forget_release, remove_stub):
        with pytest.raises(OSError, match="Read-only"):
            remove(model.folder)


def test_no_stub_is_left_beside_the_release_file_of_another_one(model, tmp_path):
    (tmp_path / "stub").write_bytes(b"\x7fELF")
    place_stub(tmp_path / "stub", model.folder, find_release("24.10"))
    with pytest.raises(FileNotFoundError):
        place_stub(tmp_path / "none", model.folder, find_release("25.04"))
    assert not (model.folder / "triton_python_backend_stub.release").exists()


def test_a_release_file_that_is_no_text_names_no_release(model, tmp_path):
    binary = tmp_path / "binary"
    binary.write_text("stub")
    place_stub(binary, model.folder, find_release("24.10"))
    assert is_stub_placed(binary, model.folder, find_release("24.10"))
    (model.folder / "triton_python_backend_stub.release").write_bytes(b"24.10\xff\n")
    assert not is_stub_placed(binary, model.folder, find_release("24.10"))


def test_is_stub_placed(model, tmp_path):
    binary, release = tmp_path / "binary", find_release("24.10")
    binary.write_text("stub")
    assert not is_stub_placed(binary, model.folder)
    place_stub(binary, model.folder)
    assert is_stub_placed(binary, model.folder)
    assert not is_stub_placed(binary, model.folder, release)
    place_stub(binary, model.folder, release)
    assert is_stub_placed(binary, model.folder, release)
    (model.folder / STUB_NAME).chmod(0o644)
    assert not is_stub_placed(binary, model.folder, release)

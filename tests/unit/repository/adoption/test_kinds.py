"""What an artifact is: what only the user's own MLflow can fetch, and the files of an ONNX model."""

import re
import subprocess
import sys

import pytest

from envpack.repository.adoption.kinds import fetched, inspect_artifact
from envpack.support.errors import InputError, UsageError


def test_a_uri_needs_mlflow(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])  # where a copy beside this Python would be
    with pytest.raises(UsageError) as error, fetched("models:/churn/3"):
        pass
    assert error.value.kind == "mlflow-missing"
    assert "mlflow" in error.value.hint


@pytest.mark.parametrize("text", ["folder/model", "./model.onnx", "module:function", "/a:b/c"])
def test_what_is_no_uri_stays_as_it_is(text):
    with fetched(text) as found:
        assert found == text


def test_mlflow_is_never_imported():
    code = (
        "import importlib, pkgutil, sys, envpack.repository.adoption as a; "
        "[importlib.import_module(f'{a.__name__}.{found.name}') for found in pkgutil.iter_modules(a.__path__)]; "
        "print('envpack.repository.adoption.mlflow_model' in sys.modules, 'mlflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def onnx_with_weights(folder, name):
    """The beginning of an ONNX file that names a file with weights, as protobuf writes it."""
    file = folder / "net.onnx"
    length = [len(name)] if len(name) < 128 else [len(name) % 128 + 128, len(name) // 128]
    file.write_bytes(b"\x08\x08:\x16\n\x08location\x12" + bytes(length) + name.encode() + b"\x12\x00")
    return file


def test_weights_outside_of_an_onnx_file_come_along(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/one.bin").write_bytes(b"1")
    (tmp_path / "net.onnx.old").touch()
    file = onnx_with_weights(tmp_path, "parts/one.bin")
    found = inspect_artifact(str(file))
    assert found.files == {"model.onnx": file, "parts/one.bin": tmp_path / "parts/one.bin"}


@pytest.mark.parametrize("length", [127, 128, 200, 255])
def test_weights_with_a_long_name_come_along(tmp_path, length):
    name = "w" * length
    (tmp_path / name).write_bytes(b"1")
    assert inspect_artifact(str(onnx_with_weights(tmp_path, name))).files[name] == tmp_path / name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("one.bin", "it has weights in one.bin, which is not beside it"),
        ("../one.bin", "it names weights outside of its folder: ../one.bin"),
        ("/etc/hostname", "it names weights outside of its folder: /etc/hostname"),
        ("parts/../../FOLDER/parts/one.bin", "it names weights outside of its folder: "),
        ("FOLDER/parts/one.bin", "it names weights outside of its folder: "),
        ("linked.bin", "it names weights outside of its folder: linked.bin"),
        ("linked/one.bin", "it names weights outside of its folder: linked/one.bin"),
    ],
)
def test_weights_that_are_missing_or_elsewhere_are_named(tmp_path, name, says):
    folder = tmp_path / "model"
    for place in (folder / "parts", tmp_path / "elsewhere"):
        place.mkdir(parents=True)
        (place / "one.bin").touch()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "linked.bin").symlink_to("../elsewhere/one.bin")
    name = name.replace("../../FOLDER", "../../model").replace("FOLDER", str(folder))
    file = onnx_with_weights(folder, name)
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        inspect_artifact(str(file))
    hint = "copy that file there, too" if "beside" in says else "export the model again, with all files in one folder"
    assert (refused.value.kind, refused.value.where, refused.value.hint) == ("bad-artifact", str(file), hint)


def test_a_link_to_weights_in_the_same_folder_is_followed(tmp_path):
    (tmp_path / "one.bin").touch()
    (tmp_path / "linked.bin").symlink_to("one.bin")
    found = inspect_artifact(str(onnx_with_weights(tmp_path, "./linked.bin")))
    assert found.files["./linked.bin"] == tmp_path / "linked.bin"


def test_a_model_and_its_weights_may_be_links_into_one_folder(tmp_path):
    for name in ("blobs", "snapshot"):
        (tmp_path / name).mkdir()
    (tmp_path / "blobs/1").touch()
    onnx_with_weights(tmp_path / "blobs", "one.bin").rename(tmp_path / "blobs/2")
    for name, blob in (("one.bin", "1"), ("net.onnx", "2")):
        (tmp_path / "snapshot" / name).symlink_to(f"../blobs/{blob}")
    found = inspect_artifact(str(tmp_path / "snapshot/net.onnx"))
    assert found.files["one.bin"] == tmp_path / "snapshot/one.bin"


@pytest.mark.parametrize("name", ["requirements_gpu.txt", "conda.yaml", "setup.py"])
def test_requirements_are_no_trained_model(tmp_path, name):
    (tmp_path / name).write_text("dependencies: [six]\n")
    with pytest.raises(InputError) as refused:
        inspect_artifact(str(tmp_path / name))
    assert refused.value.hint.startswith("requirements belong in the folder of a model; ")

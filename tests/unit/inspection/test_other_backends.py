"""The findings in models of other backends than the Python backend."""

import pytest

from envpack.inspection.repository import inspect_repository
from tests.unit.inspection.findings import kinds


@pytest.mark.parametrize("said", ['platform: "torch_aoti"', 'runtime: "model.py"'])
def test_a_backend_may_have_files_of_other_names(project, release, said):
    (project.repository / "net/1").mkdir(parents=True)
    (project.repository / "net/config.pbtxt").write_text(f'backend: "pytorch" {said}')
    assert kinds(project, release) == []


def test_a_file_that_dvc_keeps_is_fetched_by_dvc(project, release):
    net = project.repository / "net"
    (net / "1").mkdir(parents=True)
    (net / "config.pbtxt").write_text('backend: "onnxruntime"')
    (net / "1/model.onnx.dvc").touch()
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.fix) == ("model-file-missing", f"fetch it: `dvc pull {net}/1/model.onnx.dvc`")
    (net / "1/model.onnx.dvc").rename(net / "1.dvc")
    (net / "1").rmdir()
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.fix) == ("version-missing", f"fetch it: `dvc pull {net}/1.dvc`")


def test_a_model_of_another_backend_has_versions_with_its_file(project, release):
    net = project.repository / "net"
    net.mkdir()
    (net / "config.pbtxt").write_text('backend: "onnxruntime"')
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.fix) == ("version-missing", "put model.onnx in net/1")
    (net / "1").mkdir()
    assert kinds(project, release) == [("error", "model-file-missing")]
    (net / "at_root.onnx").touch()
    (net / "config.pbtxt").write_text(f'backend: "onnxruntime" default_model_filename: "{net}/at_root.onnx"')
    assert kinds(project, release) == [("error", "model-file-missing")], "a server joins the name to the version"
    (net / "config.pbtxt").write_text('backend: "onnxruntime" default_model_filename: "/model.onnx"')
    (net / "1/model.onnx").touch()
    assert kinds(project, release) == []
    (net / "config.pbtxt").write_text('backend: "fastertransformer" default_model_filename: "gpt3_345M"')
    assert kinds(project, release) == [], "nobody knows what it loads"
    (net / "config.pbtxt").unlink()  # the server completes it
    assert kinds(project, release) == []
    (net / "config.pbtxt").write_text('backend: "of_our_own"')
    (net / "1/model.onnx").rename(net / "1/net.bin")
    assert kinds(project, release) == []

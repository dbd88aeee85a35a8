"""What is fetched by the user's own MLflow, and that it is needed for nothing else."""

import subprocess
import sys

import pytest

from envpack.adoption import fetched
from envpack.support.errors import UsageError


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
    code = "import sys, envpack.adoption as a; [getattr(a, name) for name in a.__all__]; print('mlflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

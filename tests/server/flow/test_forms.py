"""The real server loads an environment in each form, made by either packer, with what models do not need left out."""

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.needed_pythons import need

WITH_SCIPY = """
import scipy.linalg  # several packages, so several segments of an archive
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        assert scipy.linalg.det([[2.0]]) == 2.0
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy() * 2)]) for r in requests
        ]
"""
FORMS = [
    ("dir",),
    ("tar.gz",),
    ("tar",),
    ("tar.gz", "--set", "exclude=*.pyc"),
    ("tar.gz", "--set", "include=**"),
    ("tar.gz", "--set", "packer=conda-pack"),
    ("tar", "--set", "packer=conda-pack"),
]


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_the_server_loads_every_form(doubler, envpack_json, form):
    python = find_release(DEFAULT_RELEASE).python
    need(python)
    (doubler / "1/model.py").write_text(WITH_SCIPY)
    (doubler / "requirements.txt").write_text("numpy<2\nscipy\n")
    words = ("--python", python, "--repository", doubler.parent)
    code, document = envpack_json("build", "doubler", "--format", *form, *words)
    assert code == 0, document
    (built,) = document["models"]
    if "packer=conda-pack" not in form:  # which changes bin/activate, so that it is not as it was built
        assert envpack_json("inspect", built["environment"], "--strict", "--triton", DEFAULT_RELEASE)[0] == 0

    code, document = envpack_json("verify", "--repository", doubler.parent)
    assert code == 0, document

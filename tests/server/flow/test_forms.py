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
    strict = () if "packer=conda-pack" in form else ("--strict",)  # that has no list of the files, which it changes
    code, document = envpack_json("inspect", built["environment"], *strict, "--triton", DEFAULT_RELEASE)
    assert code == 0, document

    code, document = envpack_json("verify", "--repository", doubler.parent)
    assert code == 0, document


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["repository", "elsewhere"])
def test_a_path_leads_back_from_the_link_to_a_model(required, envpack_json, tmp_path, place):
    """The server does not look beside the folder that the link names; neither do the checks, before and after."""
    python = find_release(DEFAULT_RELEASE).python
    need(python)
    repository, real = required.parent, tmp_path / "elsewhere/real"
    assert envpack_json("build", "--python", python, "--repository", repository)[0] == 0
    real.parent.mkdir()
    required.rename(real)
    required.symlink_to(real)
    name = f"python{python}"
    (tmp_path / place / "other").mkdir()
    (real / name).rename(tmp_path / place / "other" / name)
    config = (real / "config.pbtxt").read_text()
    (real / "config.pbtxt").write_text(config.replace("DIRECTORY/", "DIRECTORY/../other/"))
    code, document = envpack_json("verify", "doubler", "--repository", repository)
    assert code == (0 if place == "repository" else 1), document
    assert envpack_json("inspect", "doubler", "--repository", repository)[0] == code

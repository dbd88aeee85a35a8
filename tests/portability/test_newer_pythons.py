"""envpack itself runs in Debian's testing release, whose Pythons this machine is too old for.

It builds an environment with Debian's interpreter, takes the stub from triton-envpack-stubs and verifies the model on
the real server, which runs there too. tests/server/stub runs all of its tests on these Pythons.
"""

import hashlib
import json
import runpy
import sys

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.stub.build import build_stub
from envpack.stub.prebuilt import COMPRESSED, MANIFEST, PACKAGE, manifest
from envpack.stub.recipe import Cell
from envpack.support import zstd
from tests.cache import kept_cache
from tests.newer_pythons import CHECKOUT, PYTHONS, newer_root
from tests.portability.machinery import program

MODEL = """
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = [np.array([sys.version.encode()], dtype=object) for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", answer)]) for answer in answers]
"""
CONFIG = """
backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_STRING, dims: [ 1 ] } ]
"""
# The command line, with a release whose image has the C library of the root: no real one is as new.
RUN = """
import dataclasses, os, sys
from envpack.cli.main import run
from envpack.settings.releases import all_releases
from envpack.settings.table import DEFAULT_RELEASE
if sys.argv[1] == "newer":
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    all_releases()[DEFAULT_RELEASE] = dataclasses.replace(all_releases()[DEFAULT_RELEASE], glibc=glibc)
sys.exit(run([*sys.argv[2:], "--json"]))
"""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "repository/model"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(MODEL)
    (folder / "config.pbtxt").write_text(CONFIG)
    return folder


@pytest.fixture
def envpack(tmp_path):
    """Runs one command in the root, for an image as new as the root or the real one; returns exit code and document."""

    def run(image, *arguments):
        variables = {"ENVPACK_CACHE_DIR": str(kept_cache() / "newer-pythons"), "PYTHONPATH": str(tmp_path / "prebuilt")}
        done = newer_root().run(sys.executable, "-c", RUN, image, *map(str, arguments), **variables)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def prebuilt(python, tmp_path):
    """The package triton-envpack-stubs with the stub of this Python."""
    stub = build_stub(Cell(newer_root().target(python)), cache=kept_cache() / "stubs")
    folder = tmp_path / "prebuilt" / PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    name, content = f"cp{python.replace('.', '')}-{stub.facts.machine}", stub.path.read_bytes()
    (folder / f"{name}{COMPRESSED}").write_bytes(zstd.compress(content))
    facts = {"python": python, "machine": stub.facts.machine, "glibc": stub.facts.glibc}
    (folder / MANIFEST).write_text(manifest({name: {**facts, "sha256": hashlib.sha256(content).hexdigest()}}))


@pytest.mark.usefixtures("prebuilt")
@pytest.mark.parametrize("python", PYTHONS)
def test_a_model_is_built_and_verified_on_the_real_server(python, model, envpack):
    code, document = envpack("newer", "build", "model", "--python", python, "--repository", model.parent)
    assert code == 0, document
    (built,) = document["models"]
    assert built["python"].startswith(f"{python}.")

    code, document = envpack("newer", "verify", "--repository", model.parent)
    assert code == 0, document


@pytest.mark.parametrize("python", PYTHONS[:1])
def test_an_interpreter_that_is_too_new_for_the_image_is_refused(python, model, envpack):
    code, document = envpack("real", "build", "model", "--python", python, "--repository", model.parent)
    assert code == 4, document
    image = find_release(DEFAULT_RELEASE).glibc
    assert document["error"]["kind"] == "glibc-too-old"
    assert f"/python{python} has symbols of glibc 2." in document["error"]["message"]
    assert f"(the target has {image})" in document["error"]["message"]


def test_stubs_are_compiled_in_advance_against_the_packages_of_debian(tmp_path, monkeypatch):
    """The script that builds triton-envpack-stubs needs no interpreter that runs here."""
    machine = "aarch64"
    program("mmdebstrap", "mmdebstrap")
    monkeypatch.syspath_prepend(CHECKOUT / "ci")
    script = runpy.run_path(str(CHECKOUT / "ci/build-prebuilt"))
    (target,) = script["targets"](PYTHONS[-1:], [], machine, tmp_path)
    assert (target.minor, target.machine) == (PYTHONS[-1], machine)
    assert f"{machine}-linux-gnu" in str(target.configuration)

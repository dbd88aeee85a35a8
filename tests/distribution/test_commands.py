"""The installed commands build, make stubs and verify, with no checkout and no compiler around."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.server.launch import find_server
from envpack.support.errors import ServerError
from tests.distribution.conftest import run
from tests.server.flow.conftest import CONFIG, MODEL

CHECKOUT = Path(__file__).parents[2]
STUB = "triton_python_backend_stub"


@pytest.fixture
def repository(tmp_path):
    """A model repository with one model that needs NumPy."""
    model = tmp_path / "models/doubler"
    (model / "1").mkdir(parents=True)
    (model / "1/model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(CONFIG)
    (model / "requirements.txt").write_text("numpy\n")
    return model.parent


@pytest.fixture
def without_compiler(variables, tmp_path):
    """Variables with a PATH on which there is no compiler, only what interpreters are found by."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "env", "uname", "ldd"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    return variables | {"PATH": str(tools)}


def stub_of(envpack, python, folder, variables, *options):
    """What `envpack stub` reports in an empty folder, with a cache of its own."""
    folder.mkdir()
    own = {"ENVPACK_CACHE_DIR": str(folder / "cache")}
    command = [envpack, "stub", "--python", python, "--output", folder, "--json", *options]
    done = subprocess.run(command, cwd=folder, env=variables | own, capture_output=True, text=True, check=False)
    return done, json.loads(done.stdout)


def test_build_stub_and_verify(installed, python, repository, variables, tmp_path):
    try:
        server = find_server().executable
    except ServerError as error:
        pytest.skip(str(error))
    envpack = installed / "envpack"
    run(envpack, "build", "--python", python, "doubler", cwd=repository, env=variables)
    (tmp_path / "stub").mkdir()
    run(envpack, "stub", "--python", python, "--output", tmp_path / "stub", cwd=repository, env=variables)
    assert (tmp_path / "stub" / STUB).is_file()
    command = [envpack, "verify", "--runtime", "process", "--server", server, "--json"]
    verdict = json.loads(run(*command, cwd=repository, env=variables))["verdict"]
    assert verdict["ok"]
    assert [(model["name"], model["ok"]) for model in verdict["models"]] == [("doubler", True)]


@pytest.mark.thorough
def test_the_lowest_versions_that_it_requires_are_enough(dist, python, repository, variables, tmp_path):
    """Other packages in the same Python environment may exclude newer versions."""
    venv, uv = tmp_path / "venv", Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", sys.executable, venv)
    install = [uv, "pip", "install", "--quiet", "--python", venv / "bin/python", "--find-links", dist]
    run(*install, "--resolution", "lowest-direct", "triton-envpack[dask,oci,sign,store]")
    envpack = venv / "bin/envpack"
    run(envpack, "build", "--python", python, "--on", "local:1", cwd=repository, env=variables)
    run(envpack, "inspect", cwd=repository, env=variables)
    run(envpack, "publish", (tmp_path / "published").as_uri(), cwd=repository, env=variables)
    assert "usage: envpack verify" in run(envpack, "verify", "--help", env=variables).lower()
    run(envpack, "cache", "ls", "--json", env=variables)


def test_recipes_and_templates_come_with_it(installed, variables, tmp_path):
    """The same files as in the checkout."""
    run(installed / "envpack", "init", "--recipe", "router", tmp_path / "router", env=variables)
    for file in (CHECKOUT / "recipes/router").rglob("*"):
        if file.is_file() and file.suffix != ".pyc":
            assert (
                tmp_path / "router" / file.relative_to(CHECKOUT / "recipes/router")
            ).read_bytes() == file.read_bytes()
    run(installed / "envpack", "init", "--template", "bls", tmp_path / "models/first", env=variables)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["first", "first_doubler"]


def test_a_compiled_stub_is_used_without_a_compiler(installed, python, without_compiler, tmp_path):
    done, document = stub_of(installed / "envpack", python, tmp_path / "empty", without_compiler)
    assert done.returncode == 0, done.stderr
    assert document["compiled"] is False
    trial = subprocess.run([tmp_path / "empty" / STUB], env={}, capture_output=True, check=False)
    assert (trial.returncode, trial.stdout, trial.stderr) == (1, b"", b"")


def test_what_must_be_compiled_names_the_extra_in_one_line(installed, python, without_compiler, tmp_path):
    compiler = tmp_path / "tools/c++"
    compiler.write_text("#!/bin/sh\necho compiler 1.0\n")
    compiler.chmod(0o755)
    options = ["--triton", "24.10", "--toolchain", "system"]
    done, document = stub_of(installed / "envpack", python, tmp_path / "empty", without_compiler, *options)
    assert done.returncode == 5
    assert document["error"]["kind"] == "extra-missing"
    assert document["error"]["hint"] == f"{installed / 'python'} -m pip install 'triton-envpack[compile]'"


def test_a_damaged_package_of_stubs_is_not_used(dist, installed, python, without_compiler, tmp_path):
    packages = tmp_path / "packages"
    (wheel,) = dist.glob("triton_envpack_stubs-*.whl")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, wheel)
    name = f"cp{python.replace('.', '')}-{os.uname().machine}"
    file = packages / f"triton_envpack_stubs/{name}.zst"
    file.write_bytes(file.read_bytes()[:-1])
    done, document = stub_of(
        installed / "envpack", python, tmp_path / "empty", without_compiler | {"PYTHONPATH": str(packages)}
    )
    assert document["error"]["kind"] == "no-compiler"
    assert f"triton-envpack-stubs is not used: {name} is damaged or missing" in done.stderr


def test_the_extra_compiles_with_no_checkout_around(dist, python, variables, tmp_path):
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler on this machine")
    venv, uv = tmp_path / "venv", Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", sys.executable, venv)
    install = [uv, "pip", "install", "--quiet", "--python", venv / "bin/python", "--find-links", dist]
    run(*install, "--resolution", "lowest-direct", "triton-envpack[compile]")  # the newest are those of the checkout
    options = ["--triton", "24.10", "--toolchain", "system"]
    done, document = stub_of(venv / "bin/envpack", python, tmp_path / "empty", variables, *options)
    assert done.returncode == 0, done.stderr
    assert document["compiled"] is True


class TestToolInstallers:
    """`uv tool` and pipx: the commands work, and hints are commands of the tool."""

    def check(self, envpack, command, python, variables, folder):
        done, document = stub_of(envpack, python, folder, variables)
        assert done.returncode == 0, done.stderr
        assert document["compiled"] is False
        checks = json.loads(run(envpack, "doctor", "--json", cwd=folder, env=variables))["checks"]
        fixes = {check["name"]: check["fix"] for check in checks}
        assert fixes["zig"] == f"{command} 'triton-envpack[zig]'"
        assert not any("-m pip" in fix for fix in fixes.values())

    def test_uv_tool(self, dist, python, variables, tmp_path):
        own = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
        uv = Path(sys.executable).with_name("uv")
        command = [uv, "tool", "install", "--quiet", "--python", sys.executable, "--find-links", dist]
        run(*command, "triton-envpack", env=os.environ | own)
        self.check(tmp_path / "bin/envpack", "uv tool install", python, variables, tmp_path / "empty")

    def test_pipx(self, dist, python, variables, tmp_path):
        own = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
        own["PIPX_MAN_DIR"] = str(tmp_path / "man")
        pipx = [sys.executable, "-m", "pipx", "install", "--python", sys.executable, "--quiet"]
        run(*pipx, f"--pip-args=--find-links={dist}", "triton-envpack", env=os.environ | own)
        assert (tmp_path / "man/man1/envpack.1").exists()
        self.check(tmp_path / "bin/envpack", "pipx install --force", python, variables, tmp_path / "empty")

"""What is installed from a wheel works alone: envpack with no checkout around it, and stubs that come compiled."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.pythons import available_interpreters
from envpack.support.isolation import clean_environment

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def python():
    minors = [found.minor for found in available_interpreters() if found.library is not None]
    return minors[-1] if minors else pytest.skip("no interpreter with a shared libpython on this machine")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, CHECKOUT)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new virtual environment with the wheel, and what it depends on, alone."""
    folder = tmp_path_factory.mktemp("venv") / "venv"
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", sys.executable, folder)
    run(uv, "pip", "install", "--quiet", "--python", folder / "bin/python", wheel)
    return folder / "bin"


def ask_for_stub(installed, python, folder, *options, **variables):
    """What `envpack stub` says in an empty folder, with a cache of its own."""
    folder.mkdir()
    own = {"ENVPACK_CACHE_DIR": str(folder / "cache"), **variables}
    command = [installed / "envpack", "stub", "--python", python, "--output", folder, "--json", *options]
    return json.loads(run(*command, cwd=folder, env=clean_environment() | own))


def test_it_is_pure_and_small(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < 2e6


def test_a_stub_is_compiled_with_no_checkout_around(installed, python, tmp_path):
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler on this machine")
    said = ask_for_stub(installed, python, tmp_path / "empty", "--triton", "24.10", "--toolchain", "system")
    assert said["facts"]["python"] == python
    trial = subprocess.run([tmp_path / "empty/triton_python_backend_stub"], env={}, capture_output=True, check=False)
    assert (trial.returncode, trial.stdout, trial.stderr) == (1, b"", b"")


@pytest.fixture(scope="module")
def prebuilt(python, tmp_path_factory):
    """The wheel with stubs for one Python."""
    folder = tmp_path_factory.mktemp("prebuilt")
    run(sys.executable, CHECKOUT / "ci/build-prebuilt", "--output", folder, "--python", python)
    (made,) = folder.glob("*.whl")
    return made


def test_a_prebuilt_stub_is_taken_where_nothing_can_be_compiled(installed, prebuilt, python, tmp_path):
    assert prebuilt.name.endswith(f"-py3-none-manylinux_2_28_{os.uname().machine}.whl")
    packages = tmp_path / "packages"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, prebuilt)
    name = f"cp{python.replace('.', '')}-{os.uname().machine}"
    said = ask_for_stub(
        installed, python, tmp_path / "empty", PYTHONPATH=str(packages), PATH=str(tmp_path / "no-compiler")
    )
    assert said["compiled"] is False
    placed = (tmp_path / "empty/triton_python_backend_stub").read_bytes()
    assert placed == (packages / "envpack_stubs" / name).read_bytes()
    assert not (tmp_path / "empty/cache/stubs").exists()

    (packages / "envpack_stubs" / name).write_bytes(placed[:-1] + b"x")
    refused = subprocess.run(
        [installed / "envpack", "stub", "--python", python, "--output", tmp_path / "empty"],
        env=clean_environment() | {"PYTHONPATH": str(packages), "PATH": str(tmp_path / "no-compiler")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0  # there is no compiler to make another
    assert f"envpack-stubs is not used: {name} is damaged or missing" in refused.stdout + refused.stderr
    assert "no C++ compiler" in refused.stdout + refused.stderr

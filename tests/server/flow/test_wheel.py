"""What users install is the wheel, so the wheel must hold all that the commands need."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

CHECKOUT = Path(__file__).parents[3]


def test_the_wheel_holds_the_stub_sources_the_recipes_and_the_data(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, CHECKOUT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extract("envpack/_source/examples.zip", tmp_path)
    assert {"envpack/releases.toml", "envpack/py.typed"} <= names
    assert {"envpack/_source/CMakeLists.txt", "envpack/_source/envpack/releases.toml"} <= names
    assert {f"{module}_python_backend_utils-stubs/__init__.pyi" for module in ("c", "triton")} <= names
    assert {f"envpack/_source/{name}" for name in tracked("stub_src")} <= names
    with zipfile.ZipFile(tmp_path / "envpack/_source/examples.zip") as examples:
        assert set(examples.namelist()) >= tracked("recipes", "templates")


def tracked(*folders):
    listed = subprocess.run(["git", "ls-files", *folders], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return set(listed.stdout.split())

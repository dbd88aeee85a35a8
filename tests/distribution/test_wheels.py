"""What the wheels hold and require, and how much they install."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement

from envpack import __version__
from tests.distribution.conftest import CHECKOUT, run

MOST_MEGABYTES = 160


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def stubs_required(wheel):
    found = map(Requirement, metadata(wheel).get_all("Requires-Dist"))
    return [requirement for requirement in found if requirement.name == "triton-envpack-stubs"]


def test_an_sdist_and_a_wheel_for_each_distribution_are_built(dist):
    names = {file.name for file in dist.iterdir()}
    assert names == {
        f"triton_envpack-{__version__}.tar.gz",
        f"triton_envpack-{__version__}-py3-none-any.whl",
        f"triton_envpack_stubs-{__version__}-py3-none-manylinux_2_28_{os.uname().machine}.whl",
    }


def test_the_published_wheel_requires_the_stubs_of_its_version(dist):
    (wheel,) = dist.glob("triton_envpack-*.whl")
    (requirement,) = stubs_required(wheel)
    assert str(requirement.specifier) == f"=={__version__}"
    for machine, needed in (("x86_64", True), ("aarch64", True), ("ppc64le", False)):
        assert requirement.marker.evaluate({"sys_platform": "linux", "platform_machine": machine}) == needed


def test_a_checkout_does_not_require_the_stubs(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, CHECKOUT)
    (wheel,) = tmp_path.glob("*.whl")
    assert stubs_required(wheel) == []


def test_the_wheel_brings_the_pytest_plugin(dist):
    (wheel,) = dist.glob("triton_envpack-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        assert "[pytest11]\nenvpack = envpack.testing.plugin\n" in archive.read(name).decode()


def test_the_wheel_is_small(dist):
    (wheel,) = dist.glob("triton_envpack-*.whl")
    assert wheel.stat().st_size < 2e6


def test_the_sdist_has_what_the_wheel_is_built_from(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {Path(name).relative_to(f"triton_envpack-{__version__}") for name in archive.getnames()}
    assert {Path("pyproject.toml"), Path("CMakeLists.txt"), Path("stub_src/main.cc"), Path("LICENSE")} <= names


def test_an_installation_takes_160_mb_at_most(installed):
    """In a fresh virtual environment, without pip and setuptools, which come with that; byte code is counted."""
    own = [f"--exclude={name}" for name in ("pip", "pip-*", "setuptools", "setuptools-*")]
    command = ["du", "-sm", *own, installed.parent]
    megabytes = int(run(*command).split()[0])
    assert megabytes <= MOST_MEGABYTES


def test_an_installation_has_no_numpy_no_cmake_and_no_boost(installed):
    listed = run(installed / "python", "-m", "pip", "list", "--disable-pip-version-check").lower()
    optional = ("ninja", "libboost", "ziglang", "obstore", "cryptography")
    for name in ("numpy", "tritonclient", "cmake", *optional):
        assert name not in listed
    assert "triton-envpack-stubs" in listed


def test_the_manual_pages_are_installed(installed):
    assert (installed.parent / "share/man/man1/envpack-build.1").is_file()
    assert "envpack-build" in (installed.parent / "share/man/man1/envpack.1").read_text().replace("\\", "")


def test_no_command_installs_the_other_project_of_the_public_index():
    """`envpack` on the public index is not this project."""
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    wrong = [
        f"{name}: {line.strip()}"
        for name in listed.stdout.split()
        if name.endswith((".py", ".md", ".yml", ".yaml", ".toml", ".sh", ".jinja")) and not name.startswith("tests/")
        for line in (CHECKOUT / name).read_text(encoding="utf-8").splitlines()
        if any(f"{word} envpack" in line for word in ("pip install", "tool install", "pipx install", "uvx"))
    ]
    assert wrong == []

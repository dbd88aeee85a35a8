"""The sources and the headers of other packages decide whether a cached stub is still the right one."""

import os
import shutil
from pathlib import Path

import pytest

from envpack.stub import recipe as recipes
from envpack.stub.recipe import Recipe, source_digest, source_folder
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import Toolchain

VERSIONS = {"pybind11": "include/pybind11/detail/common.h", "libboost_headers": "include/boost/version.hpp"}


def test_any_change_of_any_source_changes_the_digest(tmp_path):
    original = source_folder()
    shutil.copytree(original / "stub_src", tmp_path / "stub_src")
    shutil.copy(original / "CMakeLists.txt", tmp_path)
    assert source_digest(tmp_path) == source_digest(original)
    with (tmp_path / "stub_src/abi/records_24_10.h").open("a") as file:
        file.write("\n")
    assert source_digest(tmp_path) != source_digest(original)


def test_a_change_of_the_documentation_does_not(tmp_path):
    original = source_folder()
    shutil.copytree(original / "stub_src", tmp_path / "stub_src")
    shutil.copy(original / "CMakeLists.txt", tmp_path)
    with (tmp_path / "stub_src/README.md").open("a") as file:
        file.write("One more sentence.\n")
    assert source_digest(tmp_path) == source_digest(original)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe with headers that a test may change."""
    for name, header in VERSIONS.items():
        (tmp_path / name / header).parent.mkdir(parents=True)
        shutil.copy(recipes.required_package_folder(name, name) / header, tmp_path / name / header)
    monkeypatch.setattr(recipes, "required_package_folder", lambda name, _: tmp_path / name)
    target = StubTarget("3.10", "x86_64", Path("include"), Path("libpython3.10.so.1.0"))
    return Recipe(target, None, Toolchain("system", ("c++",), "c++ 1.2", "x86_64"), source_folder())


@pytest.mark.parametrize("package", VERSIONS)
def test_other_headers_need_another_stub_and_the_same_ones_installed_again_do_not(recipe, package, tmp_path):
    before = recipe.common_entry
    os.utime(tmp_path / package, (0, 0))
    assert recipe.common_entry == before
    with (tmp_path / package / VERSIONS[package]).open("a") as header:
        header.write("#define MICRO_VERSION 1\n")
    assert recipe.common_entry != before

"""The sources and the headers of other packages decide whether a cached stub is still the right one."""

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from envpack.stub import recipe as recipes
from envpack.stub.recipe import Cell, Recipe, source_digest, source_folder
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import BOOST_VERSION, PYBIND11_VERSION, Toolchain


@pytest.fixture
def sources(tmp_path):
    """A copy of the sources."""
    shutil.copytree(source_folder() / "stub_src", tmp_path / "stub_src")
    (tmp_path / "envpack").mkdir()
    for name in ("CMakeLists.txt", "envpack/releases.toml"):
        shutil.copy(source_folder() / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "CMakeLists.txt",
        "envpack/releases.toml",
        "stub_src/abi/headers.cmake",
        "stub_src/abi/layouts.txt",
        "stub_src/abi/new.h",
    ],
)
def test_any_change_of_any_source_changes_the_digest(sources, name):
    assert source_digest(sources) == source_digest(source_folder())
    with (sources / name).open("a") as file:
        file.write("\n")
    assert source_digest(sources) != source_digest(source_folder())


def test_a_change_of_the_documentation_does_not(sources):
    with (sources / "stub_src/README.md").open("a") as file:
        file.write("One more sentence.\n")
    assert source_digest(sources) == source_digest(source_folder())


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe with headers that a test may change."""
    for header in (BOOST_VERSION, PYBIND11_VERSION, "include/pyconfig.h"):
        (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / header).write_text("#define VERSION 1\n")
    monkeypatch.setattr(recipes, "boost_folder", lambda: tmp_path)
    monkeypatch.setattr(recipes, "pybind11_folder", lambda minor: tmp_path)
    target = StubTarget("3.10", "x86_64", tmp_path / "include", Path("libpython3.10.so.1.0"))
    return Recipe(Cell(target), Toolchain("system", ("c++",), "c++ 1.2", "x86_64"), source_folder())


@pytest.mark.parametrize(("header", "is_shared"), [(BOOST_VERSION, True), (PYBIND11_VERSION, False)])
def test_other_headers_need_another_stub_and_the_same_ones_installed_again_do_not(recipe, header, is_shared, tmp_path):
    """What all Pythons share needs no pybind11, which differs between them."""
    before, shared = recipe.entry, recipe.common_entry
    os.utime(tmp_path / header, (0, 0))
    assert (recipe.entry, recipe.common_entry) == (before, shared)
    (tmp_path / header).write_text("#define VERSION 2\n")
    assert recipe.entry != before
    assert (recipe.common_entry != shared) == is_shared


def test_machines_that_share_a_cache_share_no_compiled_parts(recipe):
    other = dataclasses.replace(recipe, tools=dataclasses.replace(recipe.tools, machine="aarch64"))
    assert other.common_entry != recipe.common_entry

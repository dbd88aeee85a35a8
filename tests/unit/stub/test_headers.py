"""Each Python has one version of pybind11, which must be the installed one."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from envpack.conda.supported import PYBIND11, SUPPORTED, pybind11_for
from envpack.stub.headers import PYBIND11_VERSION, header_folders, pybind11_folder
from envpack.support.errors import StubError
from envpack.support.installation import install_command

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEADER = "pybind11/include/pybind11/detail/common.h"


class Installed:
    """A package with one header, as `importlib.metadata` describes it."""

    def __init__(self, version, *files):
        self.version = version
        self.files = [importlib.metadata.PackagePath(file) for file in files]
        for file in self.files:
            file.dist = self

    def locate_file(self, file):
        return Path("/prefix/lib/python3.11/site-packages") / file


@pytest.fixture
def installed(monkeypatch):
    """Lets packages be installed, by name."""

    def install(packages):
        def find(name):
            if name not in packages:
                raise importlib.metadata.PackageNotFoundError(name)
            return packages[name]

        monkeypatch.setattr(importlib.metadata, "distribution", find)

    return install


def test_each_python_has_one_pybind11_and_each_pybind11_its_reason():
    assert len(SUPPORTED) == len(set(SUPPORTED))
    assert sorted(SUPPORTED, key=lambda minor: int(minor.removeprefix("3."))) == list(SUPPORTED)
    for pybind11 in PYBIND11:
        assert pybind11.reason
        assert {pybind11_for(minor) for minor in pybind11.pythons} == {pybind11}


def test_the_extra_installs_every_one_and_nothing_else_does():
    required = [text for text in PROJECT["optional-dependencies"]["compile"] if text.startswith("pybind11")]
    assert required == [pybind11.requirement for pybind11 in PYBIND11]
    assert not [text for text in PROJECT["dependencies"] if text.startswith("pybind11")]


@pytest.mark.parametrize("minor", SUPPORTED)
def test_the_headers_of_a_python_have_the_version_of_the_table(minor):
    folder = pybind11_folder(minor)
    lines = (folder / PYBIND11_VERSION).read_text().splitlines()
    parts = [line.split()[2] for line in lines if line.startswith("#define PYBIND11_VERSION_M")]
    assert parts[:2] == pybind11_for(minor).version.split(".")[:2]
    assert (folder / "include/pybind11/embed.h").is_file()
    assert folder in header_folders(minor)


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        (HEADER, "/prefix/lib/python3.11/site-packages/pybind11"),
        ("../../../include/pybind11/detail/common.h", "/prefix"),
    ],
)
def test_headers_are_found_in_a_package_and_in_a_prefix(installed, file, folder):
    elsewhere = "../../../include/site/python3.11/pybind11-global/pybind11/detail/common.h"
    installed({"pybind11": Installed("2.12.1", elsewhere, file)})
    assert pybind11_folder("3.8") == Path(folder)


@pytest.mark.parametrize(
    "packages",
    [
        {},
        {"pybind11": Installed("3.1.0", HEADER)},
        {"pybind11": Installed("2.12.1")},
    ],
    ids=["missing", "another version", "no headers"],
)
def test_another_pybind11_is_refused_with_the_required_one(installed, packages):
    installed(packages)
    with pytest.raises(StubError) as caught:
        pybind11_folder("3.8")
    assert caught.value.kind == "extra-missing"
    assert caught.value.message == (
        "compiling a stub needs the Python package pybind11==2.12.1, which is not installed"
    )
    assert caught.value.hint == install_command("compile")

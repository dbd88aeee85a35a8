"""CMake compiles a stub with the version of pybind11 that its Python requires, or not at all."""

import pytest

from envpack.settings.pythons import pybind11_for
from envpack.stub.build import BuildTree
from envpack.stub.recipe import source_folder
from envpack.stub.toolchain import find_toolchain, header_folders
from envpack.support.errors import StubError
from tests.compiled import MINOR


@pytest.fixture
def configure(tmp_path, target):
    """Configures a stub that requires a version of pybind11."""

    def with_version(version):
        definitions = {
            "CMAKE_PREFIX_PATH": ";".join(map(str, header_folders(MINOR))),
            "Python_INCLUDE_DIR": str(target.include),
            "Python_LIBRARY": str(target.library),
            "ENVPACK_RELEASES": "24.10",
            "ENVPACK_PYBIND11": version,
        }
        BuildTree(tmp_path / "build", source_folder(), find_toolchain()).configure(definitions)
        return tmp_path / "build/stub_src/headers"

    return with_version


def test_the_stub_includes_pybind11_and_nothing_else_of_its_folder(configure):
    headers = configure(pybind11_for(MINOR).version)
    assert [entry.name for entry in headers.iterdir()] == ["pybind11"]
    assert (headers / "pybind11/embed.h").is_file()


def test_another_version_is_refused(configure):
    with pytest.raises(StubError) as caught:
        configure("9.9.9")
    assert caught.value.kind == "compile-failed"
    assert f"pybind11 {pybind11_for(MINOR).version} was found, and 9.9.9 is required" in caught.value.message

"""Which wires CMake puts into a stub for the releases that it is told."""

import json
import subprocess

import pytest

from envpack.releases import all_releases
from envpack.stub.recipe import source_folder
from envpack.stub.toolchain import find_tool


@pytest.fixture
def configure(tmp_path):
    script = tmp_path / "tell.cmake"
    script.write_text(f'include("{source_folder()}/stub_src/epochs.cmake")\nmessage("[${{ENVPACK_EPOCHS_JSON}}]")\n')

    def run(releases):
        command = [find_tool("cmake"), f"-DENVPACK_RELEASES={releases}", "-P", script]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_a_release_gets_the_wire_that_the_table_of_releases_names(configure):
    for release in all_releases().values():
        assert json.loads(configure(release.name).stderr) == [release.stub_abi]


def test_several_releases_get_their_wires_once_and_in_order(configure):
    assert json.loads(configure("25.01;24.10;24.02;23.04").stderr) == ["23.04", "23.12", "24.10"]


def test_all_releases_get_every_wire(configure):
    every = json.loads(configure("all").stderr)
    assert len(every) == 17
    assert {release.stub_abi for release in all_releases().values()} <= set(every)


def test_a_release_before_the_first_is_refused(configure):
    done = configure("23.03")
    assert done.returncode != 0
    assert "23.03 is no release" in done.stderr

"""The epochs of the stub: which CMake selects, and what it writes of them into release.h."""

import json
import re
import subprocess

import pytest

from envpack.settings.releases import all_abis, all_releases
from envpack.stub.recipe import source_folder
from envpack.stub.toolchain import find_tool
from tests.compiled import write_headers

ABI = source_folder() / "stub_src/abi"


@pytest.fixture
def configure(tmp_path):
    script = tmp_path / "epochs.cmake"
    script.write_text(
        "function(select ENVPACK_RELEASES)\n"
        f'include("{source_folder()}/stub_src/epochs.cmake")\n'
        'message("{\\"epochs\\": [${ENVPACK_EPOCHS_JSON}], \\"wires\\": \\"${ENVPACK_WIRE_EPOCHS}\\"}")\n'
        "endfunction()\n"
        "foreach(number RANGE 4 ${CMAKE_ARGC})\n"
        'if(DEFINED CMAKE_ARGV${number})\nselect("${CMAKE_ARGV${number}}")\nendif()\nendforeach()\n'
    )

    def run(*selections):
        """One program for all: each selection gives a line."""
        command = [find_tool("cmake"), "-P", script, "--", *selections]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def epochs(done):
    return json.loads(done.stderr)["epochs"]


def wires(done):
    return json.loads(done.stderr)["wires"].split(";")


@pytest.fixture
def headers(tmp_path):
    """The headers that CMake makes, by name."""
    write_headers(tmp_path, source_folder())
    return {file.stem: file.read_text(encoding="utf-8") for file in (tmp_path / "abi").iterdir()}


def numbers(headers, array):
    """The numbers of an array in release.h."""
    found = re.search(rf"{array}\[\] = {{([^}}]*)}}", headers["release"])
    return [int(epoch) for epoch in re.findall(r"\d{4}", found[1])]


def number(release):
    return int(release.replace(".", ""))


def test_a_release_gets_the_epoch_of_the_table_of_releases(configure):
    releases = all_releases().values()
    found = configure(*(release.name for release in releases)).stderr.splitlines()
    assert [json.loads(line)["epochs"] for line in found] == [[release.stub_abi] for release in releases]


def test_several_releases_get_their_epochs_once_and_in_order(configure):
    assert epochs(configure("25.01;24.10;24.02;23.04")) == ["23.04", "23.12", "24.10"]


def test_all_releases_get_every_epoch(configure):
    assert epochs(configure("all")) == list(all_abis())


def test_epochs_that_differ_in_numbers_only_share_a_wire(configure):
    assert wires(configure("23.06;23.07")) == ["2306"]
    assert wires(configure("23.10")) == ["2309"]
    assert wires(configure("25.04;26.03")) == ["2504"]
    assert len(wires(configure("all"))) < len(all_abis())


@pytest.mark.parametrize("release", ["23.03", "24", "24.1"])
def test_a_release_that_is_not_supported_is_rejected(configure, release):
    done = configure(release)
    assert done.returncode == 1
    assert f"ENVPACK_RELEASES: the stub does not support release {release}\n" in done.stderr


def test_release_h_knows_the_releases_and_epochs_of_the_table_of_releases(headers):
    known = {int(release): server for release, server in re.findall(r'\{(\d{4}), "([\d.]+)"\}', headers["release"])}
    assert known == {number(release.name): release.server for release in all_releases().values()}
    assert numbers(headers, "kEpochs") == [number(abi) for abi in all_abis()]


def test_wire_epochs_are_those_with_a_trait_or_another_layout(headers):
    """And nothing else compares epochs, so two epochs without a difference between them have the same code."""
    traits = (ABI / "traits.h").read_text(encoding="utf-8")
    named = {int(epoch) for epoch in re.findall(r"release (?:>=|<) (\d{4})", traits)}
    layouts = {int(epoch) for epoch in re.findall(r"kEpoch >= (\d{4})", headers["records"])}
    assert numbers(headers, "kWireEpochs") == sorted(named | layouts | {numbers(headers, "kEpochs")[0]})
    sources = [file for room in (ABI, ABI.parent / "front") for file in room.rglob("*") if file.is_file()]
    assert ABI / "traits.h" in sources
    for file in sources:
        text = file.read_text(encoding="utf-8")
        if file.name != "traits.h":
            assert not re.search(r"\b(?:kEpoch|release_?)\s*(?:[<>]=?|[=!]=)\s*[1-9]|\(kEpoch\) [<>=]", text), file.name

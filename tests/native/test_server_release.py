"""Where the stub looks for the server's release, and when it refuses: a wrong one would crash the server.

A stub that knows the release goes on to open its region, which does not exist here; one that refuses has not even
tried. Which release it took shows by a command line that cannot be that release's.
"""

import os
import shutil
import subprocess
import uuid

import pytest

from envpack.stub import STUB_NAME

EXPLICIT = "ENVPACK_TRITON_RELEASE"
GOES_ON = "cannot open shared memory region"


class Launched:
    """A stub in a folder of its own, below a server's folder."""

    def __init__(self, stub, folder):
        self.server = folder / "server"
        self.backend = self.server / "backends/python"
        self.backend.mkdir(parents=True)
        (folder / "model").mkdir()
        self.stub = shutil.copy(stub, folder / "model" / STUB_NAME)
        self.sidecar = folder / "model" / f"{STUB_NAME}.release"

    def says(self, *, region="", last=("DEFAULT",), warns=False, **variables):
        region = region or f"envpack_none_{uuid.uuid4()}"
        arguments = ["/m/1/model.py", region, "1048576", "1048576", str(os.getpid()), self.backend, "336", "m_0", *last]
        done = subprocess.run(
            [self.stub, *arguments], env=variables, capture_output=True, text=True, check=False, timeout=20
        )
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.startswith("envpack stub: ")
        assert done.stderr.count("\n") == 1 + warns
        return done.stderr

    def takes(self, **variables):
        """The release that the stub takes the server to be of, and the place that said so."""
        said = self.says(region="envpack_none_1" if self._is_late(**variables) else f"none_{uuid.uuid4()}", **variables)
        place, _, rest = said.removeprefix("envpack stub: ").partition(" says Triton ")
        assert "but the server that started this stub is another one: its regions are named like" in rest
        return place, rest.partition(",")[0]

    def _is_late(self, **variables):
        return GOES_ON in self.says(**variables)


@pytest.fixture
def launched(stub, tmp_path):
    return Launched(stub, tmp_path)


def write(path, text):
    path.write_text(text)
    return path


def test_without_any_source_it_refuses(launched):
    said = launched.says()
    assert "nothing says which Triton release the server is of" in said
    assert EXPLICIT in said
    assert str(launched.sidecar) in said


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        (EXPLICIT, "24.10", "24.10"),
        (EXPLICIT, "23.04", "23.04"),
        ("NVIDIA_TRITON_SERVER_VERSION", "25.07", "25.07"),
        ("NVIDIA_TRITON_SERVER_VERSION", "24.06-py3", "24.06-py3 (24.06)"),
        ("TRITON_SERVER_VERSION", "2.51.0", "2.51.0 (24.10)"),
        ("TRITON_SERVER_VERSION", "2.59.1", "2.59.1 (25.07)"),
        ("TRITON_SERVER_VERSION", "2.44.0dev", "2.44.0dev (24.03)"),
    ],
)
def test_a_variable_alone_is_enough(launched, name, value, taken):
    last = () if taken == "23.04" else ("DEFAULT",)
    assert launched.takes(last=last, **{name: value}) == (name, taken)


def test_the_file_beside_the_stub_alone_is_enough(launched):
    write(launched.sidecar, "24.08\n")
    assert launched.takes() == (str(launched.sidecar), "24.08")


def test_the_servers_own_file_alone_is_enough(launched):
    file = write(launched.server / "TRITON_VERSION", "2.45.0\n")
    place, taken = launched.takes()
    assert os.path.realpath(place) == os.path.realpath(file)
    assert taken == "2.45.0 (24.04)"


def test_the_first_source_is_named(launched):
    write(launched.sidecar, "24.11")
    write(launched.server / "TRITON_VERSION", "2.53.0")
    assert launched.takes(**{EXPLICIT: "25.01"}) == (EXPLICIT, "25.01")
    assert launched.takes() == (str(launched.sidecar), "24.11")


def test_releases_of_one_epoch_are_no_contradiction(launched):
    write(launched.sidecar, "24.10")
    assert GOES_ON in launched.says(TRITON_SERVER_VERSION="2.54.0")


@pytest.mark.parametrize("name", ["NVIDIA_TRITON_SERVER_VERSION", EXPLICIT])
def test_sources_that_contradict_each_other_are_refused(launched, name):
    write(launched.sidecar, "24.10")
    said = launched.says(**{name: "24.09"})
    assert f"{launched.sidecar} says Triton 24.10" in said
    assert f"{name} says Triton 24.09" in said
    assert "would crash the server" in said


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (EXPLICIT, "24", "'24', which is no Triton release"),
        (EXPLICIT, "24.100", "which is no Triton release"),
        (EXPLICIT, "2.51.0", "which is no Triton release"),
        (EXPLICIT, "23.03", "speaks to 23.04 and later"),
        ("TRITON_SERVER_VERSION", "1.2", "which is no version of a Triton server"),
        ("TRITON_SERVER_VERSION", "2.32.0", "speaks to 2.33.0 (23.04) and later"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(launched, name, value, reason):
    said = launched.says(**{name: value})
    assert f"{name} says" in said
    assert reason in said


def test_an_empty_file_beside_the_stub_is_refused(launched):
    write(launched.sidecar, "\n")
    assert "which is no Triton release" in launched.says(**{EXPLICIT: "24.10"})


def test_a_server_newer_than_all_known_gets_the_newest_epoch_or_the_one_chosen(launched):
    newer = {"NVIDIA_TRITON_SERVER_VERSION": "27.01", "TRITON_SERVER_VERSION": "2.77.0"}
    warning, last = launched.says(warns=True, **newer).splitlines()
    assert "NVIDIA_TRITON_SERVER_VERSION says 27.01, which is newer than this stub" in warning
    assert GOES_ON in last
    write(launched.sidecar, "25.02")
    assert GOES_ON in launched.says(**newer)


@pytest.mark.parametrize(
    ("release", "last", "region", "reason"),
    [
        ("23.06", ("NONE",), "region_1", "it gave 9 arguments"),
        ("23.07", (), "region_1", "it gave 8 arguments"),
        ("24.03", ("DEFAULT",), f"region_{uuid.uuid4()}", "its regions are named like region_"),
        ("24.04", ("DEFAULT",), "region_12", "its regions are named like region_12"),
    ],
)
def test_a_command_line_of_another_release_is_refused(launched, release, last, region, reason):
    said = launched.says(region=region, last=last, **{EXPLICIT: release})
    assert f"{EXPLICIT} says Triton {release}" in said
    assert reason in said

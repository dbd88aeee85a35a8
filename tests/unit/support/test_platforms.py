"""Both spellings of a platform are accepted everywhere, and one is shown."""

import json

import pytest

from envpack.cli.main import run
from envpack.requirements.target import Target
from envpack.settings.project import open_project
from envpack.support.platforms import abi_flags, libpython_name, minor_of_libpython, platform_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("linux-64", "linux-64"),
        ("linux-x86_64", "linux-64"),
        ("linux-aarch64", "linux-aarch64"),
        ("osx-arm64", "osx-arm64"),
    ],
)
def test_a_platform_has_one_name(text, name):
    assert platform_name(text) == name


def test_a_target_and_a_project_file_accept_both_spellings(tmp_path):
    assert Target("linux-x86_64") == Target("linux-64")
    (tmp_path / "envpack.toml").write_text('platform = "linux-x86_64"')
    assert open_project(tmp_path).of().platform == "linux-64"


@pytest.mark.parametrize("spelling", ["linux-64", "linux-x86_64"])
def test_the_command_line_accepts_both_spellings(spelling, tmp_path, capsys):
    """The platform is accepted; the Python is not."""
    status = run(["stub", "--python", "3.99", "--platform", spelling, "--print-matrix", "--json"])
    assert (status, json.loads(capsys.readouterr().out)["error"]["kind"]) == (2, "bad-python-version")


NAMES = {
    "3.6": "libpython3.6m.so.1.0",
    "3.7": "libpython3.7m.so.1.0",
    "3.8": "libpython3.8.so.1.0",
    "3.10": "libpython3.10.so.1.0",
}
OTHERS = (
    "libpython3.so",
    "libpython3.8.so",
    "libpython3.8d.so.1.0",
    "libpython3.8m",
    "libpython2.7.so.1.0",
    "xlibpython3.8.so.1.0",
)


def test_a_minor_version_and_the_name_of_its_library_tell_each_other():
    assert {minor: libpython_name(minor) for minor in NAMES} == NAMES
    assert {minor_of_libpython(name): name for name in NAMES.values()} == NAMES


def test_a_free_threaded_python_is_another_version():
    assert minor_of_libpython("libpython3.13t.so.1.0") == "3.13t"


def test_other_files_tell_no_version():
    assert [name for name in OTHERS if minor_of_libpython(name)] == []


def test_the_flag_of_the_allocator_ends_with_python_3_7():
    assert [abi_flags(minor) for minor in ("3.6", "3.7", "3.8", "3.15")] == ["m", "m", "", ""]

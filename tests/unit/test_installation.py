"""The command that adds an extra is one that works where envpack is installed."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from envpack.support import installation
from envpack.support.installation import Installation, install_beside, install_command, repair_command


class Distribution:
    """What the metadata of an installed distribution says of where it came from."""

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.origin if self.origin is None or isinstance(self.origin, str) else json.dumps(self.origin)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Pretends an installation in ``tmp_path``: these files are in its prefix, and this is its origin."""

    def pretend(*files, origin=None, pip=True):
        for name in files:
            (tmp_path / name).write_text("")
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        monkeypatch.setattr(sys, "executable", "/venv/bin/python")
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: "pip" if pip and name == "pip" else None)
        monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution(origin))
        monkeypatch.setattr(installation.shutil, "which", lambda name: f"/usr/bin/{name}")
        return tmp_path

    installation.this_installation.cache_clear()
    yield pretend
    installation.this_installation.cache_clear()


@pytest.mark.parametrize(
    ("files", "pip", "add", "repair"),
    [
        (
            (),
            True,
            "/venv/bin/python -m pip install 'triton-envpack[compile]'",
            "/venv/bin/python -m pip install --force-reinstall triton-envpack",
        ),
        (
            (),
            False,
            "uv pip install --python /venv/bin/python 'triton-envpack[compile]'",
            "uv pip install --python /venv/bin/python --reinstall triton-envpack",
        ),
        (
            ("uv-receipt.toml",),
            False,
            "uv tool install 'triton-envpack[compile]'",
            "uv tool install --reinstall triton-envpack",
        ),
        (
            ("pipx_metadata.json",),
            True,
            "pipx install --force 'triton-envpack[compile]'",
            "pipx install --force triton-envpack",
        ),
    ],
)
def test_each_installer_gets_its_own_command(installed, files, pip, add, repair):
    installed(*files, pip=pip)
    assert install_command("compile") == add
    assert repair_command() == repair


@pytest.mark.parametrize(
    ("files", "pip", "expected"),
    [
        ((), True, "/venv/bin/python -m pip install 'tool[x]'"),
        ((), False, "uv pip install --python /venv/bin/python 'tool[x]'"),
        (("uv-receipt.toml",), False, "uv pip install --python /venv/bin/python 'tool[x]'"),
        (("pipx_metadata.json",), True, "pipx runpip triton-envpack install 'tool[x]'"),
    ],
)
def test_each_installer_adds_another_package(installed, files, pip, expected):
    installed(*files, pip=pip)
    assert install_beside("tool[x]") == expected


@pytest.mark.parametrize(
    ("name", "record", "expected"),
    [
        (
            "uv-receipt.toml",
            '[tool]\nrequirements = [{ name = "triton-envpack", extras = ["server"] }, { name = "pytest" }]\n',
            "uv tool install 'triton-envpack[server,compile]'",
        ),
        (
            "pipx_metadata.json",
            '{"main_package": {"package_or_url": "/tmp/triton_envpack-1-py3-none-any.whl[server,oci]"}}',
            "pipx install --force 'triton-envpack[server,oci,compile]'",
        ),
        ("uv-receipt.toml", "[", "uv tool install 'triton-envpack[compile]'"),
        ("uv-receipt.toml", "tool = 3", "uv tool install 'triton-envpack[compile]'"),
        (
            "pipx_metadata.json",
            '{"main_package": {"package_or_url": 3}}',
            "pipx install --force 'triton-envpack[compile]'",
        ),
    ],
)
def test_a_tool_keeps_the_extras_that_it_has(installed, tmp_path, name, record, expected):
    installed()
    (tmp_path / name).write_text(record)
    assert install_command("compile") == expected
    assert install_command("server").count("server") == 1
    kept = expected.rpartition(" ")[2].replace(",compile", "").replace("[compile]", "")
    assert repair_command().rpartition(" ")[2].strip("'") == kept.strip("'")


def test_pip_is_allowed_to_change_a_python_that_a_distribution_manages(installed, tmp_path, monkeypatch):
    installed()
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    monkeypatch.setattr(installation, "_is_users", lambda: False)
    assert install_beside("pytest") == "/venv/bin/python -m pip install --break-system-packages pytest"
    assert "install --break-system-packages --force-reinstall" in repair_command()


def test_programs_and_packages_of_the_users_folder_are_found_there(tmp_path):
    packages = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(tmp_path)}))
    record = packages / "triton_envpack-0.1.0.dist-info/METADATA"
    record.parent.mkdir(parents=True)
    record.write_text("Metadata-Version: 2.1\nName: triton-envpack\nVersion: 0.1.0\n")
    program = tmp_path / "bin/envpack-test-program"
    program.parent.mkdir()
    program.touch()
    script = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from envpack.support.installation import install_beside, program_beside\n"
        "print(program_beside('envpack-test-program'), install_beside('pytest'), sep='\\n')"
    )
    python = Path(sys.base_prefix, "bin/python3")
    if subprocess.run([python, "-c", "import pip"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip(f"{python} has no pip, which installs into the user's folder")
    ended = subprocess.run(
        [python, "-c", script, Path(installation.__file__).parents[2]],
        env=os.environ | {"PYTHONUSERBASE": str(tmp_path)},
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    found, command = ended.stdout.splitlines()
    assert found == str(program)
    assert " install --user " in command
    assert command.endswith(" pytest")


def test_several_extras_are_one_requirement(installed):
    installed()
    assert install_command("compile", "zig").endswith("'triton-envpack[compile,zig]'")


@pytest.mark.parametrize("editable", [True, False])
def test_a_checkout_is_installed_again_from_where_it_is(installed, tmp_path, editable):
    origin = {"url": tmp_path.as_uri(), "dir_info": {"editable": True} if editable else {}}
    installed(origin=origin)
    option = "--editable " if editable else ""
    assert install_command("compile") == f"/venv/bin/python -m pip install {option}'{tmp_path}[compile]'"


def test_a_wheel_is_installed_again_from_its_file(installed, tmp_path):
    wheel = tmp_path / "a folder/triton_envpack-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_text("")
    installed(origin={"url": wheel.as_uri(), "archive_info": {}})
    assert install_command("zig") == f"/venv/bin/python -m pip install '{wheel}[zig]'"


def test_a_repository_on_this_machine_is_named_by_its_folder(installed, tmp_path):
    installed(origin={"url": tmp_path.as_uri(), "vcs_info": {"vcs": "git", "commit_id": "0" * 40}})
    assert install_command("zig") == f"/venv/bin/python -m pip install '{tmp_path}[zig]'"


def test_a_commit_of_a_repository_is_installed_again_from_its_address(installed):
    commit = "0123456789abcdef0123456789abcdef01234567"
    installed(origin={"url": "https://git.example/envpack", "vcs_info": {"vcs": "git", "commit_id": commit}})
    requirement = f"@ git+https://git.example/envpack@{commit}'"
    assert install_command("zig") == f"/venv/bin/python -m pip install 'triton-envpack[zig] {requirement}"
    assert repair_command() == f"/venv/bin/python -m pip install --force-reinstall 'triton-envpack {requirement}"


def test_a_wheel_from_an_address_is_installed_again_from_there(installed):
    url = "https://files.example/triton_envpack-1-py3-none-any.whl"
    installed(origin={"url": url, "archive_info": {"hash": "sha256=0"}})
    assert install_command("zig") == f"/venv/bin/python -m pip install 'triton-envpack[zig] @ {url}'"


@pytest.mark.parametrize(
    "origin",
    [
        *(None, "", "{", "[]", {"url": "file:///gone"}, {"url": "https://example.org/a.whl"}, {"url": 3}),
        *({"url": "https://example.org/a", "vcs_info": info} for info in ({}, {"vcs": "git"}, 3)),
    ],
)
def test_any_other_origin_means_an_index(installed, origin):
    installed(origin=origin)
    assert install_command("zig") == "/venv/bin/python -m pip install 'triton-envpack[zig]'"


def test_without_a_uv_of_the_user_the_own_one_is_named(installed, monkeypatch):
    installed(pip=False)
    monkeypatch.setattr(installation.shutil, "which", lambda name: None)
    program = install_command("zig").partition(" ")[0]
    assert Path(program).name == "uv"
    assert Path(program).is_absolute()


def test_the_copy_that_runs_these_tests():
    found = installation.this_installation()
    assert isinstance(found, Installation)
    assert found.python == sys.executable

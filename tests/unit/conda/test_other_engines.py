"""Other engines: the command that they are called with, and how their reports are read.

The reports are samples in the format that the programs' documentation and published issues show (conda's
`create --dry-run --json`, and micromamba's in mamba's issue 2346), not recordings of a run.
"""

import json
import os
import sys

import pytest

from envpack.conda.other_engines import packages_of, resolve_with_program
from envpack.conda.settings import Channels, CondaSettings
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError, StorageError

TARGET = Target("linux-64", "3.10", "2.35", "12.6")
SPECS = ("python 3.10.*", "zlib >=1.2")
CHANNEL = "https://conda.anaconda.org/conda-forge"
ZLIB = {
    "build": "h166bdaf_4", "build_number": 4, "build_string": "h166bdaf_4", "channel": f"{CHANNEL}/linux-64",
    "constrains": None, "depends": ["libgcc-ng >=12"], "fn": "zlib-1.2.13-h166bdaf_4.tar.bz2", "license": "Zlib",
    "md5": "4b11e365c0275b808be78b30f904e295", "name": "zlib", "sha256": "a" * 64, "size": 92879,
    "subdir": "linux-64", "timestamp": 1665753500, "track_features": "",
    "url": f"{CHANNEL}/linux-64/zlib-1.2.13-h166bdaf_4.tar.bz2", "version": "1.2.13",
}  # fmt: skip
LINKED = {
    "base_url": CHANNEL, "build_number": 4, "build_string": "h166bdaf_4", "channel": "conda-forge",
    "dist_name": "zlib-1.2.13-h166bdaf_4", "name": "zlib", "platform": "linux-64", "version": "1.2.13",
}  # fmt: skip
MICROMAMBA = {"actions": {"FETCH": [ZLIB], "LINK": [ZLIB], "PREFIX": "/p"}, "dry_run": True, "success": True}
CONDA = {"actions": {"FETCH": [ZLIB], "LINK": [LINKED], "PREFIX": "/p"}, "dry_run": True, "success": True}
OLD_CONDA = CONDA | {"actions": [CONDA["actions"]]}


@pytest.mark.parametrize("report", [MICROMAMBA, CONDA, OLD_CONDA], ids=["micromamba", "conda", "conda 4.3"])
def test_a_report_gives_packages_with_address_and_hash(report):
    (package,) = packages_of(report, "conda")
    assert (package.name, package.version, package.build, package.subdir) == (
        "zlib",
        "1.2.13",
        "h166bdaf_4",
        "linux-64",
    )
    assert (package.url, package.sha256, package.md5) == (ZLIB["url"], ZLIB["sha256"], ZLIB["md5"])
    assert (package.size, package.license, package.depends) == (92879, "Zlib", ("libgcc-ng >=12",))
    assert package.constrains == ()


def test_secrets_in_addresses_stay_out_of_the_lock():
    private = ZLIB | {"url": "https://me:pw@example.invalid/t/tk-1/channel/linux-64/zlib-1.2.13-h166bdaf_4.conda"}
    (package,) = packages_of({"actions": {"LINK": [private]}}, "mamba")
    assert package.url == "https://example.invalid/channel/linux-64/zlib-1.2.13-h166bdaf_4.conda"


@pytest.mark.parametrize(
    "actions",
    [{"LINK": [LINKED]}, {"LINK": [ZLIB | {"md5": "", "sha256": ""}]}, {"LINK": [ZLIB | {"url": "https://x/y"}]}],
    ids=["without address", "without hash", "no package"],
)
def test_a_package_without_address_or_hash_is_refused(actions):
    with pytest.raises(EnvironmentBuildError) as caught:
        packages_of({"actions": actions}, "micromamba")
    assert caught.value.kind == "engine-failed"
    assert "the output of micromamba" in caught.value.message


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Make a program that records its arguments and environment and prints a canned report."""

    def make(name, report, status=0, stderr=""):
        output = report if isinstance(report, str) else json.dumps(report)
        file = tmp_path / name
        file.write_text(
            f"#!{sys.executable}\nimport json, os, sys\n"
            f"open({str(tmp_path / 'called')!r}, 'w').write(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
            f"print({output!r})\nsys.stderr.write({stderr!r})\nsys.exit({status})\n"
        )
        file.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return tmp_path / "called"

    for variable in [name for name in os.environ if name.startswith(("CONDA", "MAMBA"))]:
        monkeypatch.delenv(variable)
    return make


def resolve(engine):
    return resolve_with_program(engine, SPECS, Channels((CHANNEL,)), TARGET, settings=CondaSettings())


@pytest.mark.parametrize("engine", ["conda", "mamba", "micromamba"])
def test_programs_resolve_for_the_target_and_install_nothing(program, engine, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/trap")
    called = program(engine, f"a banner\n{json.dumps(CONDA)}")
    assert [package.name for package in resolve(engine)] == ["zlib"]
    arguments, variables = json.loads(called.read_text())
    assert arguments[0] == "create"
    assert {"--dry-run", "--json", "--override-channels"} <= set(arguments)
    assert arguments[-2:] == list(SPECS)
    assert arguments[arguments.index("--channel") + 1] == CHANNEL
    assert variables["CONDA_SUBDIR"] == "linux-64"
    overrides = {name: value for name, value in variables.items() if name.startswith("CONDA_OVERRIDE_")}
    assert overrides == {
        "CONDA_OVERRIDE_LINUX": "5.10",
        "CONDA_OVERRIDE_GLIBC": "2.35",
        "CONDA_OVERRIDE_CUDA": "12.6",
        "CONDA_OVERRIDE_ARCHSPEC": "x86_64",
    }
    assert "PYTHONPATH" not in variables


@pytest.mark.parametrize(
    ("report", "status", "stderr", "kind"),
    [
        ({"exception_name": "PackagesNotFoundError", "error": "PackagesNotFoundError: - zlib[version='>=9']"}, 1, "",
         "unresolvable"),
        ({"exception_name": "LibMambaUnsatisfiableError", "message": "no zlib >=9"}, 1, "", "unresolvable"),
        ({"success": False, "solver_problems": ["nothing provides requested zlib >=9"]}, 1, "", "unresolvable"),
        ({"exception_name": "CondaHTTPError", "error": "HTTP 403 FORBIDDEN for url"}, 1, "", "channel-forbidden"),
        ({"exception_name": "CondaHTTPError", "error": "HTTP 000 CONNECTION FAILED"}, 1, "", "channel-unreachable"),
        ({"error": "OSError(28, 'No space left on device')"}, 1, "", "disk-full"),
        ("", 2, "error: unrecognized arguments", "engine-failed"),
        ("[]", 0, "", "engine-failed"),
        ({"actions": {"LINK": ["defaults::zlib-1.2-0"]}}, 0, "", "engine-failed"),
        ({"actions": {"LINK": 3}}, 0, "", "engine-failed"),
        ({"actions": 3}, 0, "", "engine-failed"),
    ],
)  # fmt: skip
def test_failures_of_a_program_have_a_kind(program, report, status, stderr, kind):
    program("conda", report, status, stderr)
    with pytest.raises((EnvironmentBuildError, StorageError)) as caught:
        resolve("conda")
    assert caught.value.kind == kind
    assert "\n" not in str(caught.value)
    assert kind != "unresolvable" or "'zlib >=1.2'" in caught.value.message


def test_a_program_named_by_a_variable_is_used(program, monkeypatch, tmp_path):
    called = program("micromamba", MICROMAMBA)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("MAMBA_EXE", str(tmp_path / "micromamba"))
    assert resolve("micromamba")
    assert called.exists()
    with pytest.raises(EnvironmentBuildError):  # mamba's variable may name micromamba, which is another program
        resolve("mamba")


@pytest.mark.parametrize("engine", ["conda", "mamba", "micromamba"])
def test_a_missing_program_is_named(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CONDA_EXE", raising=False)
    monkeypatch.delenv("MAMBA_EXE", raising=False)
    with pytest.raises(EnvironmentBuildError) as caught:
        resolve(engine)
    assert caught.value.kind == "engine-missing"
    assert engine in caught.value.message

"""Inputs in the style of those that users have, each with its outcome beside it, through the command line.

A case is a folder with a model repository and ``expected.toml``: ``arguments`` of `envpack lock m`; and ``packages`` of
the lock, or the ``error``; ``warnings`` and ``progress`` are parts of lines.
"""

import tomllib
from pathlib import Path

import pytest

from envpack.lock.lockfile import read_lock
from tests.faults.command_line import envpack
from tests.field.copies import copy_case
from tests.rings import parameters

CASES = {
    str(file.parent.relative_to(Path(__file__).parent)): file.parent
    for file in Path(__file__).parent.rglob("expected.toml")
}
# One case of each folder is in the gate.
FIRST = {case.partition("/")[0]: case for case in sorted(CASES, reverse=True)}
CONFIG = 'backend: "python"\ninput { name: "X" data_type: TYPE_FP32 dims: [1] }\n'


def repository_of(case, folder, addresses):
    """A copy of a case's repository, with addresses in place of their words, and with a model where it has none."""
    copy_case(case, folder, addresses, "expected.toml")
    (folder / "m/1").mkdir(parents=True, exist_ok=True)
    (folder / "m/1/model.py").touch()
    (folder / "m/config.pbtxt").write_text(CONFIG)
    return folder


@pytest.mark.parametrize("case", parameters(sorted(CASES), FIRST.values()))
def test_field(case, tmp_path, addresses):
    expected = tomllib.loads((CASES[case] / "expected.toml").read_text())
    repository = repository_of(CASES[case], tmp_path / "repository", addresses)
    changes = {
        "ENVPACK_CACHE_DIR": str(tmp_path / "cache"),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "UV_DEFAULT_INDEX": addresses["INDEX"],
        "UV_HTTP_RETRIES": "0",
        "PIP_FIND_LINKS": None,
        "HOME": str(tmp_path),
    }
    done = envpack("lock", "m", *expected.get("arguments", ()), "--repository", repository, "--json", changes=changes)
    if "error" in expected:
        error, wanted = done.document["error"], expected["error"]
        assert error["kind"] == wanted["kind"], done.err
        assert done.code == error["exit_code"]
        assert error["where"] == str(repository / wanted["where"])
        assert wanted["message"] in error["message"]
        assert wanted.get("hint", "") in error["hint"]
        assert not (repository / "m/envpack.lock").exists()
        return
    assert done.code == 0, done.err
    lock = read_lock(repository / "m/envpack.lock")
    assert {package.name: package.version for package in (*lock.conda, *lock.pip)} == expected["packages"]
    warnings = done.document["models"][0]["warnings"]
    assert len(warnings) == len(expected.get("warnings", ())), warnings
    for text, warning in zip(expected.get("warnings", ()), warnings, strict=True):
        assert text in warning
    for text in expected.get("progress", ()):
        assert text in done.err

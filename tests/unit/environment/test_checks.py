"""The environment's own Python is started only for a limited time: a .pth file can wait for ever."""

from pathlib import Path

import pytest

from envpack.environment import checks
from envpack.support.errors import EnvironmentBuildError
from tests.waiting import soon


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """A Python that waits, and writes who it is."""
    monkeypatch.setattr(checks, "_STARTING", 0.5)
    program = tmp_path / "bin/python3"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    program.chmod(0o755)
    return program


def started(python):
    return checks.python_output(python, "print(1)")


def consistent(python):
    return checks.check_consistency(python.parent.parent, python)


@pytest.mark.parametrize("use", [started, consistent])
def test_a_python_that_never_ends_is_ended_and_told(use, endless, tmp_path):
    with pytest.raises(EnvironmentBuildError, match="does not end within") as caught:
        use(endless)
    assert caught.value.kind == "environment-broken"
    assert caught.value.hint == ("look for a .pth file or a sitecustomize.py in its packages that waits for something")
    status = Path("/proc", (tmp_path / "pid").read_text().strip(), "status")
    assert soon(lambda: has_ended(status)), "its parent may have killed it only now"


def has_ended(status):
    try:
        return "State:\tZ" in status.read_text()
    except OSError:
        return True

"""What holds in every unit test."""

import sys

import pytest

from envpack.support.errors import EnvpackError


@pytest.fixture(autouse=True)
def every_error_says_what_to_do(monkeypatch):
    """Fail a test in which envpack makes an error without a hint, whatever the test is about."""
    make, without = EnvpackError.__init__, []

    def noted(error, message, **parts):
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.startswith("envpack.") and "hint" not in parts:
            without.append(f"{caller}: {message}")
        make(error, message, **parts)

    monkeypatch.setattr(EnvpackError, "__init__", noted)
    yield
    assert without == []

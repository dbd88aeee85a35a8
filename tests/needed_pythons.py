"""Skips tests that need a Python which this machine does not have; no test fetches one from elsewhere."""

import pytest

from envpack.conda.choice import interpreter_for
from envpack.conda.interpreters import Interpreter
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.errors import EnvpackError


def need(minor: str) -> str:
    """Skip the test if this machine has no such Python for the image of the default release; the minor version."""
    return need_interpreter(minor, glibc=find_release(DEFAULT_RELEASE).glibc).minor


def need_interpreter(minor: str, *, glibc: str = "") -> Interpreter:
    """Skip the test if this machine has no such Python with a shared library; the interpreter."""
    try:
        return interpreter_for(minor, glibc=glibc)
    except EnvpackError as error:
        pytest.skip(f"needs Python {minor} with a shared library: {error.message}")

"""Skips tests that need a Python which this machine does not have; no test fetches one from elsewhere."""

import pytest

from envpack.pythons import Interpreter, interpreter_for
from envpack.support.errors import EnvpackError


def need(minor: str) -> str:
    """Skip the test if this machine has no such Python with a shared library; the minor version."""
    return need_interpreter(minor).minor


def need_interpreter(minor: str) -> Interpreter:
    """Skip the test if this machine has no such Python with a shared library; the interpreter."""
    try:
        return interpreter_for(minor)
    except EnvpackError as error:
        pytest.skip(f"needs Python {minor} with a shared library: {error.message}")

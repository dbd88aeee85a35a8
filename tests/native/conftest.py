"""The stub for the Python of the default release."""

import os
from pathlib import Path

import pytest

from envpack.stub.build import build_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import target_from_interpreter
from envpack.support.errors import EnvpackError
from envpack.support.placed_files import STUB_NAME
from tests.compiled import MINOR


@pytest.fixture(scope="session")
def target():
    try:
        return target_from_interpreter(MINOR)
    except EnvpackError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def stub(target):
    if "ENVPACK_TEST_STUBS" in os.environ:  # see ci/sanitized.py
        return Path(os.environ["ENVPACK_TEST_STUBS"]) / target.minor / STUB_NAME
    return build_stub(Cell(target)).path

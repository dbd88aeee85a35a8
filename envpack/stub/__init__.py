"""From a Python to the stub that embeds it."""

from envpack.stub.build import STUB_NAME, Stub, build_stub
from envpack.stub.inspection import StubFacts, inspect_stub
from envpack.stub.matrix import Cell, find_pythons, plan_matrix
from envpack.stub.target import StubTarget, target_from_interpreter, target_from_prefix

__all__ = [
    "STUB_NAME",
    "Cell",
    "Stub",
    "StubFacts",
    "StubTarget",
    "build_stub",
    "find_pythons",
    "inspect_stub",
    "plan_matrix",
    "target_from_interpreter",
    "target_from_prefix",
]

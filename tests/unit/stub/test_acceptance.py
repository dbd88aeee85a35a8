"""What a compiler has made is refused if it is not what was asked for."""

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.settings.releases import find_release
from envpack.stub import build
from envpack.stub.build import check_compiled_stub
from envpack.stub.inspection import StubFacts
from envpack.stub.recipe import Cell
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import OTHER_COMPILER, Toolchain
from envpack.support.errors import StubError

TARGET = StubTarget("3.10", platform.machine(), Path("include"), Path("libpython3.10.so.1.0"))
TOOLS = Toolchain("zig", ("zig", "c++"), "zig 0.99", platform.machine(), "2.28")
RIGHT = StubFacts(
    machine=platform.machine(),
    python="3.10",
    libpython="libpython3.10.so.1.0",
    epochs=("24.04", "24.10"),
    version="0.1.0",
    glibc="2.28",
    compiler="Clang 22",
    numpy=(1, 2),
    needs=("libpython3.10.so.1.0", "libc.so.6"),
)


@pytest.fixture
def made(tmp_path):
    file = tmp_path / "triton_python_backend_stub"
    file.write_text("#!/bin/sh\nexit 1\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def accept(made, monkeypatch):
    def run(tools=TOOLS, **differences):
        monkeypatch.setattr(build, "inspect_stub", lambda _: replace(RIGHT, **differences))
        check_compiled_stub(made, Cell(TARGET, (find_release("24.10"),)), tools)

    return run


def test_what_was_asked_for_is_accepted(accept):
    accept()


@pytest.mark.parametrize(
    ("differences", "says"),
    [
        ({"machine": "riscv64"}, f"it is for riscv64, not for {platform.machine()}"),
        ({"python": "3.11"}, "it is for Python 3.11, not for 3.10"),
        ({"epochs": ("24.04",)}, "it does not support Triton 24.10"),
        ({"glibc": "2.29"}, "it requires glibc 2.29, newer than 2.28"),
        ({"needs": ("libpython3.10.so.1.0", "libstdc++.so.6")}, "it requires libstdc++.so.6"),
        ({"needs": ("libpython3.10.so.1.0", "libgcc_s.so.1")}, "it requires libgcc_s.so.1"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(accept, differences, says):
    with pytest.raises(StubError) as caught:
        accept(**differences)
    assert caught.value.kind == "compile-failed"
    assert caught.value.message == f"the compiled stub is unusable: {says}"
    assert caught.value.hint == OTHER_COMPILER


def test_a_compiler_that_cannot_choose_the_glibc_is_not_held_to_one(accept):
    accept(tools=Toolchain("system", ("c++",), "c++ 1.2", platform.machine()), glibc="2.99")


def test_a_stub_that_does_not_end_as_the_server_expects_is_refused(accept, made):
    made.write_text("#!/bin/sh\nexit 127\n")
    with pytest.raises(StubError) as caught:
        accept()
    assert caught.value.message == ("the compiled stub is unusable: it exits with status 127; the server expects 1")

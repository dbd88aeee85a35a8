"""Which compiler is taken for what is asked, and what is said where none can do it."""

import pytest

from envpack.stub import toolchain
from envpack.stub.toolchain import find_tool, find_toolchain, required_package_folder
from envpack.support.errors import EnvpackError
from envpack.support.installation import install_command


def _program(path, says):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with the compilers that a test gives it; their `identity` is what they say of themselves."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    wheels = {}
    monkeypatch.setattr(toolchain, "package_folder", wheels.get)

    class Machine:
        def has_compiler(self, name="c++"):
            _program(tmp_path / "bin" / name, f"{name} 1.2")

        def has_zig(self):
            _program(tmp_path / "ziglang/zig", "0.99")
            wheels["ziglang"] = tmp_path / "ziglang"

    return Machine()


def _refusal(*arguments, **options):
    with pytest.raises(EnvpackError) as caught:
        find_toolchain(*arguments, **options)
    return caught.value


def test_this_machines_compiler_comes_first(machine):
    machine.has_compiler()
    machine.has_zig()
    found = find_toolchain()
    assert (found.name, found.identity, found.glibc) == ("system", "c++ 1.2", "")


def test_cxx_names_the_compiler(machine, monkeypatch):
    machine.has_compiler()
    machine.has_compiler("my-c++")
    monkeypatch.setenv("CXX", "my-c++")
    assert find_toolchain().identity == "my-c++ 1.2"


def test_zig_stands_in_where_there_is_no_compiler(machine):
    machine.has_zig()
    found = find_toolchain()
    assert (found.name, found.glibc) == ("zig", "2.28")
    assert any(part.endswith("-linux-gnu.2.28") for part in found.compiler)


def test_who_asks_for_a_glibc_gets_zig(machine):
    machine.has_compiler()
    machine.has_zig()
    found = find_toolchain(glibc="2.31")
    assert (found.name, found.glibc) == ("zig", "2.31")
    assert "2.31" in found.identity
    assert any(part.endswith("-linux-gnu.2.31") for part in found.compiler)


def test_this_machines_compiler_cannot_choose_the_glibc(machine):
    machine.has_compiler()
    error = _refusal("system", glibc="2.28")
    assert (error.kind, error.exit_code) == ("needs-zig", 2)
    assert error.hint == "use --set toolchain=zig, or auto"


@pytest.mark.parametrize("glibc", ["2", "3.1", "2.28.1", "two", "2.5", "2.26"])
def test_a_glibc_that_no_stub_runs_with_is_refused(machine, glibc):
    machine.has_zig()
    error = _refusal(glibc=glibc)
    assert (error.kind, error.exit_code) == ("bad-glibc", 2)
    assert error.hint == "give one from 2.27 on; Debian 10 has 2.28, Ubuntu 20.04 and Debian 11 have 2.31"
    assert error.message in (
        f"glibc version {glibc!r} is not written like 2.28",
        f"a stub cannot run with glibc {glibc}",
    )
    assert ("cannot run" in error.message) == (glibc in ("2.5", "2.26"))


@pytest.mark.parametrize(
    ("wanted", "glibc", "says"),
    [
        ("auto", "", "no C++ compiler, and no ziglang wheel"),
        ("auto", "2.28", "no ziglang wheel"),
        ("system", "", "no C++ compiler on this machine"),
        ("zig", "", "the ziglang wheel is not installed"),
    ],
)
def test_a_machine_without_the_compiler_is_told_how_to_get_one(machine, wanted, glibc, says):
    error = _refusal(wanted, glibc=glibc)
    assert (error.kind, error.message) == ("no-compiler", says)
    assert error.hint == f"install g++ or clang++, or zig: {install_command('compile', 'zig')}"


@pytest.mark.parametrize(
    ("find", "what"),
    [
        (lambda: find_tool("cmake"), "cmake"),
        (lambda: find_tool("ninja"), "ninja"),
        (
            lambda: required_package_folder("libboost_headers", "libboost-headers"),
            "the Python package libboost-headers",
        ),
    ],
)
def test_what_the_extra_holds_is_missing_in_one_line(machine, monkeypatch, tmp_path, find, what):
    monkeypatch.setattr(toolchain.sysconfig, "get_path", lambda name: str(tmp_path / name))
    with pytest.raises(EnvpackError) as caught:
        find()
    error = caught.value
    assert (error.kind, error.exit_code) == ("extra-missing", 5)
    assert error.message == f"compiling a stub needs {what}, which is not installed"
    assert error.hint == install_command("compile")

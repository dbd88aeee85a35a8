"""Which compiler is taken for what is asked, and what is said where none can do it."""

import errno
import importlib.metadata
import os
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.settings.pythons import PYBIND11, SUPPORTED, pybind11_for
from envpack.settings.releases import find_release
from envpack.stub import build, recipe, toolchain
from envpack.stub.build import BuildTree
from envpack.stub.recipe import Cell
from envpack.stub.toolchain import (
    PYBIND11_VERSION,
    boost_folder,
    find_tool,
    find_toolchain,
    header_folders,
    pybind11_folder,
)
from envpack.support import installation
from envpack.support.errors import EnvpackError, StubError, system_error
from envpack.support.installation import install_command
from tests.tables import every_row


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


@every_row(
    ("words", "compiler"),
    [
        ("my-c++ -m64 '-DA=b c'", ("{bin}/my-c++", "-m64", "-DA=b c")),
        ("bin/my-c++", ("{bin}/my-c++",)),
        ("none -m64", ("{bin}/c++",)),
        ("my-c++ 'open", ("{bin}/c++",)),
        (" ", ("{bin}/c++",)),
    ],
)
def test_cxx_may_have_arguments_and_be_relative(machine, monkeypatch, tmp_path, words, compiler):
    machine.has_compiler()
    machine.has_compiler("my-c++")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", words)
    assert find_toolchain().compiler == tuple(word.format(bin=tmp_path / "bin") for word in compiler)


def test_what_was_compiled_with_other_arguments_is_not_used(machine, monkeypatch):
    machine.has_compiler()
    monkeypatch.setenv("CXX", "c++ --target=aarch64-linux-gnu")
    assert find_toolchain().identity == "c++ 1.2 --target=aarch64-linux-gnu"


def test_a_compiler_that_does_not_run_is_an_error(machine, tmp_path, monkeypatch):
    machine.has_compiler()
    machine.has_zig()
    broken = tmp_path / "bin/broken"
    monkeypatch.setenv("CXX", str(broken))
    for text, reason in (
        (
            "#!/bin/sh\necho first >&2\necho 'libmpc.so.3: cannot open' >&2\nexit 127\n",
            "status 127, libmpc.so.3: cannot open",
        ),
        ("#!/bin/sh\nexit 1\n", "status 1, no output"),
        ("#!/none\n", "No such file or directory"),
    ):
        broken.write_text(text)
        broken.chmod(0o755)
        error = _refusal()
        assert (error.kind, error.message) == ("no-compiler", f"{broken} does not run: {reason}")
        assert error.hint == "repair it, or try the other compiler: --set toolchain=zig, or toolchain=system"
    (tmp_path / "ziglang/zig").write_text("#!/bin/sh\nexit 1\n")
    assert _refusal("zig").message == f"{tmp_path}/ziglang/zig does not run: status 1, no output"


def test_what_the_system_refuses_to_any_program_is_not_blamed_on_the_compiler(machine, monkeypatch):
    machine.has_compiler()

    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(toolchain, "run", refuse)
    with pytest.raises(BlockingIOError) as raised:
        find_toolchain()
    assert system_error(raised.value).kind == "system-limit"


def test_a_compiler_that_does_not_answer_is_an_error(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain, "_ANSWERING", 0.2)
    machine.has_compiler()
    waits = tmp_path / "bin/waits"
    waits.write_text("#!/bin/sh\nwhile :; do :; done\n")
    waits.chmod(0o755)
    monkeypatch.setenv("CXX", str(waits))
    error = _refusal()
    assert (error.kind, error.message) == (
        "no-compiler",
        f"{waits} does not run: it does not print its version within 0.2 s",
    )


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


def test_compilers_that_get_no_memory_side_by_side_run_one_by_one(tmp_path):
    """The compiler of this machine, which is ended as by the system while another one runs, and the first time."""
    compiler = tmp_path / "c++"
    compiler.write_text(
        f"""#!/bin/sh
        exec 9>{tmp_path}/one
        if flock -n 9 && [ -e {tmp_path}/second ]; then exec {shlex.join(find_toolchain().compiler)} "$@"; fi
        touch {tmp_path}/second
        echo 'c++: fatal error: Killed signal terminated program cc1plus' >&2
        exit 1
        """
    )
    compiler.chmod(0o755)
    sources = tmp_path / "sources"
    sources.mkdir()
    files = ["a.cc", "b.cc", "c.cc"]
    (sources / "CMakeLists.txt").write_text(
        f"""cmake_minimum_required(VERSION 3.20)
        project(three CXX)
        add_library(three OBJECT {" ".join(files)})
        """
    )
    for name in files:
        (sources / name).write_text("int main() {}\n")
    tree = BuildTree(tmp_path / "tree", sources, replace(find_toolchain(), compiler=(str(compiler),)))
    (tmp_path / "second").touch()
    tree.configure({})
    (tmp_path / "second").unlink()
    tree.build()
    assert sorted(path.name for path in tree.folder.rglob("*.o")) == [f"{name}.o" for name in files]
    assert (tmp_path / "second").exists()


@pytest.mark.parametrize(
    ("here", "oldest", "expected"),
    [
        ("2.36", "2.35", "system"),
        ("2.38", "2.35", "zig"),
        ("2.41", "2.39", "system"),
        ("2.41", "", "system"),
        ("", "2.35", "system"),  # no glibc at all
    ],
)
def test_zig_makes_what_is_to_run_with_an_older_c_library(machine, monkeypatch, here, oldest, expected):
    monkeypatch.setattr(toolchain, "host_glibc", lambda: here)
    machine.has_compiler()
    assert find_toolchain(oldest=oldest).name == "system", "there is no other"
    machine.has_zig()
    assert find_toolchain(oldest=oldest).name == expected
    assert find_toolchain("system", oldest=oldest).name == "system"
    monkeypatch.setenv("CXX", "c++")
    assert find_toolchain(oldest=oldest).name == "system", "the user has chosen"


def test_a_stub_is_compiled_for_the_images_of_its_releases(monkeypatch):
    asked = []
    monkeypatch.setattr(recipe, "find_toolchain", lambda *_, oldest, **__: asked.append(oldest))
    target = SimpleNamespace(machine="x86_64")
    for releases in ((), ("24.11",), ("24.11", "24.10")):
        Cell(target, tuple(map(find_release, releases))).recipe()
    assert asked == [find_release(name).glibc for name in ("23.04", "24.11", "24.10")]


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
        (boost_folder, "the Python package libboost-headers"),
    ],
)
def test_what_the_extra_holds_is_missing_in_one_line(machine, monkeypatch, find, what):
    monkeypatch.setattr(toolchain, "program_beside", lambda _: None)
    with pytest.raises(EnvpackError) as caught:
        find()
    error = caught.value
    assert (error.kind, error.exit_code) == ("extra-missing", 5)
    assert error.message == f"compiling a stub needs {what}, which is not installed"
    assert error.hint == install_command("compile")


PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEADER = "pybind11/include/pybind11/detail/common.h"


class Installed:
    """A package with one header, as `importlib.metadata` describes it."""

    def __init__(self, version, *files):
        self.version = version
        self.files = [importlib.metadata.PackagePath(file) for file in files]
        for file in self.files:
            file.dist = self

    def locate_file(self, file):
        return Path("/prefix/lib/python3.11/site-packages") / file


@pytest.fixture
def installed(monkeypatch):
    """Lets packages be installed, by name."""

    def install(packages):
        def find(name):
            if name not in packages:
                raise importlib.metadata.PackageNotFoundError(name)
            return packages[name]

        monkeypatch.setattr(importlib.metadata, "distribution", find)

    return install


def test_each_python_has_one_pybind11_and_each_pybind11_its_reason():
    assert len(SUPPORTED) == len(set(SUPPORTED))
    assert sorted(SUPPORTED, key=lambda minor: int(minor.removeprefix("3."))) == list(SUPPORTED)
    for pybind11 in PYBIND11:
        assert pybind11.reason
        assert {pybind11_for(minor) for minor in pybind11.pythons} == {pybind11}


def test_the_extra_installs_every_one_and_nothing_else_does():
    required = [text for text in PROJECT["optional-dependencies"]["compile"] if text.startswith("pybind11")]
    assert required == [pybind11.requirement for pybind11 in PYBIND11]
    assert not [text for text in PROJECT["dependencies"] if text.startswith("pybind11")]


@pytest.mark.parametrize("minor", SUPPORTED)
def test_the_headers_of_a_python_have_the_version_of_the_table(minor):
    folder = pybind11_folder(minor)
    lines = (folder / PYBIND11_VERSION).read_text().splitlines()
    parts = [line.split()[2] for line in lines if line.startswith("#define PYBIND11_VERSION_M")]
    assert parts[:2] == pybind11_for(minor).version.split(".")[:2]
    assert (folder / "include/pybind11/embed.h").is_file()
    assert folder in header_folders(minor)


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        (HEADER, "/prefix/lib/python3.11/site-packages/pybind11"),
        ("../../../include/pybind11/detail/common.h", "/prefix"),
    ],
)
def test_headers_are_found_in_a_package_and_in_a_prefix(installed, file, folder):
    elsewhere = "../../../include/site/python3.11/pybind11-global/pybind11/detail/common.h"
    installed({"pybind11": Installed("2.12.1", elsewhere, file)})
    assert pybind11_folder("3.8") == Path(folder)


@pytest.mark.parametrize(
    "packages",
    [
        {},
        {"pybind11": Installed("3.1.0", HEADER)},
        {"pybind11": Installed("2.12.1")},
    ],
    ids=["missing", "another version", "no headers"],
)
def test_another_pybind11_is_refused_with_the_required_one(installed, packages):
    installed(packages)
    with pytest.raises(StubError) as caught:
        pybind11_folder("3.8")
    assert caught.value.kind == "extra-missing"
    assert caught.value.message == (
        "compiling a stub needs the Python package pybind11==2.12.1, which is not installed"
    )
    assert caught.value.hint == install_command("compile")


def test_the_cmake_of_the_wheel_starts_without_python(monkeypatch):
    found = find_tool("cmake")
    assert found.read_bytes()[:4] == b"\x7fELF"
    monkeypatch.setattr(toolchain, "package_folder", lambda _: None)
    assert find_tool("cmake") == installation.program_beside("cmake")


def test_a_cmake_that_is_too_old_is_no_fault_of_the_compiler(tmp_path, monkeypatch):
    """CMake's own words, as version 3.25.1 prints them."""
    cmake = tmp_path / "cmake"
    cmake.write_text(
        "#!/bin/sh\ncat >&2 <<'END'\nCMake Error at CMakeLists.txt:5 (cmake_minimum_required):\n"
        "  CMake 3.26 or higher is required.  You are running version 3.25.1\n\n\nEND\nexit 1\n"
    )
    cmake.chmod(0o755)
    monkeypatch.setattr(build, "find_tool", lambda name: tmp_path / name)
    tools = toolchain.Toolchain("system", ("c++",), "c++ 1", "x86_64")
    with pytest.raises(EnvpackError) as caught:
        build.BuildTree(tmp_path / "not yet", tmp_path, tools, 1).configure({})
    assert (caught.value.kind, caught.value.hint) == ("extra-missing", install_command("compile"))
    assert caught.value.message == f"compiling a stub needs CMake 3.26 or newer, and {cmake} is 3.25.1"


def test_the_oldest_cmake_is_the_one_that_the_sources_require():
    sources = (Path(__file__).parents[3] / "CMakeLists.txt").read_text()
    assert f"cmake_minimum_required(VERSION {toolchain.OLDEST_CMAKE})" in sources

"""What `envpack doctor` says of machines that have more, or less, than this one."""

import os
from types import SimpleNamespace

import pytest

from envpack.conda.fetched import FetchError
from envpack.settings.project import Project
from envpack.settings.pythons import SUPPORTED
from envpack.settings.table import Settings
from envpack.support.errors import InputError, StubError
from envpack.support.installation import install_command
from envpack.workflow.doctor import host
from envpack.workflow.doctor.services import Observation
from tests.tables import every_row

MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture
def project(tmp_path):
    return Project(repository=tmp_path, settings=Settings(triton="24.10"))


# The machine


@every_row(
    ("machine", "glibc", "state"),
    [
        ("x86_64", "2.36", "ok"),
        ("aarch64", "2.36", "ok"),
        ("riscv64", "2.36", "missing"),
        ("x86_64", "", "missing"),
    ],
)
def test_linux_with_glibc_on_two_architectures_is_needed(monkeypatch, project, machine, glibc, state):
    monkeypatch.setattr(host, "this_host", lambda: SimpleNamespace(machine=machine, glibc=glibc))
    monkeypatch.setattr(host.platform, "system", lambda: "Linux")
    monkeypatch.setattr(host.platform, "python_version", lambda: "3.11.2")
    what = f"Linux {machine}, glibc {glibc or 'none'}, Python 3.11.2"
    fix = "" if state == "ok" else "use Linux on x86-64 or aarch64, with glibc"
    assert [*host.system(project)] == [Observation("system", state, what, fix)]


@pytest.mark.parametrize(
    ("minors", "what"),
    [(("3.8", "3.10"), "for Python 3.8, 3.10"), ((), "none installed: stubs are compiled on this machine")],
)
def test_compiled_stubs_are_listed(monkeypatch, project, minors, what):
    asked = []
    monkeypatch.setattr(host, "prebuilt_pythons", lambda machine: asked.append(machine) or minors)
    assert [*host.compiled_stubs(project)] == [Observation("compiled stubs", "ok", what)]
    assert asked == [host.this_machine()]


def test_tools_that_are_here_are_named(monkeypatch, project):
    monkeypatch.setattr(host, "find_tool", lambda name: f"/opt/{name}")
    monkeypatch.setattr(host, "check_cmake", lambda program: None)
    monkeypatch.setattr(host, "find_toolchain", lambda kind="": SimpleNamespace(identity=f"{kind or 'system'} 1"))
    monkeypatch.setattr(host, "boost_folder", lambda: "/opt/boost")
    monkeypatch.setattr(host, "pybind11_folder", lambda minor: f"/opt/pybind11-{minor}")
    assert [*host.compiler(project), *host.zig(project), *host.tools(project)] == [
        Observation("compiler", "ok", "system 1"),
        Observation("zig", "ok", "zig 1"),
        Observation("cmake", "ok", "/opt/cmake"),
        Observation("ninja", "ok", "/opt/ninja"),
        Observation("headers", "ok", "Boost, pybind11 2.12.1 and 3.1.0"),
    ]


def test_tools_that_are_missing_say_whether_they_are_needed(monkeypatch, project):
    def absent(*_):
        raise StubError("extra-missing", "it is missing", "install it")

    for name in ("find_tool", "find_toolchain", "pybind11_folder"):
        monkeypatch.setattr(host, name, absent)
    (zig,) = host.zig(project)
    assert zig == Observation(
        "zig", "warn", "it is missing; it compiles stubs that run on older systems than this one", zig.fix
    )
    assert "zig" in zig.fix
    monkeypatch.setattr(host, "prebuilt_pythons", lambda machine: ("3.10",))
    (compiler,) = host.compiler(project)
    assert compiler == Observation("compiler", "warn", "it is missing; the compiled stubs do not need it", "install it")
    assert [(tool.name, tool.state) for tool in host.tools(project)] == [
        ("cmake", "warn"), ("ninja", "warn"), ("headers", "warn"),
    ]  # fmt: skip
    monkeypatch.setattr(host, "prebuilt_pythons", lambda machine: ())
    assert [*host.compiler(project)] == [Observation("compiler", "missing", "it is missing", "install it")]
    assert [tool.state for tool in host.tools(project)] == ["missing"] * 3


def test_a_cmake_that_is_too_old_is_named(monkeypatch, project, tmp_path):
    cmake = tmp_path / "cmake"
    cmake.write_text("#!/bin/sh\necho cmake version 3.25.1\n")
    cmake.chmod(0o755)
    monkeypatch.setattr(host, "find_tool", lambda name: tmp_path / name)
    monkeypatch.setattr(host, "prebuilt_pythons", lambda machine: ())
    found = next(tool for tool in host.tools(project) if tool.name == "cmake")
    what = f"compiling a stub needs CMake 3.26 or newer, and {cmake} is 3.25.1"
    assert found == Observation("cmake", "missing", what, install_command("compile"))
    cmake.write_text("#!/bin/sh\necho cmake version 3.26.0\n")
    assert next(tool.state for tool in host.tools(project) if tool.name == "cmake") == "ok"


def test_gpus_are_listed_by_name(project, tmp_path):
    (tmp_path / "nvidiactl").touch()
    assert [*host.gpu(project, tmp_path, tmp_path)] == [Observation("GPU", "ok", "driver unknown: no device")]
    (tmp_path / "version").touch()
    for number, text in enumerate(("IRQ: 1\nModel: \t NVIDIA H100 \n", "IRQ: 2\n")):
        (tmp_path / f"gpus/{number}").mkdir(parents=True)
        (tmp_path / f"gpus/{number}/information").write_text(text)
    (seen,) = host.gpu(project, tmp_path, tmp_path)
    assert seen.what == "driver unknown: NVIDIA H100, unknown"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023", "535.104.05"),
        ("NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root)", "570.124.06"),
    ],
)
def test_a_driver_is_named_with_its_version(project, tmp_path, text, version):
    """As /proc has it on machines with the driver, in its two kinds."""
    (tmp_path / "nvidiactl").touch()
    (tmp_path / "version").write_text(f"NVRM version: {text}\n")
    assert [*host.gpu(project, tmp_path, tmp_path)] == [Observation("GPU", "ok", f"driver {version}: no device")]


def test_without_a_gpu_models_run_on_the_cpu(project, tmp_path):
    what = "no NVIDIA GPU; models run on the CPU"
    assert [*host.gpu(project, tmp_path, tmp_path)] == [
        Observation("GPU", "warn", what, "for GPUs: install NVIDIA's driver")
    ]


# Where files are kept


@pytest.fixture
def disk(monkeypatch):
    """Sets size and free bytes of every file system, in blocks of 4 KiB."""

    def change(*, size=8 * GIB, free, flags=0):
        room = SimpleNamespace(f_frsize=4096, f_blocks=size // 4096, f_bavail=free // 4096, f_flag=flags)
        monkeypatch.setattr(host.os, "statvfs", lambda place: room)

    return change


@every_row(
    ("free", "state", "what"),
    [
        (64 * MIB, "ok", "8.0 GiB, 64 MiB free"),
        (64 * MIB - 4096, "warn", "8.0 GiB, 64 MiB free; each model instance needs 1 MiB plus its tensors"),
        (2 * GIB, "ok", "8.0 GiB, 2.0 GiB free"),
        (1023 * MIB, "ok", "8.0 GiB, 1023 MiB free"),
    ],
)
def test_shared_memory_has_room_for_tensors(disk, project, tmp_path, free, state, what):
    disk(free=free)
    fix = "mount -o remount,size=1g /dev/shm; for a container: --shm-size=1g" if state == "warn" else ""
    assert [*host.shared_memory(project, tmp_path)] == [Observation(str(tmp_path), state, what, fix)]


def test_without_shared_memory_no_server_runs(project, tmp_path, monkeypatch):
    what, fix = "; a server and its stubs communicate through it", "mount a tmpfs there, whose mode is 1777"
    place = tmp_path / "shm"
    assert [*host.shared_memory(project, place)] == [Observation(str(place), "missing", f"missing{what}", fix)]
    monkeypatch.setattr("os.access", lambda *_: False)  # root may always write
    place.mkdir()
    assert [*host.shared_memory(project, place)] == [Observation(str(place), "missing", f"not writable{what}", fix)]


@every_row(
    ("free", "flags", "state", "what", "fix"),
    [
        (2 * GIB, 0, "ok", "2.0 GiB free, exec allowed", ""),
        (
            *(2 * GIB - 4096, 0, "warn", "2.0 GiB free; servers unpack archives there"),
            "free space, or build with --format dir",
        ),
        (
            *(2 * GIB, os.ST_NOEXEC | os.ST_NOSUID, "warn"),
            "mounted noexec: models with archives hang, since their libraries cannot be loaded",
            "mount -o remount,exec {}, or build with --format dir",
        ),
        (2 * GIB, os.ST_NOSUID, "ok", "2.0 GiB free, exec allowed", ""),
    ],
)
def test_servers_can_unpack_archives(disk, project, tmp_path, free, flags, state, what, fix):
    disk(free=free, flags=flags)
    seen = [*host.temporary_folder(project, tmp_path)]
    assert seen == [Observation(str(tmp_path), state, what, fix.format(tmp_path))]


def test_a_folder_for_archives_that_cannot_be_used(disk, project, tmp_path, monkeypatch):
    disk(free=2 * GIB)
    gone = tmp_path / "gone"
    assert [*host.temporary_folder(project, gone)] == [
        Observation(str(gone), "missing", "missing; servers unpack archives there", "create it with mode 1777")
    ]
    monkeypatch.setattr(host.os, "access", lambda place, mode: mode != os.W_OK)
    assert [*host.temporary_folder(project, tmp_path)] == [
        Observation(str(tmp_path), "warn", "not writable", f"chmod 1777 {tmp_path}")
    ]


@every_row(
    ("free", "state", "fix"),
    [
        (5 * GIB, "ok", ""),
        (5 * GIB - 4096, "warn", "run envpack cache prune, or set ENVPACK_CACHE_DIR to another folder"),
    ],
)
def test_the_cache_has_room_for_environments(disk, project, tmp_path, monkeypatch, free, state, fix):
    disk(free=free)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    what = f"{tmp_path}/cache, 5.0 GiB free"
    assert [*host.cache(project)] == [Observation("cache", state, what, fix)]
    assert not (tmp_path / "cache").exists()


def test_programs_can_run_in_the_cache(disk, project, tmp_path, monkeypatch):
    disk(free=5 * GIB, flags=os.ST_NOEXEC | os.ST_NOSUID)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    what = f"{tmp_path}/cache is on a file system mounted noexec: no Python or compiler can run there"
    fix = "set ENVPACK_CACHE_DIR to a folder on another one, or mount it without noexec"
    assert [*host.cache(project)] == [Observation("cache", "missing", what, fix)]


@pytest.mark.parametrize("lacking", [os.W_OK, os.X_OK])
def test_a_cache_is_written_to_and_searched(project, tmp_path, monkeypatch, lacking):
    monkeypatch.setattr(host.os, "access", lambda place, mode: not mode & lacking)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    what = f"{tmp_path}/cache is not writable"
    assert [*host.cache(project)] == [Observation("cache", "missing", what, "set ENVPACK_CACHE_DIR to another folder")]


def test_a_cache_on_another_file_system_copies_environments(disk, project, tmp_path, other_file_system, monkeypatch):
    disk(free=5 * GIB)
    monkeypatch.setenv("ENVPACK_CACHE_DIR", f"{other_file_system}/cache")
    what = f"{other_file_system}/cache, 5.0 GiB free; {tmp_path} is on another file system, so environments are copied"
    fix = "set ENVPACK_CACHE_DIR to a folder on that file system"
    assert [*host.cache(project)] == [Observation("cache", "warn", f"{what} instead of linked", fix)]


# Pythons


@pytest.fixture
def found(monkeypatch):
    """Sets which Pythons are here, which can be fetched, and how their address answers.

    One that begins with - has no shared library, with ! no headers.
    """

    def change(*here, offered=(), answer=""):
        every = [one(version) for version in here]
        monkeypatch.setattr(host, "available_interpreters", lambda: every)
        fetch = {minor: f"https://{minor.replace('.', '-')}.example/python.tar" for minor in offered}
        monkeypatch.setattr(host, "fetchable", lambda seconds: fetch)
        monkeypatch.setattr(host, "unreachable", lambda url: answer)
        monkeypatch.setattr(host, "interpreter_here", absent)

    def one(version):
        minor = version.rpartition(".")[0].strip("-!")
        with_library, with_headers = version[0] != "-", version[0] != "!"
        return SimpleNamespace(minor=minor, version=version.strip("!"), library=with_library, has_headers=with_headers)

    def absent(minor, *, headers):
        raise InputError("python-missing", "none", f"install Python {minor}")

    monkeypatch.delenv("UV_OFFLINE", raising=False)
    return change


def missing(*here):
    return f"not installed: {', '.join(minor for minor in SUPPORTED if minor not in here)}"


def test_pythons_are_listed_by_what_they_are_good_for(found, project):
    found("3.8.1", "-3.10.2", "3.12.3", offered=("3.8", "3.9", "3.11"))
    assert [*host.pythons(project)] == [
        Observation(
            "Pythons",
            "ok",
            "3.8.1, 3.12.3; without shared library: 3.10; fetched from 3-11.example when needed: 3.9, 3.11; "
            + missing("3.8", "3.9", "3.10", "3.11", "3.12"),
        )
    ]


def test_a_python_without_headers_is_not_said_to_be_enough_for_a_stub(found, project, monkeypatch):
    found("3.8.1", "!3.11.2")
    (seen,) = host.pythons(project)
    assert (seen.state, seen.fix) == ("warn", "install Python 3.11")
    without = "without the headers that a stub is compiled with: 3.11"
    assert seen.what == f"3.8.1, 3.11.2; {without}; {missing('3.8', '3.11')}"
    found("!3.11.2", "3.11.4")
    assert [seen.state for seen in host.pythons(project)] == ["ok"], "another one of this version has them"
    found("!3.11.2", offered=("3.11",))
    (seen,) = host.pythons(project)
    assert (seen.state, "fetched from 3-11.example when needed: 3.11" in seen.what) == ("ok", True)
    found("!3.11.2")
    monkeypatch.setattr(host, "prebuilt_pythons", lambda machine: ("3.11",))
    assert [seen.state for seen in host.pythons(project)] == ["ok"], "its stub need not be compiled"


def test_a_python_that_can_be_fetched_is_enough(found, project):
    found(offered=SUPPORTED)
    (seen,) = host.pythons(project)
    assert seen.state == "ok"
    assert seen.what == (
        f"none with a shared library; fetched from {SUPPORTED[-1].replace('.', '-')}.example when needed: "
        + ", ".join(SUPPORTED)
    )


def test_without_any_python_the_first_one_is_what_to_install(found, project):
    found()
    (seen,) = host.pythons(project)
    assert seen == Observation(
        "Pythons", "missing", f"none with a shared library; {missing()}", f"install Python {SUPPORTED[0]}"
    )
    found("-3.11.4")
    (seen,) = host.pythons(project)
    assert (seen.state, seen.fix) == ("missing", "install Python 3.11"), "one without a library is here already"


def test_a_python_that_is_there_after_all_needs_no_advice(found, project, monkeypatch):
    found()
    monkeypatch.setattr(host, "interpreter_here", lambda minor, *, headers: "here")
    (seen,) = host.pythons(project)
    assert (seen.state, seen.fix) == ("missing", "")


def test_why_no_python_can_be_fetched_is_said(found, project, monkeypatch):
    found("3.8.1", offered=("3.9",), answer=": unreachable")
    (seen,) = host.pythons(project)
    assert seen.what == f"3.8.1; uv cannot fetch others from 3-9.example: unreachable; {missing('3.8')}"
    assert seen.state == "ok"

    def refuse(seconds):
        raise FetchError("no list")

    monkeypatch.setattr(host, "fetchable", refuse)
    (seen,) = host.pythons(project)
    assert seen.what == f"3.8.1; uv cannot fetch others: no list; {missing('3.8')}"
    monkeypatch.setenv("UV_OFFLINE", "1")
    (seen,) = host.pythons(project)
    assert seen.what == f"3.8.1; UV_OFFLINE forbids uv to fetch others; {missing('3.8')}"
    (seen,) = host.pythons(project.saying(Settings(python_preference="only-system")))
    assert seen.what == f"3.8.1; {missing('3.8')}"


def test_a_folder_of_pythons_that_is_closed_is_named(found, project, monkeypatch):
    found("3.8.1")
    monkeypatch.setattr(host, "unreadable_folders", lambda: ["PYENV_ROOT=/opt/pyenv"])
    (seen,) = host.pythons(project)
    assert seen == Observation(
        *("Pythons", "warn", f"3.8.1; {missing('3.8')}; PYENV_ROOT=/opt/pyenv cannot be read"),
        "let this user read the folder, or unset the variable",
    )

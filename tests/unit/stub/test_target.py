"""What a stub is compiled against is checked before the compiler sees it."""

import pytest

from envpack.conda.interpreters import Interpreter
from envpack.settings.pythons import FREE_THREADED
from envpack.stub import target
from envpack.stub.target import target_from_interpreter, target_from_prefix
from envpack.support.errors import EnvpackError
from tests.unit.stub.elf_files import (
    EM_386,
    EM_AARCH64,
    EM_ARM,
    EM_RISCV,
    EM_X86_64,
    write_header,
    write_musl_library,
)


def _headers(folder, python="python3.9"):
    (folder / python).mkdir(parents=True)
    for name in ("Python.h", "pyconfig.h"):
        (folder / python / name).touch()


@pytest.fixture
def prefix(tmp_path):
    """A prefix whose library is still to be written."""
    _headers(tmp_path / "include")
    (tmp_path / "lib").mkdir()
    return tmp_path


def _refusal(prefix):
    with pytest.raises(EnvpackError) as caught:
        target_from_prefix(prefix)
    return caught.value


def test_a_prefix_as_conda_makes_it(prefix):
    write_header(prefix / "lib/libpython3.9.so.1.0", EM_X86_64)
    found = target_from_prefix(prefix)
    assert (found.minor, found.machine, found.platform) == ("3.9", "x86_64", "linux-64")
    assert found.include == prefix / "include/python3.9"
    assert found.configuration == prefix / "include/python3.9/pyconfig.h"
    assert found.multiarch_include is None


def test_packages_of_debian_for_another_machine(tmp_path):
    library = tmp_path / "usr/lib/aarch64-linux-gnu/libpython3.11.so.1.0"
    write_header(library, EM_AARCH64)
    _headers(tmp_path / "usr/include", "python3.11")
    _headers(tmp_path / "usr/include/aarch64-linux-gnu", "python3.11")
    found = target_from_prefix(tmp_path)
    assert (found.minor, found.platform, found.library) == ("3.11", "linux-aarch64", library)
    assert found.include == tmp_path / "usr/include/python3.11"
    assert found.configuration == tmp_path / "usr/include/aarch64-linux-gnu/python3.11/pyconfig.h"
    assert found.multiarch_include == tmp_path / "usr/include"


def test_a_prefix_without_libpython(prefix):
    assert _refusal(prefix).kind == "libpython-missing"


def test_a_prefix_with_a_static_libpython_only(prefix):
    (prefix / "lib/libpython3.9.a").touch()
    error = _refusal(prefix)
    assert error.kind == "libpython-missing"
    assert error.message == "no shared libpython (libpython3.x.so.1.0), which a stub requires"
    assert error.hint == "give an environment made by `envpack build`, or a Python that was built with --enable-shared"


@pytest.mark.parametrize("missing", ["Python.h", "pyconfig.h"])
def test_a_prefix_without_headers(prefix, missing):
    write_header(prefix / "lib/libpython3.9.so.1.0", EM_X86_64)
    (prefix / "include/python3.9" / missing).unlink()
    error = _refusal(prefix)
    assert (error.kind, error.where) == ("headers-missing", str(prefix / "include/python3.9"))
    assert error.message == "the headers of Python 3.9 are missing"
    assert error.hint == "install them, for example the package libpython3.9-dev"


@pytest.mark.parametrize(
    ("minor", "shape"),
    [("3.5", "is too old: pybind11"), ("3.13t", f"is free-threaded: {FREE_THREADED}"), ("3.99", "is not supported")],
)
def test_a_prefix_with_a_python_that_no_stub_embeds(prefix, minor, shape):
    write_header(prefix / f"lib/libpython{minor}.so.1.0", EM_X86_64)
    error = _refusal(prefix)
    assert (error.kind, error.exit_code) == ("bad-python-version", 2)
    assert error.message.startswith(f"Python version {minor!r} {shape}")


@pytest.mark.parametrize(
    ("machine", "bits", "says"),
    [
        (EM_386, 32, "is for a 32-bit machine (x86)"),
        (EM_ARM, 32, "is for a 32-bit machine (ARM)"),
        (EM_X86_64, 32, "is for a 32-bit machine (x64)"),
        (EM_RISCV, 64, "is for another machine (RISC-V)"),
    ],
)
def test_a_libpython_for_a_machine_without_stubs(prefix, machine, bits, says):
    library = prefix / "lib/libpython3.9.so.1.0"
    write_header(library, machine, bits)
    error = _refusal(prefix)
    assert (error.kind, error.exit_code, error.where) == ("libpython-unusable", 5, str(library))
    assert error.message == f"this libpython {says}"


@pytest.mark.parametrize("name", ["libc.musl-x86_64.so.1", "libc.so"])
def test_a_libpython_for_musl(prefix, name):
    write_musl_library(prefix / "lib/libpython3.9.so.1.0", name)
    error = _refusal(prefix)
    assert error.kind == "libpython-unusable"
    assert error.message == "this libpython was built for musl, the C library of Alpine; Triton's images have glibc"
    assert error.hint == "stubs exist for linux-64 and linux-aarch64 with glibc; use a Python for one of these"


@pytest.mark.parametrize("content", [b"", b"INPUT ( libpython3.9.so )", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(20)])
def test_a_libpython_that_is_none(prefix, content):
    (prefix / "lib/libpython3.9.so.1.0").write_bytes(content)
    error = _refusal(prefix)
    assert error.kind == "libpython-unusable"
    assert error.message == "this libpython is not a readable ELF file"


def test_an_interpreter_without_headers(tmp_path, monkeypatch):
    library = tmp_path / "libpython3.9.so.1.0"
    write_header(library, EM_X86_64)
    include = tmp_path / "include/python3.9"
    found = Interpreter(
        version="3.9.1",
        minor="3.9",
        executable=tmp_path / "python3.9",
        prefix=tmp_path,
        library=library,
        include=include,
        stdlib=tmp_path,
    )
    monkeypatch.setattr(target, "interpreter_for", lambda _, **_options: found)
    with pytest.raises(EnvpackError) as caught:
        target_from_interpreter("3.9")
    assert (caught.value.kind, caught.value.where) == ("headers-missing", str(include))

"""A channel and an index that tests serve on 127.0.0.1, with packages for every situation."""

import dataclasses
import shutil
from pathlib import Path

from envpack.conda.channels import InterpreterPackage, local_channel
from envpack.conda.choice import interpreter_for
from envpack.conda.interpreters import Interpreter
from tests.conda_packages import PLACEHOLDER, index, make_conda_package
from tests.wheels import make_source, make_wheel, write_index

PYTHON = "3.10"
MODULE = "VALUE = {}\n"
# What a small Python lacks of its standard library; the rest of `encodings` and `lib-dynload` is listed below.
_LACKING = shutil.ignore_patterns(
    *("asyncio", "config-*", "curses", "ensurepip", "idlelib", "lib2to3", "multiprocessing", "pydoc*"),
    *("__pycache__", "site-packages", "test", "tests", "tkinter", "turtle*", "unittest", "wsgiref", "xml*"),
)
_ENCODINGS = {"__init__", "aliases", "ascii", "cp437", "idna", "latin_1", "utf_8", "utf_8_sig"}
_EXTENSIONS = {
    *("_bisect", "_blake2", "_bz2", "_contextvars", "_csv", "_ctypes", "_datetime", "_hashlib", "_heapq", "_json"),
    *("_lzma", "_opcode", "_pickle", "_posixsubprocess", "_queue", "_random", "_sha3", "_sha512", "_socket"),
    *("_sqlite3", "_ssl", "_struct", "array", "binascii", "fcntl", "grp", "math", "select", "unicodedata", "zlib"),
}


def small_python(cache: Path) -> InterpreterPackage:
    """A channel with a Python that has what installers and these tests import, so environments are made quickly."""
    found = interpreter_for(PYTHON)
    return local_channel(dataclasses.replace(found, stdlib=small_library(found, cache / "stdlib")), cache=cache)


def small_library(found: Interpreter, folder: Path) -> Path:
    """A copy of the part of a standard library that installers and these tests import."""
    library = shutil.copytree(found.stdlib, folder, ignore=_LACKING)
    for part, kept in (("encodings", _ENCODINGS), ("lib-dynload", _EXTENSIONS)):
        for file in (library / part).iterdir():
            if file.name.partition(".")[0] not in kept:
                file.unlink()
    return library


def fill_channel(channel: Path, python: InterpreterPackage) -> None:
    (channel / "linux-64").mkdir(parents=True)
    shutil.copy(python.file, channel / "linux-64")
    for version in ("1.0", "1.1"):
        make_conda_package(channel, "plain", version, {f"share/plain-{version}": b"x"})
    make_conda_package(
        channel,
        "rooted",
        "1.0",
        {
            "etc/rooted.conf": f"root = {PLACEHOLDER}/share\n".encode(),
            "lib/rooted.bin": b"\x01" + PLACEHOLDER.encode() + b"/share\0end\0",
            "bin/rooted": f"#!{PLACEHOLDER}/bin/python\nprint('rooted')\n".encode(),
        },
        depends=("plain",),
    )
    shared = {
        "site-packages/shared/__init__.py": b"VALUE = 'conda'\n",
        "site-packages/shared-2.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: shared\nVersion: 2.0\n",
        "site-packages/shared-2.0.dist-info/INSTALLER": b"conda",
        "site-packages/shared-2.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "site-packages/shared-2.0.dist-info/RECORD": (
            b"shared/__init__.py,,\nshared-2.0.dist-info/METADATA,,\nshared-2.0.dist-info/INSTALLER,,\n"
            b"shared-2.0.dist-info/RECORD,,\n"
        ),
    }
    make_conda_package(channel, "shared", "2.0", shared, noarch="python", depends=("python",))
    arm = {"lib/libpython3.10.so.1.0": b"x", "lib/python3.10/os.py": b"X = 1\n", "bin/python3": b"x"}
    make_conda_package(channel, "python", "3.10.99", arm, subdir="linux-aarch64")
    for version in ("1.0", "1.1"):
        module = {"site-packages/under_scored.py": MODULE.format(repr(version)).encode()}
        make_conda_package(channel, "under_scored", version, module, noarch="python", depends=("python",))
    make_conda_package(channel, "gpu", "1.0", {"share/gpu": b"x"}, depends=("__cuda >=12",))
    index(channel)


def fill_index(root: Path) -> None:
    files = root / "files"
    for version in ("1.0", "1.1", "1.2"):
        make_wheel(files, "leaf", version, {"leaf.py": MODULE.format(repr(version))})
    make_wheel(files, "tree", "1.0", {"tree.py": MODULE.format(1)}, needs=("leaf",), scripts=("grow = tree:VALUE",))
    make_wheel(files, "uses_shared", "1.0", {"uses_shared.py": "import shared\n"}, needs=("shared",))
    make_wheel(files, "wants_new_shared", "1.0", {"wants_new_shared.py": ""}, needs=("shared>=3",))
    make_wheel(files, "shared", "3.0", {"shared/__init__.py": "VALUE = 'pip'\n"})
    make_wheel(
        files, "armed", "1.0", {"armed.py": ""}, tag="cp310-cp310-manylinux_2_17_aarch64", scripts=("arm = armed:main",)
    )
    make_wheel(files, "outward", "1.0", {"outward.pth": "/somewhere/else\n"})
    make_wheel(files, "numpy", "1.0", {"numpy/__init__.py": "__version__ = '1.0'\n"})
    make_source(files, "sourced", "1.0")
    make_source(files, "unbuildable", "1.0", fails="error: command 'gcc' failed: No such file or directory")
    write_index(root, yanked=("leaf-1.2-py3-none-any.whl",))

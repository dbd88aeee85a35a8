"""Execution environments with Debian's own Python, for other machines than this one."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

from envpack.conda.choice import interpreter_for
from envpack.conda.interpreters import available_interpreters
from envpack.environment.relocation import write_activation
from envpack.support.elf import needed_libraries
from envpack.support.errors import EnvpackError
from envpack.support.replacement import replaced_folder
from tests.conda_packages import index, make_conda_package

NUMPY = "1.26.4"
# Libraries of the system, which an environment must not contain.
GLIBC = ("ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "libresolv.so", "librt.so", "libutil.so")


def environment_from(root, minor, machine, folder):
    """Python, its libraries and NumPy from a root file system; made once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with replaced_folder(folder) as made:
                _copy_python(root, minor, machine, made)
                _install_numpy(minor, machine, made / "lib/python3/dist-packages")
                _compile(minor, made / "lib")
                write_activation(made)
    return folder


def need_same(minor):
    """An interpreter of this machine, of the same version as the other's, writes the byte code."""
    if not any(found.minor == minor for found in available_interpreters()):
        pytest.skip(f"no Python {minor} on this machine, to compile for the other one")
    return minor


def channel_from(root, minor, machine, folder):
    """A conda channel with the Python of a root file system; made once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with replaced_folder(folder) as made, tempfile.TemporaryDirectory() as scratch:
                tree = Path(scratch) / "tree"
                tree.mkdir()
                _copy_python(root, minor, machine, tree)
                files = {str(file.relative_to(tree)): file.read_bytes() for file in tree.rglob("*") if file.is_file()}
                # The folder that Debian's Python searches for packages.
                files["lib/python3/dist-packages"] = Path(f"../python{minor}/site-packages")
                subdir = f"linux-{machine}"
                make_conda_package(made, "python", f"{minor}.0", files, subdir=subdir)
                index(made)
    return folder


def _compile(minor, folder):
    """Write byte code with an interpreter of this machine: an emulator is slow and repeats it at each start."""
    with contextlib.suppress(EnvpackError):
        command = [interpreter_for(minor).executable, "-m", "compileall", "-q", "--invalidation-mode=unchecked-hash"]
        subprocess.run([*command, "-x", "tests?/|lib2to3", folder], check=False, capture_output=True)


def _copy_python(root, minor, machine, folder):
    standard = folder / f"lib/python{minor}"
    shutil.copytree(root / f"usr/lib/python{minor}", standard, ignore=shutil.ignore_patterns("config-*", "sitecustom*"))
    (folder / "bin").mkdir()
    shutil.copy(root / f"usr/bin/python{minor}", folder / "bin/python3")
    libraries = [root / f"lib/{machine}-linux-gnu", root / f"usr/lib/{machine}-linux-gnu"]
    copy_library(f"libpython{minor}.so.1.0", libraries, folder / "lib")
    for module in standard.glob("lib-dynload/*.so"):
        _copy_needed(module, libraries, folder / "lib")


def copy_library(name, sources, folder):
    """Copy a library and its dependencies from the folders of a root file system."""
    if name.startswith(GLIBC) or (folder / name).exists():
        return
    found = next((source / name for source in sources if (source / name).is_file()), None)
    if found is not None:  # without its library, a module fails only when it is imported
        shutil.copy(found, folder / name)
        _copy_needed(found, sources, folder)


def _copy_needed(file, sources, folder):
    from elftools.elf.elffile import ELFFile

    with file.open("rb") as content:
        names = needed_libraries(ELFFile(content))
    for name in names:
        copy_library(name, sources, folder)


def _install_numpy(minor, machine, folder):
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "install", "--quiet", "--only-binary", ":all:", "--target", folder, f"numpy=={NUMPY}"]
    options = ["--python-version", minor, "--python-platform", f"{machine}-manylinux_2_28"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NumPy {NUMPY} for Python {minor} on {machine} could not be installed: {done.stderr[-300:]}")

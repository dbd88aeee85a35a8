"""ELF files that no compiler of this machine would make."""

import shutil
import struct
import subprocess
from pathlib import Path

from envpack.support.elf import _patchelf

EM_386, EM_ARM, EM_X86_64, EM_AARCH64, EM_RISCV = 3, 40, 62, 183, 243
_ET_DYN = 3


def write_header(path, machine, bits=64):
    """A shared library that ends behind its header."""
    identity = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    address = "Q" if bits == 64 else "I"
    size = 64 if bits == 64 else 52
    fields = struct.pack(f"<HHI3{address}I6H", _ET_DYN, machine, 1, 0, 0, 0, 0, size, 0, 0, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(identity + fields)


def write_library(path):
    """A small real library of this machine (glibc's libdl, 20 kB) in the place of a large one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(_library_of_this_process("libc.so.6").with_name("libdl.so.2"), path)


def write_musl_library(path, name="libc.musl-x86_64.so.1"):
    """A real library of this machine that says it needs musl."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(_library_of_this_process("libc.so.6").with_name("libm.so.6"), path)
    subprocess.run([_patchelf(), "--replace-needed", "libc.so.6", name, path], check=True)


def _library_of_this_process(name):
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in mapped if line.endswith(f"/{name}"))

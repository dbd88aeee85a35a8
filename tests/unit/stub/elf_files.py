"""ELF files that no compiler of this machine would make."""

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import envpack
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


def write_stub(path, python="3.10", *, machine=EM_X86_64, version=envpack.__version__):
    """A file with the facts of a stub of envpack; it cannot be run. The C library stands for its libpython."""
    facts = {"libpython": "libc.so.6", "python": python, "epochs": ["23.04", "24.10"], "version": version}
    facts |= {"compiler": "GNU 12.2.0", "numpy": [1, 2]}
    body = for_any_release(_library_of_this_process("libc.so.6").with_name("libdl.so.2"))
    names = b"\0.envpack.facts\0.envpack.body\0.shstrtab\0"
    content, sections = b"", [bytes(64)]
    for name, data in (
        (b".envpack.facts", json.dumps(facts).encode()),
        (b".envpack.body", body),
        (b".shstrtab", names),
    ):
        kind = 3 if name == b".shstrtab" else 1
        sections.append(
            struct.pack("<IIQQQQIIQQ", names.index(name), kind, 0, 0, 64 + len(content), len(data), 0, 0, 1, 0)
        )
        content += data
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    fields = (_ET_DYN, machine, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, len(sections), len(sections) - 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(identity + struct.pack("<HHI3QI6H", *fields) + content + b"".join(sections))
    path.chmod(0o755)
    return path


def write_library(path):
    """A small real library of this machine (glibc's libdl, 20 kB) in the place of a large one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(for_any_release(_library_of_this_process("libc.so.6").with_name("libdl.so.2")))


def for_any_release(library: Path) -> bytes:
    """A library of this machine that says it needs no newer C library than the oldest images have."""
    return re.sub(rb"GLIBC_2\.(3[2-9]|[4-9]\d)\0", b"GLIBC_2.17\0", library.read_bytes())


def write_musl_library(path, name="libc.musl-x86_64.so.1"):
    """A real library of this machine that says it needs musl."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(_library_of_this_process("libc.so.6").with_name("libm.so.6"), path)
    subprocess.run([_patchelf(), "--replace-needed", "libc.so.6", name, path], check=True)


def _library_of_this_process(name):
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in mapped if line.endswith(f"/{name}"))

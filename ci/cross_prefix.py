"""A Python for another machine, as far as compiling a stub needs one: headers, and a libpython to link with.

Debian has no Python 3.8, 3.10 and 3.12 for arm64. The headers are the same on all machines except for the macros below,
and the linker needs only the name and the symbols of libpython. tests/portability compares the result with Debian's
packages for arm64.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from envpack.stub.target import StubTarget, target_from_interpreter, target_from_prefix
from envpack.stub.toolchain import find_toolchain
from envpack.support.folders import cache_root
from envpack.support.processes import clean_environment

# How pyconfig.h differs between x86-64 and aarch64: all differences between Debian's packages libpython3.9-dev,
# libpython3.11-dev and libpython3.13-dev for amd64 and arm64. None stands for "not defined".
MACROS = {
    "x86_64": {
        "HAVE_GCC_ASM_FOR_X64": "1",
        "HAVE_GCC_ASM_FOR_X87": "1",
        "HAVE_USABLE_WCHAR_T": None,
        "PY_SUPPORT_TIER": "1",
    },
    "aarch64": {
        "HAVE_GCC_ASM_FOR_X64": None,
        "HAVE_GCC_ASM_FOR_X87": None,
        "HAVE_USABLE_WCHAR_T": "1",
        "PY_SUPPORT_TIER": "2",
    },
}


def cross_target(minor: str, machine: str, folder: Path) -> StubTarget:
    """The Python ``minor`` of this machine as one of another machine, in a folder that need not exist."""
    here = target_from_interpreter(minor)
    include = folder / "include" / f"python{minor}"
    shutil.copytree(here.include, include)
    configuration = here.configuration.read_text(encoding="utf-8")
    (include / "pyconfig.h").write_text(for_machine(configuration, machine), encoding="utf-8")
    (folder / "lib").mkdir()
    _link_library(here.library, machine, folder / "lib" / f"libpython{minor}.so.1.0")
    return target_from_prefix(folder)


def for_machine(configuration: str, machine: str) -> str:
    """The text of a ``pyconfig.h`` with the macros of a machine."""
    for name, value in MACROS[machine].items():
        line = f"#define {name} {value}" if value else f"/* #undef {name} */"
        configuration = re.sub(rf"^(#define {name} .*|/\* #undef {name} \*/)$", line, configuration, flags=re.MULTILINE)
    return configuration


def _link_library(library: Path, machine: str, output: Path) -> None:
    """Write a shared library with the name and the symbols of another one, and nothing behind them."""
    lines = [".text"]
    for name, kind in _symbols(library):
        lines += [f".globl {name}", f".type {name}, %{kind}", f"{name}:", ".byte 0", f".size {name}, 1"]
    source = output.with_suffix(".s")
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["-shared", "-nostdlib", f"-Wl,-soname,{output.name}", "-o", output, source]
    compiler = find_toolchain("zig", machine=machine).compiler
    caches = {name: str(cache_root() / "zig") for name in ("ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR")}
    subprocess.run([*compiler, *options], env=clean_environment() | caches, check=True)
    source.unlink()


def _symbols(library: Path) -> Iterable[tuple[str, str]]:
    """Name and type of each symbol that a library defines for others."""
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        for symbol in ELFFile(file).get_section_by_name(".dynsym").iter_symbols():
            is_defined = symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] in {"STB_GLOBAL", "STB_WEAK"}
            if is_defined and symbol.name.lstrip("_").startswith("Py"):
                yield symbol.name, "object" if symbol["st_info"]["type"] == "STT_OBJECT" else "function"

"""Whether a stub can be made for a libpython: what its ELF file says, without loading it."""

from __future__ import annotations

from pathlib import Path

from envpack.stub.platforms import PLATFORMS, is_supported, machine_named
from envpack.support.elf import needed_libraries
from envpack.support.errors import StubError

_HINT = f"stubs are made for {' and '.join(PLATFORMS)}, with glibc; use a Python of one of those"


def machine_of(library: Path) -> str:
    """The machine that a libpython is for, such as ``"x86_64"``.

    Raises:
        StubError: no stub can be made for it (``libpython-unusable``): 32 bits, another machine, musl, or no ELF file.
    """
    from elftools.elf.elffile import ELFFile

    try:
        with library.open("rb") as file:
            elf = ELFFile(file)
            bits, machine, architecture = elf.elfclass, machine_named(elf["e_machine"]), elf.get_machine_arch()
            needed = needed_libraries(elf)
    except Exception as error:  # of a damaged file the parser makes whatever its first wrong step leads to
        raise _unusable(library, "is not a readable ELF file") from error
    if bits != 64:
        raise _unusable(library, f"is for a {bits}-bit machine ({architecture})")
    if not is_supported(machine):
        raise _unusable(library, f"is for another machine ({architecture})")
    if any(name == "libc.so" or name.startswith("libc.musl-") for name in needed):
        raise _unusable(library, "was built for musl, the C library of Alpine; Triton's images have glibc")
    return machine


def _unusable(library: Path, why: str) -> StubError:
    return StubError(f"this libpython {why}", kind="libpython-unusable", where=str(library), hint=_HINT)

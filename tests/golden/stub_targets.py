"""Prefixes of Pythons that a stub can be compiled against; nothing compiles it, and nothing runs them."""

from tests.unit.stub.elf_files import EM_AARCH64, EM_X86_64, write_header

_MACHINES = {"3.8": EM_X86_64, "3.12": EM_X86_64, "3.10": EM_AARCH64}


def write_pythons(folder):
    """Write each prefix into a folder of its minor version."""
    for minor, machine in _MACHINES.items():
        write_header(folder / f"{minor}/lib/libpython{minor}.so.1.0", machine)
        include = folder / f"{minor}/include/python{minor}"
        include.mkdir(parents=True)
        for name in ("Python.h", "pyconfig.h"):
            (include / name).touch()

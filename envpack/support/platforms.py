"""The platforms that envpack builds for, by conda's names for them, and names of Python's shared library."""

from __future__ import annotations

import os
import re

# Processor by platform, as Python and ELF tools name it.
MACHINES = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}
PLATFORMS = tuple(MACHINES)
_OF_ELF = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_OTHER_SPELLINGS = {f"linux-{machine}": platform for platform, machine in MACHINES.items()}


def platform_name(text: str) -> str:
    """Conda's name of a platform that may be spelled otherwise; an unknown text as it is.

    >>> platform_name("linux-x86_64")
    'linux-64'
    """
    return _OTHER_SPELLINGS.get(text, text)


def platform_of_machine(machine: str) -> str:
    """Conda's name of the platform with a processor such as ``"x86_64"``, for example ``"linux-64"``."""
    return platform_name(f"linux-{machine}")


def host_platform() -> str:
    return platform_of_machine(this_machine())


def this_machine() -> str:
    return os.uname().machine


def host_glibc() -> str:
    """The version of this machine's C library, such as ``"2.36"``; ``""`` if it is another one than glibc."""
    return (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")


def is_supported(machine: str) -> bool:
    return platform_of_machine(machine) in PLATFORMS


def machine_named(elf_machine: str) -> str:
    """``"x86_64"`` for ELF's ``EM_X86_64``; other processors than those of `PLATFORMS` keep ELF's name."""
    return _OF_ELF.get(elf_machine, elf_machine)


# Up to 3.7 an "m" stands for Python's own memory allocator, with which every distribution builds it.
_WITH_ALLOCATOR = ("3.6", "3.7")
_NAME = re.compile(r"libpython(3\.\d+t?)m?\.so\.1\.0")


def abi_flags(minor: str) -> str:
    """What stands behind the minor version in names of files: ``"m"`` for 3.6 and 3.7, ``""`` for later ones."""
    return "m" if minor in _WITH_ALLOCATOR else ""


def libpython_name(minor: str) -> str:
    """For example ``libpython3.8.so.1.0`` or ``libpython3.7m.so.1.0``."""
    return f"libpython{minor}{abi_flags(minor)}.so.1.0"


def minor_of_libpython(name: str) -> str:
    """The minor version of a library by its file name, for example ``"3.8"``; ``""`` if it is another file."""
    match = _NAME.fullmatch(name)
    return match[1] if match else ""

"""The platforms that stubs are made for."""

from __future__ import annotations

import platform
from typing import Literal, get_args

PlatformName = Literal["linux-x86_64", "linux-aarch64"]
PLATFORMS: tuple[PlatformName, ...] = get_args(PlatformName)

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


def machine_named(elf_machine: str) -> str:
    """``"x86_64"`` for ELF's ``EM_X86_64``; what stubs are not made for keeps ELF's name."""
    return _MACHINES.get(elf_machine, elf_machine)


def is_supported(machine: str) -> bool:
    """Whether stubs are made for a machine such as ``"x86_64"``."""
    return f"linux-{machine}" in PLATFORMS


def this_machine() -> str:
    """The machine that this process runs on."""
    return platform.machine()

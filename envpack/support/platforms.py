"""The platforms that envpack builds for, by conda's names for them."""

from __future__ import annotations

# Processor by platform, as Python and ELF tools name it.
MACHINES = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}
PLATFORMS = tuple(MACHINES)
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

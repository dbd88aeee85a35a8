"""Entries of an environment file that are for another platform: selectors, and what Windows and macOS export."""

from __future__ import annotations

import re

# Packages that no Linux has, in conda or on the package index; a star stands for the rest of a name.
_ONLY_WINDOWS = (
    *(
        "console_shortcut*",
        "icc_rt",
        "m2w64-*",
        "menuinst",
        "msys2-*",
        "pypiwin32",
        "pyreadline",
        "pywin32",
        "pywinpty",
    ),
    *("ucrt", "vc", "vc14_runtime", "vcomp14", "vs20*_runtime", "win_inet_pton", "wincertstore", "windows-curses"),
    *("win-inet-pton", "winpty"),
)
_ONLY_MACOS = ("applaunchservices", "appnope", "pyobjc*", "python.app", "tensorflow-macos", "tensorflow-metal")
_WINDOWS_PREFIX = re.compile(r"[A-Za-z]:[\\/]")
_MACOS_PREFIX = re.compile(r"/(?:Users|Applications|opt/homebrew|usr/local/(?:Caskroom|anaconda|miniconda))")
_SELECTOR = re.compile(r"\s#\s*\[(?P<selector>[^\]#]+)\]\s*$")


def system_of_prefix(prefix: str) -> str:
    """The system that a ``prefix`` of an exported environment belongs to: ``"Windows"``, ``"macOS"``, or ``""``."""
    if _WINDOWS_PREFIX.match(prefix):
        return "Windows"
    return "macOS" if _MACOS_PREFIX.match(prefix) else ""


def only_system(name: str) -> str:
    """The system that is the only one with a package of this name: ``"Windows"``, ``"macOS"``, or ``""``."""
    for system, names in (("Windows", _ONLY_WINDOWS), ("macOS", _ONLY_MACOS)):
        if any(re.fullmatch(re.escape(known).replace(r"\*", ".*"), name.lower()) for known in names):
            return system
    return ""


def selector_of(line: str) -> str:
    """The selector in a comment at the end of a line, as ``win`` in ``- pywin32  # [win]``; ``""`` without one."""
    match = _SELECTOR.search(line)
    return match["selector"].strip() if match else ""


def selects(selector: str, platform: str) -> bool:
    """Whether a selector includes a platform."""
    true = {"linux", "unix", *({"linux64", "linux-64", "x86_64", "x86"} if platform == "linux-64" else ())}
    true |= {"aarch64", "linux-aarch64"} if platform == "linux-aarch64" else set()
    false = {"win", "win32", "win64", "win-64", "osx", "osx64", "osx-64", "osx-arm64", "arm64", "linux32", "armv7l"}
    false |= {"ppc64le", "s390x", "linux64", "linux-64", "x86_64", "x86", "aarch64", "linux-aarch64"} - true

    def holds(term: str) -> bool:
        name = term.strip().removeprefix("not ").strip()
        if name not in true | false:
            raise ValueError(f"unknown system {name!r}")
        return (name in true) != term.strip().startswith("not ")

    return any(all(holds(term) for term in part.split(" and ")) for part in selector.split(" or "))

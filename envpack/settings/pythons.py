"""The Pythons that stubs embed, and the pybind11 that the stub of each is compiled with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envpack.support.errors import UsageError


@dataclass(frozen=True)
class Pybind11:
    """A version of pybind11, and the Pythons whose stubs it compiles."""

    # The package that contains the headers. Two versions of one package cannot be installed together; pybind11-global
    # has the same headers as pybind11, under a second name.
    distribution: str
    version: str
    pythons: tuple[str, ...]  # minor versions, oldest first
    reason: str  # why these Pythons use this version

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


PYBIND11 = (
    Pybind11(
        "pybind11",
        "2.12.1",
        ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12"),
        "2.13 dropped Python 3.6; the stub is 4 % smaller than with 3.1",
    ),
    Pybind11(
        "pybind11-global",
        "3.1.0",
        ("3.13", "3.14", "3.15"),
        "2.12 ends at Python 3.12; 3.1 is the first that declares 3.15",
    ),
)
# Why no stub embeds a Python without the GIL; it completes a sentence.
FREE_THREADED = "the stub has no locks of its own for what Python's global interpreter lock protects"
SUPPORTED = tuple(minor for pybind11 in PYBIND11 for minor in pybind11.pythons)
_WITHOUT_DOWNLOAD = ("3.6", "3.7")  # uv has builds from 3.8 on


def is_fetchable(minor: str) -> bool:
    """Whether uv has builds of a supported Python, so that hints may name ``--set python_preference=managed``."""
    return minor not in _WITHOUT_DOWNLOAD


def pybind11_for(minor: str) -> Pybind11:
    return next(pybind11 for pybind11 in PYBIND11 if minor in pybind11.pythons)


def check_minor(minor: str, *, where: str = "") -> None:
    if minor not in SUPPORTED:
        what = f"Python version {minor!r} {_complaint(minor)}"
        raise UsageError("bad-python-version", what, f"supported: {', '.join(SUPPORTED)}", where)


def _complaint(minor: str) -> str:
    if re.fullmatch(r"\d+\.\d+t", minor):
        return f"is free-threaded: {FREE_THREADED}"
    if re.fullmatch(r"2\.\d+", minor):
        return "is too old: Triton's Python backend runs Python 3"
    if re.fullmatch(r"3\.[0-5]", minor):
        return f"is too old: pybind11, with which stubs are compiled, supports {SUPPORTED[0]} and later"
    return "is not supported" if re.fullmatch(r"\d+\.\d+", minor) else "is not a minor version like 3.10"

"""Finds the headers that a stub is compiled with: pybind11 for its Python, and Boost."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from envpack.conda import Pybind11, pybind11_for
from envpack.stub.toolchain import extra_missing, required_package_folder

# The headers with the version of each, below the folders.
PYBIND11_VERSION = "include/pybind11/detail/common.h"
BOOST_VERSION = "include/boost/version.hpp"


def boost_folder() -> Path:
    """The folder that contains ``include/boost``."""
    return required_package_folder("libboost_headers", "libboost-headers")


def pybind11_folder(minor: str) -> Path:
    """The folder that contains ``include/pybind11`` for the stub of a Python."""
    pybind11 = pybind11_for(minor)
    try:
        installed = importlib.metadata.distribution(pybind11.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise extra_missing(_needed(pybind11)) from None
    headers = [file for file in installed.files or () if file.as_posix().endswith(PYBIND11_VERSION)]
    if installed.version != pybind11.version or not headers:
        raise extra_missing(_needed(pybind11))
    return Path(str(headers[0].locate())).resolve().parents[PYBIND11_VERSION.count("/")]


def _needed(pybind11: Pybind11) -> str:
    return f"the Python package {pybind11.requirement}"


def header_folders(minor: str) -> list[Path]:
    """Both folders, for CMake."""
    return [boost_folder(), pybind11_folder(minor)]

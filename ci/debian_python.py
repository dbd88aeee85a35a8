"""A Python of Debian's testing release, as far as compiling a stub needs one: headers, and a libpython to link with.

It may be too new to run on this machine, and be for another machine.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from envpack.stub.target import StubTarget, target_from_prefix

SUITE = "forky"
IN_DEBIAN = ("3.14", "3.15")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def debian_target(minor: str, machine: str, folder: Path) -> StubTarget:
    """The Python ``minor`` for a machine, from packages that are unpacked into a folder that need not exist."""
    if shutil.which("mmdebstrap") is None:
        sys.exit(f"error: this machine has no Python {minor}; install mmdebstrap, to get Debian's, or give --prefix")
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--variant=extract", f"--architectures={ARCHITECTURES[machine]}", f"--include=libpython{minor}-dev"]
    # The lists of a testing release expire after a week, which a mirror may be behind. They stay signed.
    options += ['--aptopt=Acquire::Check-Valid-Until "false"', "--skip=check/qemu", "--quiet"]
    subprocess.run(["mmdebstrap", *options, SUITE, folder], check=True)
    return target_from_prefix(folder)

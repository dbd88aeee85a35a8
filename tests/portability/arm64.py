"""Programs of arm64 machines, run on this one by qemu-user with the libraries of a Debian root file system."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PYTHON = "3.11"
SUITE = "bookworm"
PACKAGES = (f"libpython{PYTHON}-dev", f"python{PYTHON}", "libstdc++6", "zlib1g")


@dataclass
class Arm64:
    """An emulated machine."""

    qemu: str
    root: Path

    def run(self, program, *arguments, variables=None, timeout=60):
        """Run to the end, with exactly these variables."""
        command = [self.qemu, "-L", self.root, program, *arguments]
        return subprocess.run(
            command, env=variables or {}, capture_output=True, text=True, timeout=timeout, check=False
        )

    def script(self, program, file, **variables):
        """A script for this machine that runs a program of the other, so that its caller needs no qemu command.

        A process forked from one with threads cannot start threads in qemu-user 7.2, and in such a one the stub lets
        a model complete its configuration; so NumPy's BLAS is configured to start none.
        """
        settings = {"OPENBLAS_NUM_THREADS": "1", **variables}
        options = " ".join(f"-E {name}={value}" for name, value in settings.items())
        file.write_text(f'#!/bin/sh\nexec {self.qemu} -L {self.root} {options} {program} "$@"\n')
        file.chmod(0o755)
        return file

    def beside(self, environment, folder):
        """The same environment with a python3 that runs here, as what stands in bin is executed."""
        shutil.copytree(
            environment, folder, symlinks=True, ignore=shutil.ignore_patterns("python3.11", "dist-packages")
        )
        for name in (f"lib/python{PYTHON}", "lib/python3/dist-packages"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(environment / name)
        (folder / "bin/python3").unlink()
        self.script(environment / "bin/python3", folder / "bin/python3")
        return folder

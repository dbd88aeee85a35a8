"""Pythons that this machine is too old for, in a root file system of Debian's testing release.

They need a newer glibc than the machines on which envpack is developed have. Programs in the root see the folders of
the tests under the same paths. The Triton server of the wheel runs there as well.
"""

import dataclasses
import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from envpack.conda.interpreters import available_interpreters
from envpack.stub.target import StubTarget, target_from_interpreter
from envpack.support.platforms import this_machine
from tests.cache import kept_cache
from tests.portability.machinery import debian_root, must_be_able_to_enter

SUITE = "forky"
PYTHONS = ("3.14", "3.15")
SYSTEM = ("base-files", "bash", "coreutils", "dash", "libc-bin", "libstdc++6")
PACKAGES = (*SYSTEM, *(name for minor in PYTHONS for name in (f"python{minor}", f"libpython{minor}-dev")))
CHECKOUT = Path(__file__).parents[1]
# What a program needs of the machine besides the tests' folders: kernel file systems, and how to reach package indexes.
OF_THE_MACHINE = ("/proc", "/sys", "/dev", "/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/etc/pip.conf")
ENTER = """
root=$1; shift
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; : >> "$root$1"; fi
  mount --rbind "$1" "$root$1" || exit 125
  shift
done
shift
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Root:
    """The root file system."""

    folder: Path

    def target(self, python):
        """What a stub is compiled against, on this machine."""
        library = self.folder / f"usr/lib/{this_machine()}-linux-gnu/libpython{python}.so.1.0"
        return StubTarget(python, this_machine(), self.folder / f"usr/include/python{python}", library)

    def command(self, *command):
        """The command that runs another one in the root."""
        own = (kept_cache(), tempfile.gettempdir(), CHECKOUT, sys.prefix, sys.base_prefix)
        folders = [str(folder) for folder in (*OF_THE_MACHINE, *own) if Path(folder).exists()]
        return ["unshare", "--mount", "sh", "-c", ENTER, "sh", str(self.folder), *folders, "--", *map(str, command)]

    def run(self, *command, **variables):
        """Run to the end, with the machine's variables and these."""
        environment = os.environ | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"} | variables
        return subprocess.run(
            self.command(*command), env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    def installation(self, installation, script):
        """A server that starts in the root, by a script."""
        command = self.command(installation.executable)
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
        return dataclasses.replace(installation, executable=script)


@functools.cache
def newer_root():
    """The root, made once; skips where none can be made or entered."""
    must_be_able_to_enter()
    return Root(debian_root(kept_cache() / f"debian/{SUITE}", SUITE, *PACKAGES, variant="extract"))


@functools.cache
def is_newer(python):
    """Whether a Python is only in the root."""
    return python in PYTHONS and not any(found.minor == python and found.library for found in available_interpreters())


def target_of(python):
    """What the stub of a Python is compiled against, of this machine or of the root."""
    return newer_root().target(python) if is_newer(python) else target_from_interpreter(python)


def server_for(python, installation, folder):
    """The server with which this Python runs; one that starts in the root gets a script in the folder."""
    return newer_root().installation(installation, folder / "tritonserver") if is_newer(python) else installation


@functools.cache
def newer_environment(python, numpy):
    """An execution environment that envpack builds in the root, with Debian's Python."""
    code = (
        f"import json, os, sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})\n"
        "from tests.built import build_environment; from envpack.requirements.model import Requirements\n"
        "glibc = os.confstr('CS_GNU_LIBC_VERSION').split()[1]\n"
        f"made = build_environment(Requirements(pip=('numpy=={numpy}',)), python={python!r}, glibc=glibc)\n"
        "print(json.dumps([made.python, str(made.prefix)]))"
    )
    done = newer_root().run(sys.executable, "-c", code, ENVPACK_CACHE_DIR=str(kept_cache() / "newer-pythons"))
    assert done.returncode == 0, done.stderr
    version, prefix = json.loads(done.stdout)
    assert version.startswith(f"{python}.")
    return Path(prefix)

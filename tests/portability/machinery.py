"""Programs and Debian packages that these tests need beyond what envpack installs.

What can be installed is; a test for which something cannot be had is skipped with its name.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

from envpack.support.replacement import replaced_folder


def program(name, package):
    """A program of a Debian package, which root installs if it is missing."""
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with FileLock(Path(tempfile.gettempdir()) / "envpack-apt.lock"):  # apt waits for no other apt
            if shutil.which(name) is None:
                _install(package)
    return shutil.which(name) or pytest.skip(f"{name}, of the Debian package {package}, is not installed")


def debian_root(folder, suite, *packages, machine="amd64", variant="essential"):
    """A root file system of a Debian release, made once: a minimal system and some packages.

    The variant ``extract`` holds the packages and what they need, unpacked and nothing more, so it can be for another
    machine. The apt of this machine and its state are not touched.
    """
    mmdebstrap = program("mmdebstrap", "mmdebstrap")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            options = [f"--variant={variant}", f"--architectures={machine}"]
            # The lists of a testing release expire after a week, which a mirror may be behind. They stay signed.
            options += ['--aptopt=Acquire::Check-Valid-Until "false"']
            options += [f"--include={','.join(packages)}"] if packages else []
            with replaced_folder(folder) as made:
                made.chmod(0o755)  # the user that downloads packages must be able to enter it
                done = _run(*_with_own_mounts(), mmdebstrap, *options, "--skip=check/qemu", "--quiet", suite, made)
                if done.returncode:
                    pytest.skip(f"no root file system of Debian {suite} for {machine}: {done.stderr[:500]}")
    return folder


def _with_own_mounts():
    """The command that runs another one whose mounts end with it, however it ends. Only root may and must."""
    command = ["unshare", "--mount"]
    return command if os.geteuid() == 0 and _run(*command, "true").returncode == 0 else []


def must_be_able_to_enter():
    """Entering a root file system requires root and a private mount namespace."""
    if os.geteuid() != 0:
        pytest.skip("entering a root file system takes root")
    done = _run("unshare", "--mount", "sh", "-c", "mount --bind /proc /proc && chroot / true")
    if done.returncode:
        pytest.skip(f"no root file system can be entered here: {done.stderr.strip()}")


def _install(package):
    install = ("apt-get", "install", "--yes", "--no-install-recommends", package)
    if _run(*install).returncode:
        _run("apt-get", "update")
        _run(*install)


def _run(*command):
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

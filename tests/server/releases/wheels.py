"""The servers of other releases, out of the nvidia-pytriton wheels that carry them."""

import contextlib
import subprocess
import sys

import pytest
from filelock import FileLock

from envpack.server.launch import find_server
from envpack.support.errors import ServerError
from envpack.support.replacement import replaced_folder


def server_of(release, cache):
    """The server of a release: the one that is installed if it is of that release, else fetched once and kept.

    Runs at the same time share one download. Skips the test if the server cannot be had.
    """
    with contextlib.suppress(ServerError):
        installed = find_server()
        if installed.release == release.name:
            return installed
    packages = cache / "servers" / f"nvidia-pytriton-{release.wheel}"
    packages.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{packages}.lock"):
        if not packages.is_dir():
            with replaced_folder(packages) as temporary:
                _install(release, temporary)
    return find_server(packages / "pytriton/tritonserver")


def _install(release, folder):
    # Without its dependencies: only the server inside of it is used. Every one is for Python 3 of any minor version.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    options = ["--no-compile", "--only-binary=:all:", "--target", folder, f"nvidia-pytriton=={release.wheel}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the server of Triton {release.name} could not be fetched: {done.stderr[-300:]}")

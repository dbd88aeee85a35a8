"""Machines and commands that do not give a good repository what it needs."""

import subprocess
import sys

from tests.faults.repositories.broken import KEYWORD, Broken, Site
from tests.faults.repositories.code import written

_PORT = "47613"
_HOLD_PORT = f"""import contextlib, socket, subprocess, sys
with contextlib.suppress(OSError):  # somebody else holds it
    held = socket.create_server(("127.0.0.1", {_PORT}))
sys.exit(subprocess.call(sys.argv[1:]))
"""
# Another /tmp for one command alone: a file system in memory, with the options given, on which the folders that are
# below /tmp are where they were. Other tests remove theirs at any moment: what is gone by then is left out.
_OTHER_TMP = """set -e
declare -A held
for folder in /tmp/*/; do
    if exec {number}<"$folder"; then held[$folder]=$number; fi
done
mount -t tmpfs -o "$1" tmpfs /tmp
shift
for folder in "${!held[@]}"; do
    mkdir "$folder"
    mount --no-canonicalize --bind "/proc/self/fd/${held[$folder]}" "$folder" || rmdir "$folder"
done
exec "$@"
"""


def _other_tmp(options: str) -> tuple[str, ...]:
    return ("unshare", "--mount", "bash", "-c", _OTHER_TMP, "other-tmp", options)


def _good(_: Site):
    pass


def _packed(site: Site):
    """The whole environment as an archive, which the server unpacks in /tmp."""
    subprocess.run(["tar", "-C", site.kit.environment, "-cf", site.model / "environment.tar", "."], check=True)
    site.name_environment(f"{KEYWORD}/environment.tar")


def _v(name, what, change, kind, reason, fix, **more):
    return Broken(name, what, change, kind, reason, fix, found_by="verify", **more)


ENTRIES = (
    _v(
        "port-taken",
        "another program has the port",
        _good,
        "port-taken",
        "port 47613 is in use",
        "choose another port, or name none to use a free one",
        options=("--set", f"port={_PORT}"),
        host=(sys.executable, "-c", _HOLD_PORT),
        step="start",
    ),
    _v(
        "server-missing",
        "there is no server where it should be",
        _good,
        "server-missing",
        "/opt/nowhere: this is not a Triton server",
        "name the tritonserver program, or install one",
        options=("--server", "/opt/nowhere"),
        step="start",
    ),
    _v(
        "server-argument",
        "the server does not know an argument",
        _good,
        "server-failed",
        "unrecognized option '--no-such-option'",
        "check server_arg if you set it",
        options=("--set", "server_arg=--no-such-option"),
        step="start",
    ),
    _v(
        "model-missing",
        "a named model is not in the repository",
        _good,
        "model-missing",
        "model 'absent' not found",
        "models of this repository: model_missing",
        options=("absent",),
        step="start",
    ),
    _v(
        "preload-unknown",
        "the library to preload is not installed",
        _good,
        "preload-not-found",
        "no library libnothing.so.1 on this machine",
        "install it … or give the path of a library",
        options=("--set", "preload=libnothing.so.1"),
        step="start",
    ),
    _v(
        "preload-missing",
        "the library to preload is not where it was said to be",
        _good,
        "preload-missing",
        "/usr/lib/libnothing.so.1 is not in the memory of process",
        "check that the server has the library, for its processor",
        options=("--set", "preload=/usr/lib/libnothing.so.1"),
        step="process",
    ),
    _v(
        "tmp-noexec",
        "programs must not be run from `/tmp` (noexec), where the server unpacks environments",
        _packed,
        "noexec-mount",
        "libpython3.10.so.1.0: failed to map segment from shared object",
        "mount it with exec, in a container with --tmpfs /tmp:exec",
        host=_other_tmp("noexec,size=1g"),
    ),
    _v(
        "tmp-full",
        "`/tmp` is too small for the unpacked environment",
        _packed,
        "disk-full",
        "archive_write_data_block() failed … Write failed",
        "free space in /tmp, where the server unpacks environments, or build with --format dir",
        host=_other_tmp("size=32m"),
    ),
    _v(
        "files-exhausted",
        "the model opens more files than the server may",
        written(initialize="self.files = [open('/dev/null') for _ in range(1 << 20)]"),
        "too-many-files",
        "Too many open files … /1/model.py:8 in initialize",
        "close files that the model no longer uses, or raise the server's limit",
        host=("prlimit", "--nofile=512:512", "--"),
    ),
)

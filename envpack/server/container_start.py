"""How an image's entrypoint and the server's command fit together, and why a server did not start in its container."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from envpack.server.daemon import daemon_errors
from envpack.server.launch import port_taken
from envpack.server.log import LIMIT, NO_MORE, files_limit, start_error
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.errors import ServerError
from envpack.support.platforms import this_machine

if TYPE_CHECKING:
    from docker.models.containers import Container

_SERVER = re.compile(r"(?:^|[/\s])tritonserver(?:\s|$)")
# What Docker's init and the runtimes of podman say of a program that is not there, or that this user may not run.
_NOT_STARTED = re.compile(r"exec tritonserver failed: |exec(?:utable file)?:? [\"'`]tritonserver[\"'`]")
_PORT_IN_USE = re.compile(r"address already in use|port is already allocated")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # by the names of images


def entrypoint_before(entrypoint: Sequence[str]) -> list[str] | None:
    """The words of an image's entrypoint that come before the server that it starts; None if it starts none."""
    words = list(itertools.takewhile(lambda word: not _SERVER.search(word), entrypoint))
    if len(words) == len(entrypoint):
        return None
    return [] if words[-1:] == ["-c"] else words  # a shell gets the server with its arguments as one word


def start_failed(log: str, image: str, container: Container) -> ServerError:
    lines = "\n".join(start_error(log)) or "(no output)"
    with daemon_errors():
        machine = _MACHINES.get(container.image.attrs.get("Architecture", ""), "")
    if machine and machine != this_machine():
        what = f"the image {image} is for {machine}, and this machine is {this_machine()}"
        return ServerError("server-failed", f"{what}:\n{lines}", "name an image for this machine with --image")
    if _NOT_STARTED.search(log):
        what = f"the image {image} has no tritonserver that any user can start:\n{lines}"
        fix = f"name an image of a Triton server with --image, such as {find_release(DEFAULT_RELEASE).image}"
        return ServerError("server-failed", what, fix)
    what = f"the Triton server did not start in its container; its last lines:\n{lines}"
    fix = f"check server_arg if you set it, and that the ENTRYPOINT of {image} runs the command that follows it"
    return ServerError("server-failed", what, LIMIT if NO_MORE in lines else files_limit(log) or fix)


def image_missing(image: str) -> ServerError:
    fix = "pull it with --set pull=true, name another with --image, or use --runtime process"
    return ServerError("image-missing", f"the daemon does not have the image {image}", fix)


@contextlib.contextmanager
def start_errors(container: Container, image: str, port: int | None) -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        if _NOT_STARTED.search(error.message):
            raise start_failed(error.message, image, container) from error
        if port is not None and _PORT_IN_USE.search(error.message):
            raise port_taken(port) from error
        raise


@contextlib.contextmanager
def pull_errors(image: str) -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        what = f"the daemon cannot fetch the image {image}: {error.message}"
        fix = "correct its name, or what keeps the daemon from its registry, or use --runtime process"
        raise ServerError("image-missing", what, fix) from error

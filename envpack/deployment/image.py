"""Builds a container image with models and backend directories on top of the image of a Triton release."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import tarfile
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.containers import Daemon, daemon_errors, find_daemon
from envpack.deployment.plan import SERVER_BACKENDS, Deployment, server_arguments
from envpack.deployment.tree import MANIFEST_NAME
from envpack.support.errors import ServerError
from envpack.support.progress import NoProgress, Progress

if TYPE_CHECKING:
    import docker

MANIFEST_IN_IMAGE = f"/opt/envpack/{MANIFEST_NAME}"
_LABELS = "org.opencontainers.image"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class ImageOptions:
    """How to build an image.

    Attributes:
        base: base image; ``""`` for the official one of the release.
        pull: pull the base image from its registry if the daemon does not have it.
    """

    base: str = ""
    pull: bool = False


@dataclass(frozen=True)
class BuiltImage:
    """A container image that was built.

    Attributes:
        tag: name of the image.
        id: ID of the image in the daemon.
        base: name of the base image.
        size: bytes, including the base image.
    """

    tag: str
    id: str
    base: str
    size: int


def build_image(
    deployment: Deployment,
    tree: Path,
    tag: str,
    options: ImageOptions | None = None,
    progress: Progress | None = None,
) -> BuiltImage:
    """Build an image that serves a deployment.

    Args:
        deployment: content of the tree.
        tree: folder written by `assemble`.
        tag: name for the image.
        options: how to build it.
        progress: receives each step.

    Raises:
        ServerError: no daemon responds (``docker-missing``); the base image is missing and cannot be pulled
            (``image-missing``); the build failed (``image-failed``).
    """
    options, progress = options or ImageOptions(), progress or NoProgress()
    base = options.base or deployment.release.image
    daemon = find_daemon()
    progress.begin(f"build {tag} from {base}")
    with contextlib.closing(daemon.client):
        found = _base(daemon, base, pull=options.pull, progress=progress)
        labels = _labels(deployment, tag, base, found)
        with context_of(tree, _dockerfile(deployment, base)) as context:
            _build(daemon, context, tag, labels)
        with daemon_errors():
            image = daemon.client.images.get(tag)
    built = BuiltImage(tag, str(image.id), base, int(image.attrs["Size"]))
    progress.end(f"{built.size / 1e6:.0f} MB")
    return built


def _base(daemon: Daemon, name: str, *, pull: bool, progress: Progress) -> Any:
    import docker

    try:
        with daemon_errors():
            try:
                return daemon.client.images.get(name)
            except docker.errors.ImageNotFound:
                if not pull:
                    raise _missing(name, "the daemon does not have it", "add --pull to fetch it") from None
            progress.detail(f"pull {name}")
            return daemon.client.images.pull(name)
    except ServerError as error:
        if error.kind == "docker-failed":
            hint = "check its name, or give another image with --from"
            raise _missing(name, f"it cannot be pulled: {error.message}", hint) from error
        raise


def _missing(name: str, why: str, hint: str) -> ServerError:
    return ServerError(f"the base image is not available: {why}", kind="image-missing", where=name, hint=hint)


def _dockerfile(deployment: Deployment, base: str) -> str:
    copies = [("models", f"{deployment.served_from.rstrip('/')}/"), (MANIFEST_NAME, MANIFEST_IN_IMAGE)]
    if deployment.backends:
        copies.append(("backends", f"{SERVER_BACKENDS}/"))
    lines = [
        f"FROM {base}",
        *(f"COPY {_quoted(pair)}" for pair in copies),
        "ENV PYTHONNOUSERSITE=1",
        f"CMD {json.dumps(list(server_arguments(deployment)))}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(paths: tuple[str, str]) -> str:
    return json.dumps(list(paths)).replace("$", "\\\\$")


def _labels(deployment: Deployment, tag: str, base: str, image: Any) -> dict[str, str]:
    names = ", ".join(model.name for model in deployment.models)
    digests = image.attrs.get("RepoDigests") or []
    labels = {
        f"{_LABELS}.title": tag.rpartition("/")[2].partition(":")[0],
        f"{_LABELS}.description": f"Triton {deployment.release.name} with {names}",
        f"{_LABELS}.created": _now().isoformat(),
        f"{_LABELS}.base.name": base,
    }
    if digests:
        labels[f"{_LABELS}.base.digest"] = str(digests[0]).rpartition("@")[2]
    return labels


def _now() -> datetime.datetime:
    """The time from https://reproducible-builds.org/specs/source-date-epoch if it is set, else the current time."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch.isdecimal():
        return datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def _build(daemon: Daemon, context: Iterator[bytes], tag: str, labels: dict[str, str]) -> None:
    client: docker.APIClient = daemon.client.api
    with daemon_errors():
        messages = client.build(
            fileobj=context, custom_context=True, tag=tag, labels=labels, rm=True, forcerm=True, pull=False, decode=True
        )
        for message in messages:
            if "error" in message:
                raise ServerError(
                    f"the image could not be built: {str(message['error']).strip()}",
                    kind="image-failed",
                    where=tag,
                    hint="the daemon's disk may be full; `docker system df` shows what uses it",
                )


@contextlib.contextmanager
def context_of(tree: Path, dockerfile: str) -> Iterator[Iterator[bytes]]:
    """Stream the build context as a tar archive. Hard links stay links, so each file is sent once."""
    source, sink = os.pipe()
    writer = _Writer(tree, dockerfile, sink)
    parts = writer.parts(source)
    writer.start()
    try:
        yield parts
    finally:
        parts.close()
        writer.join()


class _Writer(threading.Thread):
    def __init__(self, tree: Path, dockerfile: str, sink: int) -> None:
        super().__init__(name="build context", daemon=True)
        self._tree = tree
        self._dockerfile = dockerfile.encode()
        self._sink = sink
        self._error: OSError | None = None

    def run(self) -> None:
        try:
            with (
                os.fdopen(self._sink, "wb") as sink,
                tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                entry = tarfile.TarInfo("Dockerfile")
                entry.size = len(self._dockerfile)
                archive.addfile(entry, io.BytesIO(self._dockerfile))
                for file in sorted(self._tree.iterdir()):
                    archive.add(file, file.name, filter=_world_readable)
        except OSError as error:  # or a broken pipe if the daemon stops reading; its own error explains why
            self._error = error

    def parts(self, source: int) -> Generator[bytes, None, None]:
        with os.fdopen(source, "rb") as pipe:
            while part := pipe.read(_CHUNK):
                yield part
        self.join()
        if self._error is not None:
            raise self._error


def _world_readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make an entry owned by root and readable by any user, because the server may run as any user."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry

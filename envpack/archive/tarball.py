"""An environment as a ``tar.gz`` that the server unpacks, collected by conda-pack."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from pathlib import Path

from envpack.atomic import replaced_file, write_text
from envpack.environment.store import Environment
from envpack.errors import EnvironmentBuildError
from envpack.progress import Progress, Silent

SCHEMA = 1
_LEVEL = 4  # what conda-pack uses by itself


def sidecar_of(archive: Path) -> Path:
    """The file beside an archive that says what is in it: ``env.tar.gz.json``."""
    return archive.with_name(f"{archive.name}.json")


def pack_tar_gz(environment: Environment, destination: Path, progress: Progress | None = None) -> bool:
    """Write an environment as a ``tar.gz`` with ``bin/activate`` at its root, readable for everybody.

    The same environment gives the same bytes. A sidecar (`sidecar_of`) with key, size and SHA-256 is written after it.

    Returns:
        Whether it was written: ``False`` if ``destination`` held this environment already.

    Raises:
        EnvironmentBuildError: the disk is full, or conda-pack refuses; an archive that was there is intact.

    """
    if _is_current(environment, destination):
        return False

    from envpack.archive.destination import locked_destination

    progress = progress or Silent()
    with locked_destination(destination):
        if _is_current(environment, destination):
            return False
        progress.begin(f"pack {destination.name}")
        with replaced_file(destination) as partial:
            _write(environment, partial)
            check_archive(partial, environment.prefix)
        size = _write_sidecar(environment, destination)
        progress.end(f"{size / 1e6:.1f} MB")
    return True


def _is_current(environment: Environment, destination: Path) -> bool:
    try:
        told = json.loads(sidecar_of(destination).read_text(encoding="utf-8"))
        status = destination.stat()
        if (told["schema"], told["key"], told["size"]) != (SCHEMA, environment.key, status.st_size):
            return False
        return bool(told["mtime_ns"] == status.st_mtime_ns or told["sha256"] == _sha256(destination))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_sidecar(environment: Environment, destination: Path) -> int:
    status = destination.stat()
    content = {
        "schema": SCHEMA,
        "key": environment.key,
        "python": environment.python,
        "glibc": environment.glibc,
        "glibcxx": environment.glibcxx,
        "sha256": _sha256(destination),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
    }
    write_text(sidecar_of(destination), json.dumps(content, indent=1, sort_keys=True) + "\n")
    return status.st_size


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _write(environment: Environment, file: Path) -> None:
    from envpack.archive.conda_packer import pack_prefix

    with (
        file.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        pack_prefix(environment.prefix, archive)


def check_archive(file: Path, prefix: Path) -> None:
    """Read an archive back and make sure that a server can use it.

    Raises:
        EnvironmentBuildError: kind ``bad-archive``: a name that a server refuses, a member through a link, a name that
            occurs twice, or start-up files that are not those of ``prefix``.

    """
    expected = {name: (prefix / name).read_bytes() for name in ("bin/activate", "pyvenv.cfg")}
    names: set[str] = set()
    links: set[str] = set()
    with tarfile.open(file, "r:gz") as archive:
        for member in archive:
            parts = member.name.split("/")
            above = {"/".join(parts[:count]) for count in range(1, len(parts))}
            if member.name.startswith("/") or ".." in parts or member.name in names or above & links:
                raise _bad_archive(f"member {member.name!r} would be refused by a server")
            names.add(member.name)
            if member.issym():
                links.add(member.name)
            if member.name in expected:
                content = archive.extractfile(member)
                if content is None or content.read() != expected.pop(member.name):
                    raise _bad_archive(f"{member.name} is not the environment's own")
    if expected:
        raise _bad_archive(f"{min(expected)} is missing")


def _bad_archive(message: str) -> EnvironmentBuildError:
    return EnvironmentBuildError(
        f"the archive is not usable: {message}",
        kind="bad-archive",
        hint="use --format dir, and leave out the package that the file belongs to",
    )

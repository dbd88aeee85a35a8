"""A lock: every package of an environment by its hash, for one target; and its file ``envpack.lock``.

The file has the format of pixi, which other tools can read, with a table of our own that they skip.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.requirements.location import can_read, local_file
from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.target import Target
from envpack.support.bounded_reading import read_text, sha256_of
from envpack.support.errors import InputError
from envpack.support.placed_files import LOCK_NAME, is_built_folder, is_placed_file, is_placed_folder
from envpack.support.redaction import public_url
from envpack.support.replacement import write_text

if TYPE_CHECKING:
    from envpack.support.tables import Table


RECIPE = 3  # increased whenever the same lock gives another environment
_NOT_SOURCES = {".git", ".hg", ".venv", "__pycache__", "node_modules"}
_LOCAL_WHEEL = re.compile(r" @ (file:///\S+)")


@dataclass(frozen=True)
class Lock:
    """Every package of an environment."""

    target: Target  # what they were resolved for
    channels: tuple[str, ...]  # addresses of the conda channels, without secrets
    conda: tuple[CondaPackage, ...]  # conda packages, sorted by name
    pip: tuple[PipPackage, ...]  # wheels, sorted by name; they are installed after the conda packages
    requirements_digest: str = ""  # `digest_requirements` of what it was resolved from; ``""`` if unknown

    @property
    def names(self) -> frozenset[str]:
        return frozenset([*(package.name for package in self.conda), *(wheel.name for wheel in self.pip)])

    @property
    def key(self) -> str:
        """Name of the environment in the store. Hashes of packages are part of it, their addresses are not."""
        key_parts = {
            "recipe": RECIPE,
            "target": dataclasses.asdict(self.target),
            "conda": sorted(
                [package.name, package.version, package.build, package.sha256 or package.md5] for package in self.conda
            ),
            "pip": sorted([package.name, package.version, package.sha256] for package in self.pip),
        }
        return _digest(key_parts)[:32]

    @property
    def text(self) -> str:
        """The text of its file; equal locks have equal texts."""
        import yaml

        references = [
            *({"conda": package.url} for package in self.conda),
            *({"pypi": package.url} for package in self.pip),
        ]
        document = {
            "version": 6,
            "environments": {
                "default": {
                    "channels": [{"url": f"{channel}/"} for channel in self.channels],
                    "packages": {self.target.platform: references},
                }
            },
            "packages": [*map(_conda_entry, self.conda), *map(_pip_entry, self.pip)],
            "x-envpack": {
                "schema": _SCHEMA,
                "asked": self.requirements_digest,
                "python": self.target.python,
                "glibc": self.target.glibc,
                "cuda": self.target.cuda,
            },
        }
        return _HEADER + str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000))

    @classmethod
    def parse(cls, text: str, file: Path) -> Lock:
        from envpack.support.tables import parse_yaml

        try:
            content = parse_yaml(text, file)
            if _OWN_TABLE not in content:
                raise _lockfile_error(str(file), f"has no table {_OWN_TABLE}: it is another tool's lockfile")
            if content.table(_OWN_TABLE).text("schema", "") != str(_SCHEMA):
                raise _lockfile_error(str(file), "was written by another version of envpack")
            return _lock(content)
        except InputError as error:
            if error.kind == "bad-lock":
                raise
            raise _lockfile_error(error.where, f"is damaged: {error.message}") from error

    def environment_key(self, *, strip: bool) -> str:
        """Name of the environment in the store, stripped of debug information or not."""
        return f"{self.key}-stripped" if strip else self.key


def wheel_not_here(packages: Sequence[PipPackage]) -> PipPackage | None:
    """The first package that is named by a path at which nothing is: one of another machine, or of a pruned cache."""
    return next((package for package in packages if (file := local_file(package.url)) and not can_read(file)), None)


def digest_requirements(requirements: Requirements, channels: Sequence[str]) -> str:
    """Digest of requirements and channels, in hexadecimal digits; a lock fits requirements with the same digest.

    Sources of local projects and contents of local wheels are part of it. What envpack writes beside them, the
    requirements files that were read, and passwords are not.
    """
    key_parts = {
        "conda": sorted(set(requirements.conda)),
        "pip": sorted(set(requirements.pip)),
        "constraints": sorted(set(requirements.constraints)),
        "options": [" ".join(map(public_url, option.split())) for option in requirements.pip_options],
        "projects": [
            _digest([[name, sha256_of(file)] for name, file in _sources(project)]) for project in requirements.projects
        ],
        **({"wheels": wheels} if (wheels := _local_wheels(requirements)) else {}),
        **(
            {"indexes": sorted([name, public_url(url)] for name, url in requirements.indexes)}
            if requirements.indexes
            else {}
        ),
        "locked": [
            *sorted(package.sha256 or package.md5 for package in requirements.locked_conda),
            *sorted(package.sha256 for package in requirements.locked_pip),
        ],
        "channels": list(map(public_url, channels)),
    }
    return _digest(key_parts)


def lock_key(
    requirements: Requirements,
    target: Target,
    channels: Sequence[str],
    sources: Sequence[str] = (),
    *,
    here: Sequence[str] = (),
) -> str:
    """Name of what requirements resolve to, from all that decides it: the same whatever machine resolves them.

    The memory of one machine adds the interpreter that becomes a package, and the indexes of its settings; without
    them, all machines of a store get what the first one resolved.
    """
    key_parts = [dataclasses.asdict(target), digest_requirements(requirements, channels), sorted(sources)]
    return _digest([*key_parts, *here])[:32]


def _local_wheels(requirements: Requirements) -> list[str]:
    """The digests of the wheels that requirements name by a path: a wheel that is built again keeps its name."""
    found = map(_LOCAL_WHEEL.search, (*requirements.pip, *requirements.constraints))
    files = {file for match in found if match and (file := local_file(match[1]))}
    return [sha256_of(file) for file in sorted(files) if file.is_file()]


def _sources(folder: Path) -> Iterator[tuple[str, Path]]:
    seen: set[str] = set()  # links can lead in circles
    for root, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if _has_sources(Path(root, name), folder, seen))
        for name in sorted(files):
            file = Path(root, name)
            if file.is_file() and not is_placed_file(file):
                yield str(file.relative_to(folder)), file


def _has_sources(folder: Path, project: Path, followed: set[str]) -> bool:
    if folder.name in _NOT_SOURCES or is_built_folder(folder, project) or is_placed_folder(folder):
        return False
    if not folder.is_symlink():
        return True
    target = os.path.realpath(folder)
    is_new = target not in followed
    followed.add(target)
    return is_new and (folder / "__init__.py").is_file()  # other links lead to data, which can be large


def _digest(key_parts: object) -> str:
    return hashlib.sha256(json.dumps(key_parts, sort_keys=True).encode()).hexdigest()


_OWN_TABLE = "x-envpack"
_SCHEMA = 1
_HINT = "restore it from version control, or remove it and run envpack lock"
_HEADER = "# Written by `envpack lock`, which also updates it; pixi and rattler can read it.\n"


def write_lock(lock: Lock, file: Path) -> bool:
    """Write a lockfile in one step; a file with the same content is not touched."""
    text = lock.text
    if file.is_file() and read_text(file, errors="replace") == text:
        return False
    write_text(file, text)
    return True


def _conda_entry(package: CondaPackage) -> dict[str, Any]:
    entry = {"conda": package.url, **{name: getattr(package, name) for name in ("name", "version", "build", "subdir")}}
    optional = {name: getattr(package, name) for name in ("sha256", "md5", "size", "license")}
    lists = {"depends": list(package.depends), "constrains": list(package.constrains)}
    return entry | {name: value for name, value in (optional | lists).items() if value}


def _pip_entry(package: PipPackage) -> dict[str, Any]:
    entry = {"pypi": package.url, "name": package.name, "version": package.version, "sha256": package.sha256}
    return entry | ({"size": package.size} if package.size else {})


def named_by_locks(folders: Sequence[Path]) -> frozenset[str]:
    """The keys of environments, and the digests of packages, that the lockfiles below folders name."""
    for folder in folders:
        if not folder.is_dir():
            fix = "name the folder above the models whose lockfiles count"
            raise InputError("locks-missing", "this folder does not exist", fix, str(folder))
    keys: set[str] = set()
    for file in (file for folder in folders for file in _lockfiles(folder)):
        lock = read_lock(file)
        if lock is not None:
            keys |= {lock.environment_key(strip=False), lock.environment_key(strip=True)}
            keys |= {package.sha256 for package in lock.conda} | {package.sha256 for package in lock.pip}
    return frozenset(keys)


def _lockfiles(folder: Path) -> Iterator[Path]:
    """The lockfiles below a folder and below what links in it lead to, since models may be links.

    A folder that cannot be listed is an error: a store would lose what lockfiles in it name.
    """
    seen: set[str] = set()  # links can lead in circles
    for root, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        real = os.path.realpath(root)
        if real in seen:
            folders.clear()
        elif LOCK_NAME in files or LOCK_NAME in folders:
            yield Path(root, LOCK_NAME)
        seen.add(real)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # as of a folder that a build has just replaced
        raise error


def read_lock(file: Path) -> Lock | None:
    """Read a lockfile that `write_lock` wrote; ``None`` if there is none."""
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(file):
            return None
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise _lockfile_error(str(file), f"cannot be read: {reason}") from error
    return Lock.parse(text, file)


def _lock(content: Table) -> Lock:
    from envpack.requirements.formats.pixi_lock import default_environment, locked_entries

    own, default = content.table(_OWN_TABLE), default_environment(content)
    platforms = list(default.table("packages").values)
    if len(platforms) != 1:
        raise default.location.error("it must be for one platform", hint=_HINT)
    entries = locked_entries(content, platforms[0])
    python, glibc, cuda = (_matching(own, key, r"[0-9]{1,9}(\.[0-9]{1,9})*|") for key in ("python", "glibc", "cuda"))
    try:
        target = Target(platforms[0], python, glibc, cuda)
    except ValueError as error:
        raise default.location.error(str(error), hint=_HINT) from error
    return Lock(
        target,
        tuple(channel.text("url").rstrip("/") for channel in default.tables("channels")),
        tuple(_conda_package(entry.table) for entry in entries if entry.kind == "conda"),
        tuple(_pip_package(entry.table) for entry in entries if entry.kind == "pypi"),
        _matching(own, "asked", r"[0-9a-f]*"),
    )


def _conda_package(entry: Table) -> CondaPackage:
    if not (entry.text("sha256", "") or entry.text("md5", "")):
        raise entry.location.error(f"{entry.text('name')} has no hash", hint=_HINT)
    return CondaPackage(
        name=_matching(entry, "name", r"[\w.-]+"),
        version=_matching(entry, "version", r"[\w.!+~*-]+"),
        build=_matching(entry, "build", r"[\w.+-]+"),
        subdir=_matching(entry, "subdir", r"[\w-]+"),
        url=_matching(entry, "conda", r"(https?|file|s3|gcs|oci)://\S(.*\S)?"),
        sha256=_matching(entry, "sha256", r"[0-9a-f]{64}|"),
        md5=_matching(entry, "md5", r"[0-9a-f]{32}|"),
        size=entry.number("size"),
        license=entry.text("license", ""),
        depends=_texts(entry, "depends"),
        constrains=_texts(entry, "constrains"),
    )


def _pip_package(entry: Table) -> PipPackage:
    return PipPackage(
        name=_matching(entry, "name", r"[\w.-]+"),
        version=_matching(entry, "version", r"[\w.!+-]+"),
        url=_matching(entry, "pypi", r"(https?|file)://\S(.*\S)?"),
        sha256=_matching(entry, "sha256", r"[0-9a-f]{64}"),
        size=entry.number("size"),
    )


def _texts(entry: Table, key: str) -> tuple[str, ...]:
    return tuple(text for text, _ in entry.texts(key))


def _matching(entry: Table, key: str, pattern: str) -> str:
    value = entry.text(key, "")
    if not re.fullmatch(pattern, value):
        raise entry.get(key)[1].error(f"{key} of {entry.text('name', _OWN_TABLE)} is {value!r}", hint=_HINT)
    return value


def _lockfile_error(where: str, reason: str) -> InputError:
    return InputError("bad-lock", f"the lockfile {reason}", _HINT, where)

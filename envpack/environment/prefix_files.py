"""Detects what kind of environment a folder is, and lists its files that are copied, with their SHA-256.

Digests are cached by size, times and inode of each file, as in compiler caches, so that an unchanged environment is not
read twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from envpack.environment.inventory import INVENTORY, require_text
from envpack.environment.records import conda_record_files, read_conda_record
from envpack.settings.pythons import check_minor
from envpack.support.bounded_reading import read_json, read_text, sha256_of
from envpack.support.errors import EnvironmentBuildError, InputError
from envpack.support.memory import remember, remembered
from envpack.support.placed_files import MANIFEST
from envpack.support.platforms import host_platform
from envpack.support.pool import map_batches

_MOST_SETTINGS = 1 << 20  # bytes
_HINT = "give the folder of a conda or virtual environment, which contains conda-meta or pyvenv.cfg"


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """An environment to copy."""

    root: Path  # its folder, absolute
    kind: Literal["conda", "virtual"]  # "virtual" for what venv, virtualenv and uv make
    minor: str  # Python minor version
    version: str  # full version from the environment's own metadata; "" if it has none
    platform: str  # for example "linux-64"
    home: Path | None = None  # folder of the interpreter that a virtual environment was created from; None for conda's
    records: tuple[Mapping[str, Any], ...] = ()  # conda's records of the packages


def detect_prefix(root: Path) -> Prefix:
    root = root.absolute()
    if (root / "conda-meta").is_dir():
        found = _conda(root)
    elif os.path.lexists(root / "pyvenv.cfg"):
        found = _virtual(root)
    else:
        reason = "neither a conda environment nor a virtual one" if root.is_dir() else "there is no such folder"
        raise InputError("not-a-prefix", reason, _HINT, str(root))
    check_minor(found.minor, where=str(root))
    return found


def _conda(root: Path) -> Prefix:
    records = tuple(_record(file) for file in conda_record_files(root))
    python = next((record for record in records if record["name"] == "python"), None)
    if python is None:
        raise _unsupported("this conda environment has no Python", root, "install one: conda install python")
    if re.search(r"pypy|graalpy", str(python.get("build", ""))):
        raise _unsupported(
            "its Python is not CPython", root, "use an environment with CPython, which Triton's stub requires"
        )
    version = str(python["version"])
    platform = str(python.get("subdir") or host_platform())
    if platform.startswith("linux-") and not os.access(root / "bin/python3", os.X_OK):
        fix = "reinstall its Python: conda install --force-reinstall python"
        raise _unsupported("its bin/python3 is missing, or cannot be executed", root, fix)
    return Prefix(
        root=root,
        kind="conda",
        minor=".".join(version.split(".")[:2]),
        version=version,
        platform=platform,
        records=records,
    )


def _record(file: Path) -> Mapping[str, Any]:
    try:
        return read_conda_record(file)
    except EnvironmentBuildError as error:
        what = "this record of an installed package cannot be read"
        fix = "repair the environment: reinstall that package"
        raise InputError("not-a-prefix", what, fix, str(file)) from error


def _virtual(root: Path) -> Prefix:
    settings = _settings(root / "pyvenv.cfg")
    if (root / "Scripts").is_dir() and not (root / "bin").is_dir():
        fix = "make it on Linux, or build from its requirements: pip freeze writes them"
        raise InputError("other-platform", "this virtual environment was made on Windows", fix, str(root))
    if settings.get("include-system-site-packages", "").lower() == "true":
        raise _unsupported(
            "it uses packages of the system (include-system-site-packages)",
            root,
            "create one without --system-site-packages, with all packages that the model needs",
        )
    if settings.get("implementation", "cpython").lower() != "cpython" or list(root.glob("lib/pypy3*")):
        raise _unsupported(
            "its Python is not CPython", root, "use an environment with CPython, which Triton's stub requires"
        )
    folders = sorted(folder.parent.name for folder in root.glob("lib/python3.*/site-packages"))
    if not settings.get("home") or len(folders) != 1:
        missing = (
            "pyvenv.cfg does not name the folder of its Python" if folders else "it has no lib/python3.*/site-packages"
        )
        missing = "it has site-packages of several Pythons" if len(folders) > 1 else missing
        raise InputError("not-a-prefix", missing, "make it again, with one Python", str(root))
    version = re.match(r"[\d.]+", settings.get("version_info", settings.get("version", "")))
    minor = folders[0].removeprefix("python")
    home = Path(settings["home"])
    return Prefix(
        root=root,
        kind="virtual",
        minor=minor,
        version=version[0].rstrip(".") if version else "",
        platform=host_platform(),
        home=home,
    )


def _settings(file: Path) -> dict[str, str]:
    try:
        lines = read_text(file, most=_MOST_SETTINGS, errors="replace").splitlines()
    except OSError as error:
        raise InputError("not-a-prefix", f"it cannot be read: {error.strerror}", _HINT, str(file)) from error
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _unsupported(reason: str, root: Path, hint: str) -> InputError:
    return InputError("prefix-unsupported", reason, hint, str(root))


def activation_variables(root: Path) -> tuple[str, ...]:
    """Names of the variables that conda's activation sets; never their values, which may be secret."""
    found = set(_table(_table(_read(root / "conda-meta/state")).get("env_vars")))
    for file in (root / "etc/conda/env_vars.d").glob("*.json"):
        found |= set(_table(_read(file)))
    return tuple(sorted(found))


def _read(file: Path) -> object:
    try:
        return read_json(file)
    except (OSError, ValueError, RecursionError):
        return None


def _table(content: object) -> dict[str, object]:
    return content if isinstance(content, dict) else {}


_SCHEMA = 1
_SETTLED = 2.0  # seconds after which a change is sure to alter the time stamp, on any file system
_NEVER = {"CACHEDIR.TAG", ".lock", ".gitignore", "pyvenv.cfg", INVENTORY, MANIFEST}
_NEVER_OF_CONDA = {"pkgs", "envs", "conda-bld", "conda-meta/history", "conda-meta/state", ".condarc", ".conda_lock"}
_NEVER_OF_VIRTUAL = re.compile(r"bin/(python[\d.]*[td]?|activate(\..*|_this\.py)?|Activate\.ps1|deactivate(\..*)?)")
_PATCHES = {"_virtualenv.py", "_virtualenv.pth"}  # of virtualenv and uv, for the environment that they created


@dataclass(frozen=True, slots=True)
class PrefixFile:
    """A file or link."""

    path: str  # relative to the root, with /
    stamp: tuple[int, ...]  # size in bytes, mtime and ctime in nanoseconds, inode; 0 for links
    program: bool = False  # whether it is executable
    target: str = ""  # target of a link; "" for a file


def list_files(prefix: Prefix) -> tuple[PrefixFile, ...]:
    """List the files of an environment by path, without byte code, caches and files that depend on its folder."""
    return tuple(sorted(_walk(prefix, ""), key=lambda file: file.path))


def _walk(prefix: Prefix, below: str) -> Iterator[PrefixFile]:
    with os.scandir(f"{prefix.root}/{below}") as entries:
        for entry in entries:
            path = f"{below}{entry.name}"
            if entry.name == "__pycache__" or _left_out(prefix, path):
                continue
            require_text(entry.name, entry.path, "rename it")
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(entry.path)  # noqa: PTH115 - text is faster
                require_text(target, entry.path, "change the target of this link, or remove it")
                yield PrefixFile(path, (0,), target=target)
            elif stat.S_ISDIR(status.st_mode):
                yield from _walk(prefix, f"{path}/")
            elif stat.S_ISREG(status.st_mode):
                stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
                yield PrefixFile(path, stamp, bool(status.st_mode & 0o100))
            else:
                what = "this is neither a file nor a folder nor a link"
                fix = "remove it, if the environment does not need it"
                raise InputError("prefix-unsupported", what, fix, entry.path)


def _left_out(prefix: Prefix, path: str) -> bool:
    if path in _NEVER or path.endswith(".conda_trash") or holds_credentials(path):
        return True
    if path == "lib64":
        return _is_link_to_lib(prefix.root / path)
    if prefix.kind == "conda":
        return path in _NEVER_OF_CONDA
    return bool(_NEVER_OF_VIRTUAL.fullmatch(path)) or (
        path.rpartition("/")[2] in _PATCHES and path.rpartition("/")[0].endswith("/site-packages")
    )


def _is_link_to_lib(path: Path) -> bool:
    """Whether a path is a link to ``lib`` beside it, as venv makes one; packages may have a folder of that name."""
    return path.is_symlink() and os.path.realpath(path) == os.path.realpath(path.with_name("lib"))


def hash_files(prefix: Prefix, files: Sequence[PrefixFile], memory: Path) -> dict[str, str]:
    """The SHA-256 of each file, by path; files that did not change since the last call are not read."""
    known = _remembered(memory)
    regular = [file for file in files if not file.target]
    unknown = [file for file in regular if known.get(file.path, ())[:-1] != file.stamp]
    started = time.time()
    read = chain.from_iterable(map_batches(lambda file: sha256_of(prefix.root / file.path), unknown))
    fresh = dict(zip((file.path for file in unknown), read, strict=True))
    digests = {file.path: fresh.get(file.path) or str(known[file.path][-1]) for file in regular}
    if fresh or len(known) > len(regular):
        newest = (started - _SETTLED) * 1e9
        settled = (file for file in regular if max(file.stamp[1:3]) < newest)
        kept = {file.path: (*file.stamp, digests[file.path]) for file in settled}
        remember(memory, {"schema": _SCHEMA, "files": kept})
    return digests


def _remembered(memory: Path) -> dict[str, tuple[int | str, ...]]:
    found = remembered(memory)
    return {path: tuple(known) for path, known in found["files"].items()} if found.get("schema") == _SCHEMA else {}


def content_digest(files: Sequence[PrefixFile], digests: Mapping[str, str]) -> str:
    """Digest of the content of an environment; the same for copies in other folders."""
    contents = [[file.path, file.program, file.target, digests.get(file.path, "")] for file in files]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


_NAMES = frozenset(
    (
        *("pip.conf", "pip.ini", "uv.toml", ".netrc", "_netrc", ".pypirc", ".npmrc", ".yarnrc", ".git-credentials"),
        *(".condarc", "condarc", ".mambarc", "mambarc", ".dockercfg", ".pgpass", ".my.cnf", ".s3cfg", ".boto"),
        *(".vault-token", ".databrickscfg", ".env", ".envrc", ".gitconfig"),
        *("id_rsa", "id_dsa", "id_ed25519", "id_ecdsa"),
    )
)
# Paths below the folders that tools call their home or configuration.
_PLACES = re.compile(
    r"(^|/)(condarc\.d/|\.?docker/config\.json$|\.aws/credentials$|\.?gcloud/|\.azure/|\.kube/config$|\.rattler/"
    r"|\.git/config$|\.ssh/|\.cargo/credentials(\.toml)?$|\.continuum/|anaconda-client/tokens/|\.kaggle/kaggle\.json$"
    r"|python_keyring/|pypoetry/auth\.toml$|\.streamlit/secrets\.toml$|application_default_credentials\.json$"
    r"|uv/credentials/|\.gnupg/|gh/hosts\.yml$|\.huggingface/token$|huggingface/token$)"
)
_PACKAGES = re.compile(r"(^|/)(site|dist)-packages/")


def holds_credentials(path: str) -> bool:
    """Whether a file of an environment is one in which tools keep passwords and tokens."""
    if _PACKAGES.search(path):
        return False
    return path.rpartition("/")[2] in _NAMES or _PLACES.search(path) is not None

"""The user's folders of envpack, by the XDG rules: a cache, which can be rebuilt, and data, which cannot."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Literal, NamedTuple

from envpack.support.errors import InputError

# Characters that mean something to the shell that starts a stub; and to ``env``, for which a program's path with an
# equals sign is a variable.
_SHELL_CHARACTER = re.compile(r"[\s\"'`$&|;<>()*?\[\]{}\\!=]")


def shell_fault(path: str) -> str:
    """Why the shell that starts a stub does not take a path as it is, as words that follow it; ``""`` if it does."""
    found = _SHELL_CHARACTER.search(path)
    return f"contains {found[0]!r}, and servers pass it to a shell unquoted" if found else ""


def check_models_path(folder: Path) -> None:
    """Refuse a folder for Python models from whose path no server starts a stub."""
    if unfit := shell_fault(str(folder)):
        fix = "move the model repository to a path of letters, digits, '/', '_', '-' and '.'"
        raise InputError("bad-path", f"the path {unfit}", fix, str(folder))


def expand_home(text: str, where: str) -> Path:
    """A path whose leading ``~`` or ``~user`` is replaced by that user's home folder."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):  # also of a null byte
        raise no_home(f"{text!r} begins with a home folder that is not known", where) from None


def real_path(path: Path) -> Path:
    """A path without links and ``..``, as far as it exists.

    `pathlib.Path.resolve` raises a RuntimeError, which no caller expects, where links lead to each other in a circle.
    """
    return Path(os.path.realpath(path))


def whole_path(path: Path) -> Path:
    """A path from the root on, without ``..``: folders above and beside it are found by its text then.

    Links stay as they are, but for those in front of a ``..``.
    """
    path = path.absolute()
    return real_path(path) if ".." in path.parts else path


def path_in_shell(folder: Path) -> str:
    try:
        folder, here = folder.absolute(), Path.cwd()
    except FileNotFoundError:  # the current folder was removed
        return shlex.quote(str(folder))
    return shlex.quote(str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder))


def no_home(message: str, where: str, fix: str = "write the whole path, or set HOME to a folder") -> InputError:
    """The error for a home folder that the system does not know."""
    return InputError("no-home", message, fix, where)


_Product = Literal["environments", "archives", "selections", "stubs", "publications", "transfers", "zig", "locks"]
_Ingredient = Literal["bytecode", "needs", "channel", "pythons", "wheels", "solutions", "prefixes"]
CacheFolder = Literal[_Product, _Ingredient, "conda-packages", "conda-index"]


class Kind(NamedTuple):
    """What a folder of the cache holds."""

    what: str  # the entries, as a plural noun
    # Whether environments are made of it; it stays while any environment is resolved or built.
    is_ingredient: bool = False
    is_whole: bool = False  # whether the folder is one entry


KINDS: dict[CacheFolder, Kind] = {
    "environments": Kind("installed environments"),
    "archives": Kind("packed environments"),
    "selections": Kind("lists of files that environments are placed with"),
    "stubs": Kind("compiled stubs"),
    "publications": Kind("digests of files that were published"),
    "transfers": Kind("interrupted transfers from and to stores"),
    "bytecode": Kind("byte code of packages", is_ingredient=True),
    "needs": Kind("system requirements of packages", is_ingredient=True),
    "conda-packages": Kind("downloaded conda packages", is_ingredient=True),
    "channel": Kind("interpreters of this machine as conda packages", is_ingredient=True),
    "pythons": Kind("interpreters that uv fetched", is_ingredient=True),
    "wheels": Kind("wheels of local projects", is_ingredient=True),
    "solutions": Kind("locks of requirements without a lockfile", is_ingredient=True),
    "prefixes": Kind("digests of existing prefixes", is_ingredient=True),
    "conda-index": Kind("indexes of conda channels", is_ingredient=True, is_whole=True),
    "zig": Kind("zig's compiled C++ runtime", is_whole=True),
    "locks": Kind("locks of places outside of the cache"),  # of entries that do not exist, so none is ever listed
}


def cache_folder(name: CacheFolder, cache: Path | None = None) -> Path:
    return (cache or cache_root()) / name


def check_enterable(folder: Path) -> None:
    """Raise PermissionError if this user may not enter a folder: Python 3.14 takes all files in it for missing."""
    try:
        os.stat(os.path.join(folder, "."))  # noqa: PTH116, PTH118 - a Path has no last dot
    except PermissionError as error:
        error.filename = str(folder)
        raise


def cache_root() -> Path:
    """The cache folder: ``ENVPACK_CACHE_DIR`` if set, else ``$XDG_CACHE_HOME/envpack`` (``~/.cache/envpack``)."""
    if override := os.environ.get("ENVPACK_CACHE_DIR"):
        return _as_text(expand_home(override, "ENVPACK_CACHE_DIR"))
    import platformdirs

    try:
        return _as_text(platformdirs.user_cache_path("envpack"))
    except RuntimeError:
        fix = "set ENVPACK_CACHE_DIR or HOME to a folder"
        raise no_home("this user has no home folder for the cache", "ENVPACK_CACHE_DIR", fix) from None


def _as_text(folder: Path) -> Path:
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        what = "the name of the cache folder is not valid UTF-8"
        raise InputError("name-not-text", what, "set ENVPACK_CACHE_DIR to another folder", ascii(str(folder))) from None
    return folder.absolute()


def data_root() -> Path:
    """The data folder: ``$XDG_DATA_HOME/envpack`` (``~/.local/share/envpack``)."""
    import platformdirs

    try:
        return platformdirs.user_data_path("envpack")
    except RuntimeError:
        fix = "set XDG_DATA_HOME or HOME to a folder"
        raise no_home("this user has no home folder for data", "XDG_DATA_HOME", fix) from None

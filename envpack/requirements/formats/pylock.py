"""``pylock.toml`` (PEP 751), which uv, pip and PDM write; and ``uv.lock``, which uv writes out as such a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from packaging.markers import Environment, Marker
from packaging.utils import canonicalize_name

from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pyproject import read_selection
from envpack.requirements.location import file_name, local_path, read_text
from envpack.requirements.locked_packages import checked_project, locked_file, wrong_platform
from envpack.requirements.model import PipPackage, Requirements
from envpack.requirements.outdated_locks import refuse_outdated, versions_of
from envpack.requirements.target import Target, marker_environment, newest_in, single_minor, wheel_tags
from envpack.requirements.tool_tables import EXPORT_COMMAND, ToolTables
from envpack.support.errors import InputError
from envpack.support.folders import real_path
from envpack.support.tables import Location, parse_toml, quote
from envpack.support.temp_dirs import temp_dir

if TYPE_CHECKING:
    from packaging.pylock import (
        Package,
        PackageArchive,
        PackageDirectory,
        Pylock,
        PylockSelectError,
    )

_FILES = {"wheels", "sdist", "archive", "directory", "vcs"}
_HINT = "write the lock again with the tool that wrote it"
# A lock of all that the project beside it requires, as the command in uv's first lines or the groups of PDM say.
_OF_PROJECT = re.compile(
    r"^(?:#    uv export(?! .*--(?:only-|package|prune|no-emit-(?:package|local|workspace)))\b"
    r'|dependency-groups = \[.*"default")',
    re.MULTILINE,
)
# Settings of tools that change what is required.
_OVERRIDING = {"uv": {"override-dependencies", "exclude-dependencies"}, "pdm": {"overrides", "resolution"}}


@reads(
    "pylock.toml",
    order=13,
    recognises=lambda source: (
        source.is_toml and ("lock-version" in source.toml or source.path.name.startswith("pylock."))
    ),
    similar=r"pylock\.[^.]+\.toml",
)
def read_pylock(source: Source) -> Requirements:
    """`pylock.toml`, `pylock.NAME.toml` (PEP 751: uv, pip, PDM, pipenv)

    Read: for each package the best wheel for the target's Python, processor and glibc, with its hash; default groups,
    and those groups and extras of the lock that `[tool.envpack]` in the `pyproject.toml` beside it selects; folders of
    other projects, which are built; the source of a package that has no wheel for the target, if `--allow-source` names
    it

    Refused: repositories and archives in place of releases, the project that the lock is of (`uv export
    --no-emit-project` leaves it out)
    """
    extras, groups = read_selection(source.project)
    found = _select_wheels(source.toml, source, extras, groups)
    if _OF_PROJECT.search(source.text):
        selected = "".join([*(f" --extra {name}" for name in extras), *(f" --group {name}" for name in groups)])
        export = f"{EXPORT_COMMAND.removesuffix('pylock.toml')}{source.path.name}{selected}"
        _refuse_outdated(source, source.toml, "pdm lock" if source.toml.get("created-by") == "pdm" else export)
    return replace(found, files=(source.path, source.project.path)) if extras or groups else found


def _refuse_outdated(source: Source, content: Mapping[str, Any], command: str) -> None:
    """Refuse a lock that is older than the project beside it, unless that changes what packages require."""
    tools = source.project.toml.get("tool", {})
    if not any(isinstance(tools.get(tool), dict) and keys & set(tools[tool]) for tool, keys in _OVERRIDING.items()):
        locked, pythons = versions_of(content.get("packages", ())), _python_range(content, source.location)
        named = [package for package in content.get("packages", ()) if isinstance(package, dict) and "index" in package]
        indexes = {str(package.get("name")): str(package["index"]) for package in named}
        refuse_outdated(source.project, source.location, locked, command, pythons=pythons, indexes=indexes)


def _select_wheels(
    content: Mapping[str, Any], source: Source, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> Requirements:
    """Select the wheels of a lock that fit a target best, for its default groups and for extras and groups."""
    location, path, target = source.location, source.path, source.target
    python_range = _python_range(content, location)
    minor = single_minor(python_range) if python_range else ""
    found = Requirements(
        python=minor,
        python_range=python_range,
        source=path,
        platform=target.platform,
        files=(path,),
        places={"python": str(source.place("requires-python"))},
        index_names=ToolTables(source.project).index_names(),
    )
    if not target.python:
        python = source.choose(found) if source.choose else minor
        if not python:
            raise location.error(
                "the lock is for several versions of Python",
                hint='choose one: --python 3.10, or python = "3.10" in envpack.toml',
            )
        target = replace(target, python=python)
    if python_range and target.minor == target.python:
        target = replace(target, python=newest_in(python_range, target.python) or target.python)
    lock = _validated(_with_files(content, target), source)
    named = {"extras": (extras, lock.extras or ()), "groups": (groups, lock.dependency_groups or ())}
    warnings = [_check_selected(kind, *names, location) for kind, names in named.items()]
    selected = extras if lock.extras else (), groups if lock.dependency_groups else ()
    files, projects = _select(lock, *selected, source, target)
    places = {package.name: str(_place(package.name, source)) for package in files}
    return replace(
        found,
        locked_pip=files,
        projects=projects,
        places={**found.places, **places},
        warnings=tuple(filter(None, warnings)),
    )


def _check_selected(kind: str, selected: Sequence[str], known: Sequence[str], location: Location) -> str:
    """A warning about extras or groups that are selected for a lock without any: it has those it was exported with."""
    unknown = sorted(set(map(canonicalize_name, selected)) - set(map(canonicalize_name, known)))
    if unknown and known:
        raise location.error(
            f"the lock has no {kind} {quote(', '.join(unknown))}", hint=f"known: {', '.join(known)}; or lock again"
        )
    names = quote(", ".join(unknown))
    return f"{location}: the lock names no {kind}, so {names} must be in what it was made from" if unknown else ""


def _python_range(content: Mapping[str, Any], location: Location) -> str:
    text = content.get("requires-python", "")
    try:
        single_minor(text)
    except (ValueError, AttributeError, TypeError) as error:
        raise location.error("not a lock according to PEP 751: requires-python is no range", hint=_HINT) from error
    return str(text)


def _with_files(content: Mapping[str, Any], target: Target) -> Mapping[str, Any]:
    """The lock without packages that have no files and are for other targets, which uv writes and PEP 751 excludes.

    Names become normalised, as PEP 751 requires them. An empty list of environments is none, as pipenv writes it, and
    so is one with an empty marker, as PDM writes it for any Python. Times as text, from an older pipenv, are left out.
    """
    environments, packages = content.get("environments"), content.get("packages")
    if isinstance(environments, list) and (not environments or "" in environments):
        content = {key: value for key, value in content.items() if key != "environments"}
    if not isinstance(packages, list):
        return content
    variables: dict[str, str | frozenset[str]] = {
        **marker_environment(target),
        "extras": _names(content, "extras"),
        "dependency_groups": _names(content, "dependency-groups"),
    }
    kept = (package for package in packages if not _is_empty_and_foreign(package, variables))
    return {**content, "packages": [_normalised(package) for package in kept]}


def _names(content: Mapping[str, Any], key: str) -> frozenset[str]:
    names = content.get(key)
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def _normalised(package: Any) -> Any:
    if not isinstance(package, dict):
        return package
    name, files = package.get("name"), {key: _without_text_time(package[key]) for key in _FILES.intersection(package)}
    return {**package, **files, **({"name": canonicalize_name(name)} if isinstance(name, str) else {})}


def _without_text_time(files: Any) -> Any:
    if isinstance(files, list):
        return [_without_text_time(file) for file in files]
    if isinstance(files, dict) and isinstance(files.get("upload-time"), str):
        return {key: value for key, value in files.items() if key != "upload-time"}
    return files


def _is_empty_and_foreign(package: object, variables: Mapping[str, str | frozenset[str]]) -> bool:
    if not isinstance(package, dict) or _FILES.intersection(package) or "marker" not in package:
        return False
    try:
        return not Marker(str(package["marker"])).evaluate(variables)
    except (LookupError, ValueError):  # the validation reports it
        return False


def _validated(content: Mapping[str, Any], source: Source) -> Pylock:
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    location = source.location
    _check_files(content, source)
    try:
        return Pylock.from_dict(content)
    except PylockUnsupportedVersionError as error:
        raise location.error(str(error), hint=_HINT) from error
    except PylockValidationError as error:
        raise location.error(f"not a lock according to PEP 751: {_reason(error)}", hint=_HINT) from error


def _check_files(content: Mapping[str, Any], source: Source) -> None:
    """Refuse packages without files; PDM writes them and reports success if it cannot read its index."""
    packages = content.get("packages")
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict) and isinstance(package.get("name"), str) and not _FILES.intersection(package):
            raise _place(package["name"], source).error(
                f"the lock names no file of {quote(package['name'])}",
                hint=f"{_HINT}, where it can read its package index",
            )


def _select(
    lock: Pylock, extras: Sequence[str], groups: Sequence[str], source: Source, target: Target
) -> tuple[tuple[PipPackage, ...], tuple[Path, ...]]:
    """The wheels and source distributions for a target, and the folders of projects to build."""
    from packaging.pylock import PackageDirectory, PylockSelectError, PylockValidationError

    environment = cast("Environment", marker_environment(target))
    files, projects = [], []
    try:
        for package, file in lock.select(
            environment=environment,
            tags=wheel_tags(target),
            extras=extras,
            dependency_groups=[*(lock.default_groups or ()), *groups],
        ):
            name_line = _place(package.name, source)
            if isinstance(file, PackageDirectory):
                projects.append(_project(package.name, file, name_line))
            else:
                files.append(_file(package, file, name_line, target))
    except PylockSelectError as error:
        raise _not_selected(error, source, target) from error
    except (PylockValidationError, ValueError, LookupError, TypeError) as error:  # also of malformed markers
        reason = f"not a lock according to PEP 751: {_reason(error)}"
        raise source.location.error(reason, hint=_HINT) from error
    return tuple(files), tuple(projects)


def _place(name: str, source: Source) -> Location:
    return source.package_places.get(name, source.location)


def _project(name: str, directory: PackageDirectory, location: Location) -> Path:
    """The folder of a project that the lock names beside packages; not the one that the lock is of."""
    folder = local_path(directory.path, location.path.parent.absolute())
    if folder == real_path(location.path.parent):
        raise location.error(
            f"{name} is the project that the lock is of; a model's code is in its own folder",
            hint=EXPORT_COMMAND,
        )
    return checked_project(folder, directory.path, location)


def _not_selected(error: PylockSelectError, source: Source, target: Target) -> InputError:
    """The library's error as ours. The package without a fitting wheel is named only in its message."""
    if package := re.match(r"No wheel found .* for package '([a-z0-9-]+)'", str(error)):
        return wrong_platform(package[1], _place(package[1], source), target)
    return source.location.error(
        f"the lock is not for Python {target.minor} on {target.platform}: {_reason(error)}",
        hint=f"choose the Python that it was made for, or write the lock again for {target.platform}",
    )


def _file(package: Package, file: object, location: Location, target: Target) -> PipPackage:
    """The wheel of a package, or its source distribution if no wheel fits; uv calls a wheel of no index an archive."""
    from packaging.pylock import PackageArchive, PackageSdist, PackageWheel

    if isinstance(file, (PackageWheel, PackageSdist)) or (isinstance(file, PackageArchive) and _is_wheel(file)):
        sha256 = file.hashes.get("sha256", "")
        return locked_file(file.path or file.url or "", sha256, location, target, size=file.size or 0)
    raise location.error(
        f"{package.name} is from a repository, or from an archive that is no release, and envpack builds neither",
        hint=f"build a wheel of it with pip wheel, name that as the source of {package.name}, and lock again",
    )


def _is_wheel(file: PackageArchive) -> bool:
    return file_name(file.path or file.url or "").endswith(".whl")


def _reason(error: Exception) -> str:
    return quote(" ".join(str(error).split()))[1:-1]


_NO_HASH = re.compile(r"Failed to download `(?P<wheel>[^`]{1,2000})` to compute missing hashes")
_WITHOUT_HASHES = (
    "uv export --no-emit-project --no-default-groups --no-hashes --emit-index-url --output-file requirements.txt"
)


_NAMES_PROJECT = re.compile(r'^source = \{ (?:virtual|editable) = "\." \}', re.MULTILINE)  # not of groups alone


@reads("uv.lock", order=12)
def read_uv_lock(source: Source) -> Requirements:
    """`uv.lock`

    Read: what `uv export` writes as a `pylock.toml` without the project and its default groups; extras and groups as
    `[tool.envpack]` in the `pyproject.toml` beside it selects them

    Refused: as in `pylock.toml`, and a lock without its `pyproject.toml`
    """
    from envpack.support.uv import run_uv

    location, path, project = source.location, source.path, source.project.path
    if not project.is_file() or ("project" not in source.project.toml and _NAMES_PROJECT.search(source.text)):
        raise location.error(
            "is read together with the pyproject.toml of its project, which is not beside it",
            hint=f"run {EXPORT_COMMAND} there, and name that",
        )
    extras, groups = read_selection(source.project)
    with temp_dir("uv-lock") as folder:
        pylock = folder / "pylock.toml"
        completed = run_uv(  # offline: for hashes that are missing, uv would download the wheels of all platforms
            [
                *("export", "--project", path.parent.absolute(), "--frozen", "--offline", "--format", "pylock.toml"),
                *("--no-emit-project", "--no-default-groups", "--no-header", "--quiet", "--output-file", pylock),
                *(part for extra in extras for part in ("--extra", extra)),
                *(part for group in groups for part in ("--group", group)),
            ]
        )
        if completed.returncode != 0:
            raise completed.refused_by_system(folder) or _unreadable(location, completed.stderr)
        exported = read_text(pylock)
        content = _with_absolute_paths(parse_toml(exported, location), folder)
    _refuse_outdated(source, content, "uv lock")
    found = _select_wheels(content, replace(source, text=exported))
    return replace(found, files=(path, project))


def _unreadable(location: Location, output: str) -> InputError:
    reason = " ".join(output.split()).removeprefix("error: ")
    if missing := _NO_HASH.match(reason):  # as from PyTorch's index
        what = f"has no hash of {quote(missing['wheel'])}, since its index names none"
        return location.error(what, hint=f"run there: {_WITHOUT_HASHES}, and name that file")
    unknown = reason.startswith(("Extra ", "Group "))
    hint = "correct extras and groups in [tool.envpack]" if unknown else "write it again: uv lock"
    return location.error(f"uv cannot read it: {quote(reason)[1:-1]}", hint=hint)


def _with_absolute_paths(value: Any, folder: Path) -> Any:
    """A value of the exported lock whose paths do not depend on the folder that uv wrote it into."""
    if isinstance(value, list):
        return [_with_absolute_paths(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_absolute_paths(item, folder) for key, item in value.items()}
    if isinstance(value.get("path"), str):
        found["path"] = str(real_path(folder / value["path"]))
    return found

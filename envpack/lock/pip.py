"""The pip part of a lock: exact wheels for requirements, their hashes, wheels of local projects; uv installs them."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from envpack.lock.lockfile import wheel_not_here
from envpack.lock.uv import failing_requirement, platform_name, requirement_name, uv_error
from envpack.requirements.format import Source
from envpack.requirements.formats.pyproject import read_required
from envpack.requirements.location import local_file, read_text as read_project
from envpack.requirements.model import PipPackage, Requirements
from envpack.requirements.pip_requirement import reduced_marker
from envpack.requirements.target import Target
from envpack.requirements.tool_tables import ToolTables
from envpack.support.bounded_reading import read_text
from envpack.support.errors import EnvironmentBuildError, InputError, StorageError
from envpack.support.folders import cache_folder
from envpack.support.processes import CompletedProcess, clean_environment, library_variable
from envpack.support.redaction import public_url
from envpack.support.tables import quote
from envpack.support.temp_dirs import partial_folder, temp_dir
from envpack.support.text import normalise_name
from envpack.support.uv import NO_VARIABLES, no_index, pip_indexes, run_uv

# The time of all files in wheels of projects, 1980-01-01: the same project has the same wheel on all machines.
_SAME_TIME = {"SOURCE_DATE_EPOCH": "315532800"}
_TRIES = 3  # offline attempts; each failure names one wheel that uv's cache does not have


def index_variables(requirements: Requirements) -> dict[str, str]:
    """The indexes of requirements, and the hosts that they trust, as variables for uv.

    In a requirements file, uv would let its own variables win, so that a package could come from another index than the
    file names. Variables also keep passwords off the command line.
    """
    default, others = _indexes(requirements.pip_options)
    variables = {name: hosts for name, hosts in requirements.download_variables.items() if name != "UV_INDEX"}
    if default:
        variables |= {"UV_DEFAULT_INDEX": requirements.with_name(default), "UV_INDEX_URL": default}
    if others:
        own = pip_indexes() | clean_environment()
        variables["UV_INDEX"] = " ".join([*map(requirements.with_name, others), own.get("UV_INDEX", "")]).strip()
    return variables


def _indexes(options: tuple[str, ...]) -> tuple[str, list[str]]:
    addresses = [option.split() for option in options if option.startswith(("--index-url ", "--extra-index-url "))]
    default = [address for name, address in addresses if name == "--index-url"]
    return default[-1] if default else "", [address for name, address in addresses if name != "--index-url"]


def resolve_pip(
    requirements: Requirements,
    target: Target,
    *,
    wheels: Sequence[Path] = (),
    provided: Sequence[str] = (),
    prefer: Sequence[PipPackage] = (),
    sources: Sequence[str] = (),
) -> tuple[PipPackage, ...]:
    """Resolve pip requirements; returns wheels, and source distributions of ``sources``, sorted by name."""
    named_wheels = (f"{wheel.name.partition('-')[0]} @ {wheel.as_uri()}" for wheel in wheels)
    pip_requirements = [*requirements.pip, *named_wheels]
    if not pip_requirements:
        return ()
    with temp_dir("lock") as folder:
        pylock = folder / "pylock.toml"
        if prefer:
            pylock.write_text(to_pylock(prefer, target), encoding="utf-8")
        own = dict(requirements.indexes)
        general = [line for line in pip_requirements if requirement_name(line) not in own]
        options = [option for option in requirements.pip_options if option.split()[0] in _FILE_OPTIONS]
        completed = run_uv(
            [
                *("pip", "compile"),
                _write_lines(folder / "requirements.in", (*options, *general)),
                *([_write_own_indexes(folder, pip_requirements, requirements)] if own else []),
                *(*_argument_options(requirements), *no_index()),
                *("--constraints", _write_lines(folder / "constraints.txt", requirements.constraints)),
                *("--excludes", _write_lines(folder / "excludes.txt", provided)),
                *("--python", sys.executable, "--python-version", target.python),
                *("--python-platform", platform_name(target.machine, target.glibc)),
                *_source_policy(requirements, sources),
                *("--format", "pylock.toml", "--no-header", "--quiet", "--output-file", pylock),
            ],
            variables=index_variables(requirements),
        )
        if completed.returncode != 0:
            places = requirements.places
            constraints = [*applying(requirements.constraints, target)]
            raise uv_error(
                completed, pip_requirements, folder, places=places, sources=sources, own=own, constraints=constraints
            )
        entries = tomllib.loads(read_text(pylock)).get("packages", ())
    # Of an index that has other hashes only, uv repeats these; of a file by its address, it computes the right one.
    weak = {entry["name"]: _file(entry)["url"] for entry in entries if "sha256" not in _file(entry)["hashes"]}
    lines = (f"{name} @ {url}" for name, url in weak.items())
    if added := [line for line in lines if line not in requirements.pip]:
        indexes = tuple((name, url) for name, url in requirements.indexes if name not in weak)
        requirements = replace(requirements, pip=(*requirements.pip, *added), indexes=indexes)
        return resolve_pip(requirements, target, wheels=wheels, provided=provided, prefer=prefer, sources=sources)
    packages = sorted(map(_package, entries), key=lambda package: package.name)
    check_files(packages, requirements, target)
    return tuple(packages)


_OPTIONS_OF_UV = ("--resolution", "--prerelease", "--index-strategy", "--exclude-newer", "--exclude-newer-package")
_FILE_OPTIONS = ("--find-links", "--no-index", "--no-binary", "--only-binary")  # that uv reads in a file


def _write_own_indexes(folder: Path, lines: Sequence[str], requirements: Requirements) -> Path:
    """Write requirements with own indexes as a project, into a private folder: addresses can have passwords."""
    indexes = dict(requirements.indexes)
    own = [line.partition(" --hash=")[0] for line in lines if requirement_name(line) in indexes]
    text = ["[project]", 'name = "envpack-indexes"', 'version = "0"', f"dependencies = {json.dumps(own)}"]
    distinct = dict.fromkeys(indexes.values())
    names = {url: requirements.index_name(url) or f"own-{number}" for number, url in enumerate(distinct)}
    text += ["[tool.uv.sources]", *(f"{_text(name)}.index = {_text(names[url])}" for name, url in indexes.items())]
    for url, name in names.items():
        text += ["[[tool.uv.index]]", f"name = {_text(name)}", f"url = {_text(url)}", "explicit = true"]
    return _write_lines(folder / "pyproject.toml", text)


def _argument_options(requirements: Requirements) -> list[str]:
    """The options that uv takes as arguments, none of them secret. ``--prefer-binary`` is uv's default."""
    arguments = []
    for option in requirements.pip_options:
        name, _, value = option.partition(" ")
        if name in _OPTIONS_OF_UV:
            arguments.append(f"{name}={value}")
        arguments += ["--prerelease", "allow"] if name == "--pre" else []
    return arguments


def _write_lines(file: Path, lines: Sequence[str]) -> Path:
    """Write a file in a private folder, because lines can contain passwords."""
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def _source_policy(requirements: Requirements, sources: Sequence[str]) -> list[str]:
    """Only wheels, except for the packages that the user allows to be built from source."""
    own = any(option.startswith(("--no-binary", "--only-binary")) for option in requirements.pip_options)
    if own or ":all:" in sources:
        return []
    return ["--only-binary", ":all:", *(part for name in sources for part in ("--no-binary", name))]


def _package(entry: dict[str, Any]) -> PipPackage:
    name, version, file = normalise_name(str(entry["name"])), str(entry.get("version", "")), _file(entry)
    url = str(file["url"]) if "url" in file else Path(str(file["path"])).as_uri()
    version = version or Path(url).name.split("-")[1]
    return PipPackage(name, version, public_url(url), str(file["hashes"]["sha256"]), int(file.get("size", 0)))


def _file(entry: dict[str, Any]) -> dict[str, Any]:
    files: list[dict[str, Any] | None] = [*entry.get("wheels", ()), entry.get("archive"), entry.get("sdist")]
    if file := next(filter(None, files), None):
        return file
    what = f"pip requirement {normalise_name(entry['name'])!r} is neither a wheel nor a source distribution"
    fix = "name a released version; a repository or a folder cannot be locked"
    raise EnvironmentBuildError("unresolvable", what, fix)


def to_pylock(packages: Sequence[PipPackage], target: Target) -> str:
    """The text of a ``pylock.toml`` (PEP 751) with exactly these files."""
    lines = ['lock-version = "1.0"', 'created-by = "envpack"', f'requires-python = ">={target.python}"']
    for package in packages:
        lines += ["", "[[packages]]", f"name = {_text(package.name)}", f"version = {_text(package.version)}"]
        hashes = f"hashes = {{ sha256 = {_text(package.sha256)} }}"
        if file := local_file(package.url):
            lines.append(f"archive = {{ path = {_text(str(file))}, {hashes} }}")
        elif package.is_wheel:
            lines.append(f"wheels = [{{ url = {_text(package.url)}, {hashes} }}]")
        else:
            lines.append(f"sdist = {{ url = {_text(package.url)}, {hashes} }}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML string


def build_wheels(requirements: Requirements, target: Target, python: Path, cache: Path) -> tuple[Path, ...]:
    """Build a wheel of each local project, into the cache; the environment never links to the project's folder."""
    folder, variables = cache_folder("wheels", cache), index_variables(requirements)
    wheels = tuple(_build_wheel(project, target, python, folder, variables) for project in requirements.projects)
    locked = (*(wheel.name for wheel in requirements.locked_pip), *(conda.name for conda in requirements.locked_conda))
    named = {*map(requirement_name, requirements.pip), *locked}
    for project in requirements.projects:
        _refuse_own_sources(project, named | {normalise_name(wheel.name.partition("-")[0]) for wheel in wheels}, target)
    return wheels


def _refuse_own_sources(project: Path, named: Set[str], target: Target) -> None:
    """Refuse a project whose ``[tool.uv.sources]``, which its wheel lacks, decide on an unnamed dependency."""
    file = project / "pyproject.toml"
    source = Source(file, read_project(file) if file.is_file() else "", target)
    for name in map(requirement_name, read_required(source)):
        if name not in named and ToolTables(source).has_source(name):
            what = f"[tool.uv.sources] decides where {name} comes from, which the wheel of this project does not say"
            fix = f"name {name} among the requirements, too, with that source; or run uv lock for all of them"
            raise InputError("bad-requirements", what, fix, str(source.place(name)))


def _build_wheel(project: Path, target: Target, python: Path, folder: Path, variables: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with partial_folder(folder) as temporary:
        options: list[str | Path] = ["--wheel", "--out-dir", temporary, "--no-config", *no_index()]
        variables = {**variables, **_SAME_TIME, **library_variable(python)}
        completed = run_uv(["build", *options, "--python", python, project], variables=variables)
        wheels = list(temporary.glob("*.whl"))
        if completed.returncode != 0 or len(wheels) != 1:
            error = uv_error(completed, [project.name], folder)
            error.where = error.where or str(project)
            raise error
        if not wheels[0].stem.endswith(("-any", target.machine)):
            what = f"the wheel of {project.name} is for this machine, not for {target.platform}"
            fix = f"build it on a {target.machine} machine and require the wheel"
            raise EnvironmentBuildError("build-failed", what, fix, str(project))
        # In a folder named after its content, so that locks stay valid after later builds.
        stored = folder / hashlib.sha256(wheels[0].read_bytes()).hexdigest()[:16]
        stored.mkdir(exist_ok=True)
        return wheels[0].replace(stored / wheels[0].name)


def install_pip(
    packages: Sequence[PipPackage],
    prefix: Path,
    target: Target,
    *,
    python: Path,
    variables: Mapping[str, str] = NO_VARIABLES,
    cached: bool = True,
) -> None:
    """Install exactly these wheels into a prefix that contains a Python; if not ``cached``, none from uv's cache."""
    if not packages:
        return
    if absent := wheel_not_here(packages):
        what = f"the lock names {absent.name} {absent.version} by a path, and there is no such file on this machine"
        fix = "run `envpack lock` here; or where the lock was made, with --store URL --set push=true"
        raise EnvironmentBuildError("package-missing", what, fix, str(local_file(absent.url)))
    into: list[str | Path] = ["--python", python]
    if not python.is_relative_to(prefix):
        into += ["--prefix", prefix]

    def installed(wheels: Sequence[PipPackage], *options: str) -> CompletedProcess:
        with temp_dir("install") as scratch:
            lock = scratch / "pylock.toml"
            lock.write_text(to_pylock(wheels, target), encoding="utf-8")
            return run_uv(
                [
                    *("pip", "install", *into, "--no-deps", "--requirements", lock, *options),
                    *("--python-platform", platform_name(target.machine, target.glibc)),
                    # Neither links to uv's cache: it is not ours. "clone" would fall back to hard links.
                    *("--link-mode", "copy"),
                ],
                variables={**variables, **library_variable(python)},
            )

    missing = _not_cached(packages, installed, prefix.parent) if cached else packages
    ended = installed(missing, *(() if cached else ("--reinstall", "--no-cache"))) if missing else None
    if ended and ended.returncode != 0:
        raise _not_installed(ended, missing, prefix.parent)


def _not_installed(
    ended: CompletedProcess, packages: Sequence[PipPackage], storage: Path
) -> EnvironmentBuildError | StorageError:
    return uv_error(ended, [f"{package.name}=={package.version}" for package in packages], storage)


def _not_cached(
    packages: Sequence[PipPackage], installed: Callable[..., CompletedProcess], storage: Path
) -> Sequence[PipPackage]:
    """Install the wheels that uv has in its cache; returns the others.

    Many mirrors send no cache lifetime. uv then downloads cached wheels again, although the same hash means the same
    content. After any other failure than that a wheel is not in its cache, uv may take a package for installed of which
    some files are missing.
    """
    tried = [package for package in packages if package.is_wheel]
    for _ in range(_TRIES):
        if not tried:
            break
        ended = installed(tried, "--offline")
        if ended.returncode == 0:
            return [package for package in packages if package not in tried]
        error = _not_installed(ended, tried, storage)
        if error.kind != "not-in-cache":
            raise error
        guilty = failing_requirement(ended.stderr, [package.name for package in tried])
        tried = [package for package in tried if guilty not in ("", package.name)]
    return packages


_REQUIRED = "--require-hashes"
_ANY = re.compile(r"( --hash=|#sha(?:256|384|512)=)")  # as an option, or as the fragment of an address
_SHA256 = re.compile(r"(?: --hash=sha256:|#sha256=)([0-9a-fA-F]{64})")


def check_lines(requirements: Requirements, target: Target) -> None:
    """Check that every requirement has a hash, if they contain ``--require-hashes``, as pip does."""
    if _REQUIRED not in requirements.pip_options:
        return
    for line in applying(requirements.pip, target):
        if not _ANY.search(line):
            raise _missing(f"{quote(line)} has no hash", "add --hash=sha256:…", requirements.places.get(line, ""))
    if requirements.projects:
        folder = requirements.projects[0]
        raise _missing("a local project has no hash", "build its wheel, and name that with its hash", str(folder))


def check_files(packages: Sequence[PipPackage], requirements: Requirements, target: Target) -> None:
    by_name = {package.name: package for package in packages}
    hashed = set()
    for line in applying((*requirements.pip, *requirements.constraints), target):
        name, hashes = requirement_name(line), {digest.lower() for digest in _SHA256.findall(line)}
        if not _ANY.search(line) or name not in by_name:
            continue
        hashed.add(name)
        if " --hash=" in line and not hashes:
            what = f"pip requirement {name!r}: none of its hashes is a SHA-256, the only kind that locks support"
            raise EnvironmentBuildError("hash-mismatch", what, "add --hash=sha256:… of the file that you trust")
        if hashes and by_name[name].sha256 not in hashes:
            what = f"pip requirement {name!r}: none of its hashes matches the file for this Python"
            fix = "leave out the index that has it, if another has the right file; or add its hash if you trust it"
            raise EnvironmentBuildError("hash-mismatch", what, fix, by_name[name].url)
    if _REQUIRED in requirements.pip_options:
        for package in packages:
            if package.name not in hashed:
                line = f"{package.name}=={package.version} --hash=sha256:…"
                raise _missing(f"the dependency {package.name!r} has no hash", f"add a line {line}", package.url)


def applying(lines: Sequence[str], target: Target) -> Iterator[str]:
    """The lines whose markers hold; as for uv, a minor version of Python stands for its first patch."""
    exact = replace(target, python=f"{target.python}.0") if target.python.count(".") == 1 else target
    for line in lines:
        try:
            marker = Requirement(line.partition(" --hash=")[0]).marker
            applies = reduced_marker(str(marker or ""), exact) is not None
        except InvalidRequirement:  # uv reports it
            applies = True
        if applies:
            yield line


def _missing(what: str, fix: str, where: str) -> EnvironmentBuildError:
    return EnvironmentBuildError("hash-missing", f"pip requirements with {_REQUIRED}: {what}", fix, where)

"""The pip part of a lock: requirements → exact wheels, by uv."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from envpack.lock.uv import platform_name, run_uv, uv_error
from envpack.requirements import PipPackage, Requirements, Target
from envpack.support.errors import EnvironmentBuildError
from envpack.support.redaction import public_url
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import normalise_name


def resolve_pip(
    requirements: Requirements,
    target: Target,
    *,
    wheels: Sequence[Path] = (),
    provided: Sequence[str] = (),
    prefer: Sequence[PipPackage] = (),
    sources: Sequence[str] = (),
) -> tuple[PipPackage, ...]:
    """Choose wheels that fulfil pip requirements.

    Args:
        requirements: their ``pip``, ``constraints`` and ``pip_options`` count.
        target: what the wheels are for, whatever this machine is.
        wheels: wheels of local projects, required too.
        provided: names of packages that conda provides; they count as installed.
        prefer: versions to stay with where they still fit.
        sources: packages that may be built from their sources; ``":all:"`` for any.

    Returns:
        Wheels, and source distributions of ``sources``, sorted by name.

    Raises:
        EnvironmentBuildError: what uv says: ``unresolvable``, ``hash-mismatch``, ``index-unreachable`` and so on.

    """
    asked = [*requirements.pip, *(_by_file(wheel) for wheel in wheels)]
    if not asked:
        return ()
    with temp_dir("lock") as folder:
        answer = folder / "pylock.toml"
        if prefer:
            answer.write_text(to_pylock(prefer, target), encoding="utf-8")
        ended = run_uv(
            [
                *("pip", "compile", _written(folder / "requirements.in", (*_understood(requirements), *asked))),
                *_as_arguments(requirements),
                *("--constraints", _written(folder / "constraints.txt", requirements.constraints)),
                *("--excludes", _written(folder / "excludes.txt", provided)),
                *("--python", sys.executable, "--python-version", target.python),
                *("--python-platform", platform_name(target.machine, target.glibc)),
                *_source_policy(requirements, sources),
                *("--format", "pylock.toml", "--no-header", "--quiet", "--output-file", answer),
            ],
        )
        if ended.returncode != 0:
            raise uv_error(ended, asked, folder)
        told = tomllib.loads(answer.read_text(encoding="utf-8"))
    chosen = tuple(sorted((_chosen(package) for package in told.get("packages", ())), key=lambda one: one.name))
    _refuse_other_hashes(chosen, requirements.pip)
    return chosen


_PASSED = ("--index-url", "--extra-index-url", "--find-links", "--no-index", "--no-binary", "--only-binary")


def _understood(requirements: Requirements) -> list[str]:
    """The options that uv reads in a requirements file; there they are seen by nobody, whatever they hold."""
    return [option for option in requirements.pip_options if option.split()[0] in _PASSED]


def _as_arguments(requirements: Requirements) -> list[str]:
    """The options that uv has under another name, none of which is secret; wheels are preferred in any case."""
    arguments = []
    for option in requirements.pip_options:
        name, _, value = option.partition(" ")
        arguments += {"--pre": ["--prerelease", "allow"], "--trusted-host": ["--allow-insecure-host", value]}.get(
            name, []
        )
    return arguments


def _refuse_other_hashes(chosen: Sequence[PipPackage], lines: Sequence[str]) -> None:
    """Make sure that each package is one of the files that the requirements name by hash, where they do."""
    by_name = {package.name: package for package in chosen}
    for line in lines:
        hashes = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
        name = normalise_name(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0])
        if "--hash=" in line and not hashes:
            raise EnvironmentBuildError(
                f"pip requirement {name!r}: none of its hashes is a SHA-256, which is what indexes and locks have",
                kind="hash-mismatch",
                hint="add --hash=sha256:… of the file that you trust",
            )
        if hashes and name in by_name and by_name[name].sha256 not in hashes:
            raise EnvironmentBuildError(
                f"pip requirement {name!r}: none of its hashes is that of the file that fits this Python",
                kind="hash-mismatch",
                where=by_name[name].url,
                hint="add the hash of that file to the requirements if you trust it",
            )


def _written(file: Path, lines: Sequence[str]) -> Path:
    """A file that only we can read, since lines may hold passwords; its folder is ours alone."""
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def _by_file(wheel: Path) -> str:
    return f"{wheel.name.partition('-')[0]} @ {wheel.as_uri()}"


def _source_policy(requirements: Requirements, sources: Sequence[str]) -> list[str]:
    """Wheels only, but for what the user allowed to be built."""
    own = any(option.startswith(("--no-binary", "--only-binary")) for option in requirements.pip_options)
    if own or ":all:" in sources:
        return []
    return ["--only-binary", ":all:", *(part for name in sources for part in ("--no-binary", name))]


def _chosen(package: dict[str, Any]) -> PipPackage:
    name, version = normalise_name(str(package["name"])), str(package.get("version", ""))
    files = [*package.get("wheels", ()), package.get("archive"), package.get("sdist")]
    file = next((one for one in files if one), None)
    if file is None:
        raise EnvironmentBuildError(
            f"pip requirement {name!r} is neither a wheel nor a source distribution",
            kind="unresolvable",
            hint="name a released version; a repository or a folder cannot be locked",
        )
    url = str(file["url"]) if "url" in file else Path(str(file["path"])).as_uri()
    version = version or Path(url).name.split("-")[1]
    return PipPackage(name, version, public_url(url), str(file["hashes"]["sha256"]), int(file.get("size", 0)))


def to_pylock(packages: Sequence[PipPackage], target: Target) -> str:
    """A ``pylock.toml`` (PEP 751) of exactly these files."""
    lines = ['lock-version = "1.0"', 'created-by = "envpack"', f'requires-python = ">={target.python}"']
    for package in packages:
        lines += ["", "[[packages]]", f"name = {_text(package.name)}", f"version = {_text(package.version)}"]
        hashes = f"hashes = {{ sha256 = {_text(package.sha256)} }}"
        address = urlsplit(package.url)
        if address.scheme == "file":
            lines.append(f"archive = {{ path = {_text(unquote(address.path))}, {hashes} }}")
        elif package.url.endswith(".whl"):
            lines.append(f"wheels = [{{ url = {_text(package.url)}, {hashes} }}]")
        else:
            lines.append(f"sdist = {{ url = {_text(package.url)}, {hashes} }}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML string

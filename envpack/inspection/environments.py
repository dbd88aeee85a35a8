"""Execution environments: where they are, and whether the release takes their form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envpack.archive import inspect_environment, is_archive
from envpack.inspection.finding import Finding, Severity, caution, fault, of_error
from envpack.releases import Release
from envpack.repository import CONFIG_NAME, SHELL_CHARACTER, Model, environment_of, get_string_parameter
from envpack.support.errors import InputError

ACTIVATE = "bin/activate"
_KEYWORD = "$$TRITON_MODEL_DIRECTORY"
# How formats begin that look like an environment's archive to people, but not to servers.
_OTHER_FORMATS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"hsqs": "squashfs",
    b"7z\xbc\xaf": "7z",
}
_BELOW_A_LINK = "it lies below a link"


def environment_findings(model: Model, release: Release) -> Iterator[Finding]:
    """Whether a server finds a model's environment and can unpack it. Nothing of it is run or unpacked."""
    path = environment_of(model)
    if path is None:
        return
    config = model.folder / CONFIG_NAME
    written = get_string_parameter(model.config, "EXECUTION_ENV_PATH")
    if not _is_plain(written):
        yield fault(
            "bad-environment-path",
            config,
            f"a server garbles EXECUTION_ENV_PATH {written!r}, or looks for it from its own working directory",
            f"write {_KEYWORD}/NAME, or an absolute path",
        )
    elif unsafe := SHELL_CHARACTER.search(written.removeprefix(_KEYWORD)):
        yield fault(
            "bad-path",
            config,
            f"EXECUTION_ENV_PATH {written!r} contains {unsafe.group()!r}, and servers hand it to a shell"
            " without quotes",
            "give the environment a name of letters, digits, '_', '-' and '.'",
        )
    elif path.is_dir():
        yield from _of_folder(path, release)
    elif path.is_file():
        yield from _of_archive(path, release)
    else:
        yield fault(
            "environment-missing",
            config,
            f"EXECUTION_ENV_PATH names {written}, which is not there",
            f"run `envpack build {model.folder.name}`",
        )


def _is_plain(written: str) -> bool:
    rest = written.removeprefix(_KEYWORD)
    return rest.startswith("/") and "$$" not in rest and ".." not in rest.split("/")


def _of_folder(folder: Path, release: Release) -> Iterator[Finding]:
    if not release.takes_folders:
        yield fault(
            "folder-unsupported",
            folder,
            f"Triton {release.name} takes no folder as an environment",
            "build an archive: `envpack build --format tar.gz`",
        )
    if not (folder / ACTIVATE).is_file():
        yield fault(
            "environment-unusable",
            folder,
            f"it has no {ACTIVATE}, without which no server takes it",
            f"build it again: `envpack build {folder.parent.name}`",
        )
    elif not any((folder / "lib").glob("libpython3.*.so.1.0")):
        yield caution(
            "libpython-missing",
            folder,
            "it has no libpython, so its stub will take one of the server's system, if there is one",
            "build one with `envpack build`, or take a Python built with --enable-shared",
        )


def _of_archive(file: Path, release: Release) -> Iterator[Finding]:
    with file.open("rb") as opened:
        start = opened.read(8)
    other = next((name for begin, name in _OTHER_FORMATS.items() if start.startswith(begin)), "")
    if other or not is_archive(file):
        yield fault(
            "archive-unsupported",
            file,
            f"it is {f'compressed with {other}' if other else 'no archive'}, and servers read tar and gzipped tar only",
            "build one that they read: `envpack build --format tar.gz`",
        )
        return
    try:
        found = inspect_environment(file)
    except InputError as error:
        yield of_error(error, file)
        return
    for one in found.findings:
        if one.kind == "refused":
            strict = one.reason != _BELOW_A_LINK or release.strict_archives
            severity: Severity = "error" if strict else "warning"
            what = f"{_shown(one.path)}: {one.reason}" if one.path else one.reason
            yield Finding("archive-refused", severity, file, what, "build it with `envpack build`")
        elif one.kind != "unproven":
            yield fault(
                "environment-changed",
                file,
                f"{_shown(one.path)}: {one.reason}" if one.path else one.reason,
                "build it again, or copy it again from where it was made",
            )


def _shown(name: str) -> str:
    """Names in an archive of somebody's may hold anything."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)

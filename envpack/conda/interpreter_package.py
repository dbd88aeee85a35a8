"""An interpreter of this machine as a conda package (``.conda``)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
import zipfile
from pathlib import Path

from envpack.conda.interpreters import Interpreter
from envpack.conda.relocatable_copy import PLACEHOLDER, copy_interpreter
from envpack.support.elf import is_elf, required_abi
from envpack.support.platforms import host_platform, this_machine
from envpack.support.replacement import replaced_file

_TIME = 315532800  # 1980-01-01, the oldest time in a zip archive, in seconds since 1970
_RECIPE = 3  # increased whenever the same interpreter gives another package


def fingerprint(interpreter: Interpreter) -> str:
    """A name for the conda package of an interpreter, which changes when the interpreter's files change.

    It depends on the size and the modification time of the program and the library; the content is not read. uv gives
    its files the time of their installation; of one that was fetched, the number of uv's build counts instead, so that
    locks still fit if the cache was pruned and it is fetched again.
    """
    key_parts: list[object] = [_RECIPE, interpreter.version, str(interpreter.prefix)]
    for file in (interpreter.executable, interpreter.library):
        if file is not None:
            status = file.stat()
            key_parts += [str(file), _build_of(interpreter) or status.st_mtime_ns, status.st_size]
    key_parts += [folder.parent.name for folder in interpreter.machine_headers]
    return hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()[:16]


def _build_of(interpreter: Interpreter) -> str:
    """The number of the build that uv has fetched, ``""`` for other interpreters."""
    file = interpreter.prefix / "BUILD"
    return file.read_text(encoding="utf-8", errors="replace") if interpreter.fetched and file.is_file() else ""


def make_package(interpreter: Interpreter, folder: Path) -> Path:
    """Write the conda package of an interpreter into ``folder``; returns its file."""
    build = f"local_{fingerprint(interpreter)}"
    name = f"python-{interpreter.version}-{build}"
    with tempfile.TemporaryDirectory(prefix=".copy-", dir=folder) as temporary:
        tree = Path(temporary) / "tree"
        tree.mkdir()
        copy_interpreter(interpreter, tree)
        files = sorted(file for file in tree.rglob("*") if file.is_symlink() or file.is_file())
        glibc = required_abi(file for file in files if is_elf(file)).glibc.version
        info = _info_files(interpreter, build, glibc, [_path_record(file, tree) for file in files])
        payload = [(str(file.relative_to(tree)), file) for file in files]
        package = folder / f"{name}.conda"
        with replaced_file(package) as partial:
            _write_package(partial, name, info, payload)
    return package


def _path_record(file: Path, tree: Path) -> dict[str, object]:
    record: dict[str, object] = {"_path": str(file.relative_to(tree))}
    if file.is_symlink():
        return record | {"path_type": "softlink", "sha256": hashlib.sha256(b"").hexdigest(), "size_in_bytes": 0}
    content = file.read_bytes()
    if PLACEHOLDER.encode() in content:
        record |= {"prefix_placeholder": PLACEHOLDER, "file_mode": "text"}
    digest = hashlib.sha256(content).hexdigest()
    return record | {"path_type": "hardlink", "sha256": digest, "size_in_bytes": len(content)}


def _info_files(
    interpreter: Interpreter, build: str, glibc: str, paths: list[dict[str, object]]
) -> list[tuple[str, bytes]]:
    index = {
        "name": "python",
        "version": interpreter.version,
        "build": build,
        "build_number": 0,
        "subdir": host_platform(),
        "arch": this_machine(),
        "platform": "linux",
        "depends": [f"__glibc >={glibc}"] if glibc else [],
        "constrains": [],
        "license": "Python-2.0",
        "timestamp": _TIME * 1000,
    }
    about = {"summary": "Python as installed on the machine that envpack ran on", "license": "Python-2.0"}
    prefixed = [f"{PLACEHOLDER} text {path['_path']}\n" for path in paths if "file_mode" in path]
    return [
        ("info/about.json", _json(about)),
        ("info/files", "".join(f"{path['_path']}\n" for path in paths).encode()),
        ("info/has_prefix", "".join(prefixed).encode()),
        ("info/index.json", _json(index)),
        ("info/paths.json", _json({"paths": paths, "paths_version": 1})),
    ]


def _json(content: object) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()


def _write_package(file: Path, name: str, info: list[tuple[str, bytes]], payload: list[tuple[str, Path]]) -> None:
    members = [
        ("metadata.json", _json({"conda_pkg_format_version": 2})),
        (f"info-{name}.tar.zst", _compressed(_tar_of_bytes(info))),
        (f"pkg-{name}.tar.zst", _compressed(_tar_of_files(payload))),
    ]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members:
            archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), content)


def _compressed(content: bytes) -> bytes:
    from envpack.support.zstd import compress

    return compress(content, level=9)


def _tar_of_bytes(members: list[tuple[str, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members:
            info = _member(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _tar_of_files(members: list[tuple[str, Path]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, file in members:
            info = _member(name)
            if file.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, str(file.readlink())
                archive.addfile(info)
                continue
            info.mode = 0o755 if os.access(file, os.X_OK) else 0o644
            info.size = file.stat().st_size
            with file.open("rb") as content:
                archive.addfile(info, content)
    return stream.getvalue()


def _member(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = 0o644, _TIME
    return info

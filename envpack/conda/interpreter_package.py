"""An interpreter of this machine as a conda package (``.conda``), from a copy that runs in any folder."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from envpack.conda.bytecode import compile_files
from envpack.conda.interpreters import Interpreter
from envpack.support.elf import is_elf, required_abi, set_runpath, strip
from envpack.support.platforms import host_platform, libpython_name, this_machine
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
    file = interpreter.prefix / "BUILD"
    return file.read_text(encoding="utf-8", errors="replace") if interpreter.fetched and file.is_file() else ""


def make_package(interpreter: Interpreter, folder: Path) -> Path:
    build = f"local_{fingerprint(interpreter)}"
    name = f"python-{interpreter.version}-{build}"
    with tempfile.TemporaryDirectory(prefix=".copy-", dir=folder) as temporary:
        tree = Path(temporary) / "tree"
        tree.mkdir()
        copy_interpreter(interpreter, tree)
        files = sorted(file for file in tree.rglob("*") if file.is_symlink() or file.is_file())
        glibc = required_abi(file for file in files if is_elf(file)).glibc
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
        (f"info-{name}.tar.zst", _compressed(_tar(info))),
        (f"pkg-{name}.tar.zst", _compressed(_tar(payload))),
    ]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members:
            archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), content)


def _compressed(content: bytes) -> bytes:
    from envpack.support.zstd import compress

    return compress(content, level=9)


def _tar(members: Iterable[tuple[str, bytes | Path]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = 0o644, _TIME
            if isinstance(content, Path) and content.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, str(content.readlink())
                archive.addfile(info)
                continue
            if isinstance(content, Path) and os.access(content, os.X_OK):
                info.mode = 0o755
            data = content.read_bytes() if isinstance(content, Path) else content
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


PLACEHOLDER = "/opt/envpack_placeholder" + "_placeholder" * 4
_EXCLUDED_FOLDERS = {
    "__pycache__",
    "_bundled",
    "dist-packages",
    "idle_test",
    "idlelib",
    "site-packages",
    "test",
    "tests",
    "turtledemo",
}
_EXCLUDED_FILES = re.compile(r".*\.(a|exe|pyc|pyo|o)$")
_RUNTIME_SUBSTITUTION = """

import sys as _sys
build_time_vars = {{
    _key: _value.replace({token!r}, _sys.prefix) if isinstance(_value, str) else _value
    for _key, _value in build_time_vars.items()
}}
"""


def copy_interpreter(interpreter: Interpreter, target: Path) -> None:
    """Fill an empty folder with a relocatable copy, without tests, packages, static libraries and makefiles."""
    _copy_programs(interpreter, target / "bin")
    _copy_libraries(interpreter, target / "lib")
    library = target / "lib" / f"python{interpreter.minor}"
    shutil.copytree(interpreter.stdlib, library, symlinks=True, ignore=_excluded)
    (library / "EXTERNALLY-MANAGED").unlink(missing_ok=True)  # no other tool manages the copy
    headers = (interpreter.include, *interpreter.machine_headers) if interpreter.include.is_dir() else ()
    for folder in headers:
        place = target / "include" / folder.relative_to(interpreter.include.parent)
        shutil.copytree(folder, place, symlinks=True)
    if interpreter.distribution:
        _undo_distribution_layout(library)
    _relocate_binaries(interpreter, target)
    _relocate_texts(interpreter, target)
    compile_files(target, [_fixed_sources(target, library)], target / "bin" / f"python{interpreter.minor}")


def _fixed_sources(target: Path, library: Path) -> list[str]:
    """The modules without `PLACEHOLDER`, which byte code would keep when an installer replaces it in the module."""
    modules = (file for file in library.rglob("*.py") if PLACEHOLDER.encode() not in file.read_bytes())
    return sorted(str(file.relative_to(target)) for file in modules)


def _copy_programs(interpreter: Interpreter, folder: Path) -> None:
    folder.mkdir(parents=True)
    name = f"python{interpreter.minor}"
    shutil.copy2(interpreter.executable, folder / name)
    (folder / name).chmod(0o755)
    for link in ("python3", "python"):
        (folder / link).symlink_to(name)


def _copy_libraries(interpreter: Interpreter, folder: Path) -> None:
    folder.mkdir()
    if interpreter.library is None:
        return
    real = libpython_name(interpreter.minor)
    shutil.copy2(interpreter.library, folder / real)
    (folder / real.removesuffix(".1.0")).symlink_to(real)
    stable_abi = interpreter.library.with_name("libpython3.so")
    if stable_abi.is_file():
        shutil.copy2(stable_abi, folder / stable_abi.name)
    for library in folder.iterdir():
        if not library.is_symlink():
            library.chmod(0o755)
    pkgconfig = interpreter.library.with_name("pkgconfig")
    for name in (f"python-{interpreter.minor}", f"python-{interpreter.minor}-embed"):
        if (pkgconfig / f"{name}.pc").is_file():
            (folder / "pkgconfig").mkdir(exist_ok=True)
            shutil.copy2(pkgconfig / f"{name}.pc", folder / "pkgconfig")


def _excluded(folder: str, names: list[str]) -> set[str]:
    skipped = set()
    for name in names:
        path = Path(folder, name)
        if path.is_dir():
            if name in _EXCLUDED_FOLDERS or name.startswith("config-"):
                skipped.add(name)
        elif _EXCLUDED_FILES.match(name) or not path.exists():
            skipped.add(name)
    return skipped


def _undo_distribution_layout(library: Path) -> None:
    """Let installers use ``site-packages``: a link leads there from Debian's ``dist-packages``."""
    (library / "sitecustomize.py").unlink(missing_ok=True)
    (library / "dist-packages").symlink_to("site-packages")
    local, usual = "prefix_scheme = 'posix_local'", "prefix_scheme = 'posix_prefix'"
    package = library / "sysconfig/__init__.py"  # from Python 3.13 on
    module = package if package.is_file() else library / "sysconfig.py"
    _rewrite(module, lambda text: text.replace(local, usual))


def _relocate_binaries(interpreter: Interpreter, target: Path) -> None:
    binaries = [file for file in sorted(target.rglob("*")) if is_elf(file)]
    for file in binaries:
        file.chmod(file.stat().st_mode | 0o200)
    strip(binaries)
    by_folder: dict[Path, list[Path]] = {}
    for file in binaries:
        by_folder.setdefault(file.parent, []).append(file)
    for folder, files in by_folder.items():
        set_runpath(files, f"$ORIGIN/{os.path.relpath(target / 'lib', folder)}".removesuffix("/."))
    for file in binaries:
        neutralise_prefix(file, interpreter.prefix)


def neutralise_prefix(file: Path, prefix: Path) -> None:
    """Replace the first component of ``prefix`` in a binary by underscores of the same length.

    The rest of the string stays, because linkers let other strings share its tail. Without this, an interpreter that
    does not find its library beside itself would silently use that of the machine it was built on.
    """
    first = os.fsencode(prefix.parts[1])
    pattern = rb"(?<![\w./-])" + re.escape(os.fsencode(prefix)) + rb"(?=\x00|:|/lib(?:64)?(?:/python|\x00|:))"
    content = file.read_bytes()
    hidden = b"/" + b"_" * len(first)
    changed = re.sub(pattern, lambda match: hidden + match[0][len(hidden) :], content)
    if changed != content:
        file.write_bytes(changed)


def _relocate_texts(interpreter: Interpreter, target: Path) -> None:
    prefix = re.compile(re.escape(str(interpreter.prefix)) + r"(?![\w.-])")
    distinctive = len(interpreter.prefix.parts) > 3  # "/usr" and "/usr/local" are common in other texts
    for file in sorted(target.rglob("*")):
        if file.is_symlink() or not file.is_file() or is_elf(file):
            continue
        if file.suffix == ".pc":
            _rewrite(file, lambda text: _relative_pkgconfig(text, prefix))
        elif file.name.startswith("_sysconfigdata_"):
            _rewrite(file, lambda text: _runtime_sysconfig(text, prefix))
        elif distinctive and os.fsencode(interpreter.prefix) in file.read_bytes():
            _rewrite(file, lambda text: prefix.sub(PLACEHOLDER, text))


def _relative_pkgconfig(text: str, prefix: re.Pattern[str]) -> str:
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("prefix=")]
    return "prefix=${pcfiledir}/../..\n" + prefix.sub("${prefix}", "".join(lines))


def _runtime_sysconfig(text: str, prefix: re.Pattern[str]) -> str:
    token = "@ENVPACK_PREFIX@"  # noqa: S105 - not a secret
    return prefix.sub(token, text) + _RUNTIME_SUBSTITUTION.format(token=token)


def _rewrite(file: Path, change: Callable[[str], str]) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    file.chmod(file.stat().st_mode | 0o200)
    file.write_text(change(text), encoding="utf-8")

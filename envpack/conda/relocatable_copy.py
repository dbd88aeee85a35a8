"""A copy of an installed interpreter that runs from any folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from envpack.conda.bytecode import compile_files
from envpack.conda.interpreters import Interpreter
from envpack.support.elf import is_elf, set_runpath, strip
from envpack.support.platforms import libpython_name

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
    """Fill the empty folder ``target`` with a relocatable copy: ``bin``, ``lib``, ``include``, byte code.

    Tests, installed packages, static libraries and the makefiles for extension modules are not copied. In binaries,
    the prefix that the interpreter was compiled for is changed, see `neutralise_prefix`; in text files that still
    contain it, `PLACEHOLDER` replaces it.
    """
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
    """Make installers use ``site-packages`` in a copy of Debian's standard library.

    Debian's interpreter has ``dist-packages`` compiled in as the search path, so a link leads from there.
    """
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


def neutralise_prefix(file: Path, prefix: Path) -> bool:
    """Replace the first component of ``prefix`` in a binary by underscores of the same length.

    The rest of the string stays, because linkers let other strings share its tail. Without this, an interpreter that
    does not find its library beside itself would silently use that of the machine it was built on.

    Returns whether the file was changed.
    """
    first = os.fsencode(prefix.parts[1])
    pattern = rb"(?<![\w./-])" + re.escape(os.fsencode(prefix)) + rb"(?=\x00|:|/lib(?:64)?(?:/python|\x00|:))"
    content = file.read_bytes()
    hidden = b"/" + b"_" * len(first)
    changed = re.sub(pattern, lambda match: hidden + match[0][len(hidden) :], content)
    if changed != content:
        file.write_bytes(changed)
    return changed != content


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

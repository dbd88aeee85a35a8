"""Starts an interpreter to ask what it is, and remembers the answer until something that it was read from changes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, TypedDict, TypeGuard, cast

from envpack.support.bounded_reading import parse_json
from envpack.support.elf import required_abi
from envpack.support.folders import cache_root
from envpack.support.memory import remember, remembered
from envpack.support.processes import bare_environment, library_variable, run
from envpack.support.text import may_be_path

_TIMEOUT = 30.0  # seconds
_silent: set[Path] = set()  # programs that did not end by then, which this process does not start again
_PROBE = """
import json, os, sys, sysconfig
get = sysconfig.get_config_var
name = get("INSTSONAME") or ""
libdir = get("LIBDIR") or ""
folders = [libdir, os.path.join(sys.base_prefix, "lib"), os.path.join(libdir, get("MULTIARCH") or "")]
found = [os.path.join(f, name) for f in folders if f and ".so" in name and os.path.isfile(os.path.join(f, name))]
read = [getattr(module, "__file__", None) for module in list(sys.modules.values()) if "sysconfig" in module.__name__]
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.base_prefix, "library": found[0] if found else None,
    "include": sysconfig.get_path("include"), "stdlib": sysconfig.get_path("stdlib"),
    "release": sys.version_info[3] == "final", "implementation": sys.implementation.name,
    "patched": "dist-packages" in sysconfig.get_path("purelib"), "free_threaded": bool(get("Py_GIL_DISABLED")),
    "read": [path for path in read if path] + [sysconfig.get_config_h_filename()],
}))
"""


class Facts(TypedDict):
    """What an interpreter says of itself, the newest glibc that it needs, and the files that were ``read`` for that."""

    version: str
    prefix: str
    library: str | None
    include: str
    stdlib: str
    release: bool
    implementation: str
    patched: bool
    free_threaded: bool
    read: list[str]
    glibc: str


class ProbeMemory:
    """Facts about interpreters, so that each is started once.

    An answer holds as long as the interpreter, its library, and all files that it was read from have the size and time
    stamp that they had. That an interpreter does not run, or has no shared library, is never remembered: the next
    package that the user installs may change it.
    """

    def __init__(self) -> None:
        self._file = cache_root() / "interpreters.json"
        self._changed = False
        # The facts, and a stamp of each file that they come from; another version of envpack may have kept other facts.
        self._known = {path: known for path, known in remembered(self._file).items() if _is_remembered(known)}

    def facts(self, executable: Path) -> Facts | None:
        """Facts about an interpreter; ``None`` if it does not run."""
        known = self._known.get(str(executable))
        if known and known["stamps"] == _stamps(executable, known["facts"]):
            return cast("Facts", known["facts"])
        probed = _probe(executable)
        if known:
            del self._known[str(executable)]
            self._changed = True
        if probed and probed["library"]:
            self._known[str(executable)] = {"facts": probed, "stamps": _stamps(executable, probed)}
            self._changed = True
        return probed

    def save(self) -> None:
        """Keep what was learnt for the next command."""
        if self._changed:
            self._changed = False
            remember(self._file, self._known)


def _stamps(executable: Path, facts: Facts) -> list[str]:
    """Time stamp and size of every file that decides the facts; a word for one that is missing."""
    library = [facts["library"]] if facts["library"] else []
    stamps = []
    for file in (executable, *map(Path, library), *map(Path, facts["read"])):
        try:
            status = file.stat()
        except OSError:
            stamps.append("missing")
        else:
            stamps.append(f"{status.st_mtime_ns} {status.st_size}")
    return stamps


def _is_remembered(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("stamps"), list) or not _are_facts(value.get("facts")):
        return False
    return re.fullmatch(r"[0-9.]{0,20}", str(value["facts"].get("glibc"))) is not None


def _probe(executable: Path) -> Facts | None:
    if executable in _silent:
        return None
    variables = bare_environment() | library_variable(executable)
    try:
        completed = run([executable, "-I", "-S", "-c", _PROBE], env=variables, timeout=_TIMEOUT)
        facts = parse_json(completed.stdout) if completed.returncode == 0 else None
    except subprocess.TimeoutExpired:
        _silent.add(executable)
        return None
    except (OSError, ValueError):
        return None
    if not _are_facts(facts):
        return None
    needed = required_abi((executable, Path(facts["library"]))).glibc if facts["library"] else ""
    return cast("Facts", {**facts, "glibc": needed})


def _are_facts(facts: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(facts, dict) or not Facts.__annotations__.keys() - {"glibc"} <= facts.keys():
        return False
    texts = [facts[name] for name in ("version", "prefix", "include", "stdlib", "implementation")]
    is_version = re.fullmatch(r"\d{1,9}(\.\d{1,9}){2}", str(facts["version"])) is not None
    files = facts["read"] if isinstance(facts["read"], list) else [None]
    return is_version and all(may_be_path(text) for text in (*texts, facts["library"] or "", *files))

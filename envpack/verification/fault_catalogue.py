"""Known ways for a model to fail: what the server or the stub says, what it means, what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One known fault.

    Attributes:
        kind: slug of its entry in ``docs/troubleshooting.md``.
        pattern: what the server or the stub says; groups can be used in ``fix``.
        fix: what to do about it.

    """

    kind: str
    pattern: re.Pattern[str]
    fix: str


def _fault(kind: str, pattern: str, fix: str) -> Fault:
    return Fault(kind, re.compile(pattern), fix)


FAULTS = (
    _fault(
        "backend-shadows-model",
        r"No module named 'model'",
        "the stub in the backend's folder looks for model.py there (Triton 23.10 and later); use envpack's stub",
    ),
    _fault("module-missing", r"No module named '(?P<module>[^']+)'", "add {module} to the model's requirements"),
    _fault(
        "numpy-mismatch",
        r"compiled using NumPy 1\.x|numpy\.core\.multiarray failed to import|numpy\.dtype size changed",
        "a package was built for another NumPy: add the one that it wants, often numpy<2, to the requirements",
    ),
    _fault(
        "libpython-missing",
        r"error while loading shared libraries: (?P<library>libpython[\w.]+)",
        "the stub needs {library}, which the environment does not have: build stub and environment for the same Python",
    ),
    _fault(
        "library-missing",
        r"error while loading shared libraries: (?P<library>[^:\s]+)",
        "add the package that holds {library} to the environment",
    ),
    _fault(
        "library-too-old",
        r"version [`'](?P<version>GLIBC(?:XX)?_[\d.]+)' not found",
        "something was built for a newer system: it wants {version}",
    ),
    _fault("stub-not-executable", r"Failed to give execute permission", "run chmod 755 on the stub, as its owner"),
    _fault(
        "stub-missing",
        r"triton_python_backend_stub is not found",
        "the backend's folder has no default stub; build one with envpack stub",
    ),
    _fault(
        "environment-missing",
        r"Failed to get the canonical path|bin/activate does not exist|archive_read_open_filename\(\) failed",
        "EXECUTION_ENV_PATH names no environment that the server can use; run envpack build",
    ),
    _fault(
        "environment-unusable",
        r"init_fs_encoding|No module named 'encodings'|Could not find platform independent libraries",
        "Python did not find its standard library: the environment is incomplete or its activate script is wrong",
    ),
    _fault(
        "shared-memory-full",
        r"Failed to increase the shared memory pool|[Uu]nable to create shared memory region|/dev/shm",
        "give the server more /dev/shm: --shm-size 1g, for docker run as well",
    ),
    _fault("disk-full", r"No space left on device|archive_write_data_block\(\) failed", "free some space in /tmp"),
    _fault(
        "stub-died",
        r"is not healthy",
        "the model's process ended or stood still: look for a crash in native code, os._exit, or too little memory",
    ),
    _fault("bad-config", r"failed to load model config|has no field named|failed to parse", "correct config.pbtxt"),
)


def explain(text: str, default_kind: str) -> tuple[str, str]:
    """Kind and fix for an error text; ``default_kind`` and no fix if nothing in the catalogue fits."""
    for fault in FAULTS:
        match = fault.pattern.search(text)
        if match:
            return fault.kind, fault.fix.format(**match.groupdict())
    return default_kind, ""

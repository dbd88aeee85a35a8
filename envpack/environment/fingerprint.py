"""Names for interpreters that change when their files do."""

from __future__ import annotations

import hashlib
import json

from envpack.environment.interpreters import Interpreter

RECIPE = 3  # counts the changes of how a package is made from an interpreter


def fingerprint(interpreter: Interpreter) -> str:
    """Names the conda package of an interpreter: the same as long as its files are. Costs two ``stat`` calls."""
    told: list[object] = [RECIPE, interpreter.version, str(interpreter.prefix)]
    for file in (interpreter.executable, interpreter.library):
        if file is not None:
            status = file.stat()
            told += [str(file), status.st_mtime_ns, status.st_size]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

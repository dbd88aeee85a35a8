"""The caller's side of the conda engine: one child process for each request."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from envpack.environment.isolation import clean_environment
from envpack.errors import EnvironmentBuildError
from envpack.process import run

ENGINE_HINT = "pip install --force-reinstall py-rattler; if it comes again, remove the cache folder and build again"
_CHILD = Path(__file__).with_name("rattler_child.py")


class EngineError(Exception):
    """The engine said no. ``type_name`` is the name of its exception, the text is its message."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(message)
        self.type_name = type_name


def ask_engine(operation: str, **request: object) -> dict[str, Any]:
    """Run one operation of ``rattler_child.py`` and give its answer.

    Raises:
        EngineError: the engine refused the request.
        EnvironmentBuildError: it ended without an answer.

    """
    with tempfile.TemporaryDirectory(prefix="envpack-engine-") as folder:
        question, answer = Path(folder, "request.json"), Path(folder, "result.json")
        whole = {
            "operation": operation,
            "parent": os.getpid(),
            "import_path": [part for part in sys.path if part],
            **request,
        }
        question.write_text(json.dumps(whole, default=str), encoding="utf-8")
        ended = run([sys.executable, "-I", "-B", _CHILD, question, answer], env=clean_environment())
        try:
            result = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise EnvironmentBuildError(
                f"the conda engine ended without an answer (status {ended.returncode}): {ended.last_lines(4)}",
                kind="engine-failed",
                hint=ENGINE_HINT,
            ) from error
    if "ok" not in result:
        raise EngineError(str(result["type"]), str(result["error"]))
    content: dict[str, Any] = result["ok"]
    return content

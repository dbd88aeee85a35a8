"""The caller's side of the conda engine: one child process for each request."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from envpack.conda.settings import CondaSettings, Credentials
from envpack.support.errors import EnvironmentBuildError
from envpack.support.isolation import clean_environment
from envpack.support.processes import run
from envpack.support.temp_dirs import temp_dir

ENGINE_HINT = "install envpack again; if the error returns, remove the cache folder and build again"
FORBIDDEN = r"\b40[13]\b|Unauthorized|Forbidden"  # how engines say that a channel asks for credentials
CREDENTIALS_HINT = "put them into ~/.netrc, the file that RATTLER_AUTH_FILE names, or the channel's address in .condarc"
_CHILD = Path(__file__).with_name("rattler_child.py")


class EngineError(Exception):
    """The engine said no. ``type_name`` is the name of its exception, the text is its message."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(message)
        self.type_name = type_name


def run_engine(
    operation: str,
    *,
    settings: CondaSettings | None = None,
    credentials: Credentials | None = None,
    **request: object,
) -> dict[str, Any]:
    """Run one operation of ``rattler_child.py`` and give its answer.

    Args:
        operation: its name.
        settings: the user's, for proxies and certificates.
        credentials: passwords and tokens by host, beside those in the user's own file (``RATTLER_AUTH_FILE``).
        request: what the operation takes.

    Raises:
        EngineError: the engine refused the request.
        EnvironmentBuildError: it ended without an answer.

    """
    with temp_dir("engine") as folder:
        question, answer = folder / "request.json", folder / "result.json"
        whole = {
            "operation": operation,
            "parent": os.getpid(),
            "import_path": [part for part in sys.path if part],
            **request,
        }
        question.write_text(json.dumps(whole, default=str), encoding="utf-8")
        environment = clean_environment() | dict(settings.variables if settings else {})
        if credentials:
            environment["RATTLER_AUTH_FILE"] = str(_credentials_file(folder, credentials, environment))
        ended = run([sys.executable, "-I", "-B", _CHILD, question, answer], env=environment)
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


def _credentials_file(folder: Path, credentials: Credentials, environment: dict[str, str]) -> Path:
    """A file in a folder that is ours alone, and gone with it: the user's credentials and those given."""
    own: Credentials = {}
    with contextlib.suppress(KeyError, OSError, ValueError):
        own = json.loads(Path(environment["RATTLER_AUTH_FILE"]).read_text(encoding="utf-8"))
    file = folder / "credentials.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(own | credentials), encoding="utf-8")
    return file

"""The embedded conda engine: one child process for each request."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envpack.conda.settings import CondaSettings, Credentials
from envpack.support.bounded_reading import read_json
from envpack.support.errors import EnvironmentBuildError
from envpack.support.isolation import clean_environment
from envpack.support.processes import run
from envpack.support.temp_dirs import temp_dir

ENGINE_HINT = "install envpack again; if the error returns, remove the cache folder and build again"
FORBIDDEN_PATTERN = r"\b40[13]\b|Unauthorized|Forbidden"  # output of engines when a channel requires credentials
UNTRUSTED_PATTERN = (
    r"invalid peer certificate|CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSL certificate problem"
)
CREDENTIALS_HINT = "put them into ~/.netrc, the file named by RATTLER_AUTH_FILE, or the channel's address in .condarc"
_CHILD = Path(__file__).with_name("rattler_child.py")


class EngineError(Exception):
    """The engine rejected a request."""

    def __init__(self, type_name: str, message: str, culprits: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.type_name = type_name  # name of the engine's exception; the text of this exception is its message
        self.culprits = culprits  # numbers of the match specs that cannot be met together; empty if they are not known


def run_engine(
    operation: str,
    *,
    settings: CondaSettings | None = None,
    credentials: Credentials | None = None,
    **arguments: object,
) -> dict[str, Any]:
    """Run one operation of ``rattler_child.py``."""
    with temp_dir("engine") as folder:
        request_file, result_file = folder / "request.json", folder / "result.json"
        request = {
            "parent": os.getpid(),
            "import_path": [part for part in sys.path if part],
            "operation": operation,
            "arguments": arguments,
        }
        request_file.write_text(json.dumps(request, default=vars), encoding="utf-8")  # packages by their fields
        environment = clean_environment() | dict(settings.variables if settings else {})
        if credentials:
            environment["RATTLER_AUTH_FILE"] = str(_credentials_file(folder, credentials, environment))
        completed = run([sys.executable, "-I", "-B", _CHILD, request_file, result_file], env=environment)
        try:
            result: dict[str, Any] = read_json(result_file)
        except (OSError, ValueError) as error:
            what = f"the conda engine ended without a result (status {completed.returncode}): {completed.last_lines(4)}"
            raise EnvironmentBuildError("engine-failed", what, ENGINE_HINT) from error
    if "error" in result:
        raise EngineError(result["error_type"], result["error"], result.get("culprits", ()))
    return result


def index_channel(folder: Path) -> None:
    """Write the index (``repodata.json``) of each platform in a channel folder."""
    run_engine("index", folder=str(folder))


def _credentials_file(folder: Path, credentials: Credentials, environment: Mapping[str, str]) -> Path:
    """A file with the user's own credentials and those given, in a private folder that is removed after the request."""
    file = folder / "credentials.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(all_credentials(credentials, environment)), encoding="utf-8")
    return file


def all_credentials(given: Credentials, environment: Mapping[str, str]) -> Credentials:
    """Credentials that were given, and the user's own for other hosts, from the file named by ``RATTLER_AUTH_FILE``."""
    own = None
    with contextlib.suppress(KeyError, OSError, ValueError):
        own = read_json(Path(environment["RATTLER_AUTH_FILE"]))
    return own | given if isinstance(own, dict) else given

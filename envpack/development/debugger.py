"""A debugger for a model on a server: debugpy waits in the process of its first instance."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from envpack.local.starting import Instruments, Python, check_debug_port, opened_instruments
from envpack.repository.model import Model, open_model
from envpack.server.interface import Server
from envpack.server.kserve import Client, RequestError
from envpack.server.launch import find_server
from envpack.server.process import is_free
from envpack.settings.project import Project
from envpack.support.errors import ServerError, misuse
from envpack.support.pool import found_within
from envpack.support.progress import Progress
from envpack.support.replacement import write_text
from envpack.verification.stub_processes import instances

UTILITIES = Path(__file__).with_name("python") / "triton_python_backend_utils.py"
_RELEASE_SECONDS = 35.0  # to unload a model, for which the client waits 30, and until the debugger has left the port
WAITING = "envpack: waiting for a debugger at "  # begins the line that the model's process writes


@dataclass(frozen=True)
class Debugger:
    """Debugs one model."""

    model: str
    tools: Instruments
    utilities: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.tools.debug_port}"

    @property
    def _settings(self) -> Path:
        return self.tools.folder / "debugged.json"

    def variables(self) -> Mapping[str, str]:
        """Variables for a server, on which no model is debugged until `prepare`."""
        if not self._settings.exists():
            self._write({"name": ""})
        return {"ENVPACK_DEBUG": str(self._settings)}

    def prepare(self, model: Model, python: Callable[[], Python], progress: Progress) -> None:
        found = python()
        (settings,) = self.tools.variables(found, progress).values()
        self._write(
            {
                "name": model.name,
                "folder": str(model.folder),
                "program": str(files("envpack.local") / "python/envpack_run.py"),
                "run": json.loads(settings),
            }
        )

    def release(self, client: Client, server: Server) -> None:
        """Unload the model and wait until the next instance can listen at the port."""
        with contextlib.suppress(RequestError):  # it may not be loaded
            client.unload(self.model)
        port = self.tools.debug_port
        found_within(_RELEASE_SECONDS, lambda: not instances(server, self.model) and is_free(port))
        if instances(server, self.model):
            what = f"{self.model} is not loaded again, since it stands in the debugger or answers a request"
            raise ServerError("load-timeout", what, "let it go on, or detach the debugger; then save a file again")
        check_debug_port(port)

    def _write(self, settings: Mapping[str, object]) -> None:
        write_text(self._settings, json.dumps({"utilities": str(self.utilities), **settings}))


@contextlib.contextmanager
def opened_debugger(project: Project, names: Sequence[str], port: int | None) -> Iterator[Debugger | None]:
    if port is None:
        yield None
        return
    if len(names) != 1:
        raise misuse("dev", "name the one MODEL that --debug is for; what it needs is loaded as well")
    if open_model(project.repository / names[0]).is_ensemble:
        raise misuse("dev", f"{names[0]} is an ensemble, which has no code; name one of its steps")
    check_debug_port(port)
    utilities = find_server().backends / "python/triton_python_backend_utils.py"
    with opened_instruments(debug_port=port) as tools:
        yield Debugger(names[0], tools, utilities)

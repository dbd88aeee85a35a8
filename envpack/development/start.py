"""What a session starts with: the server's runtime, and a debugger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from envpack.development.debugger import Debugger
from envpack.development.session import ServerNeeds
from envpack.local import check_debug_port, opened_instruments
from envpack.repository import backends_folder, open_model
from envpack.server import Runtime, ServerSpec, choose_runtime, find_server
from envpack.settings import Project, RuntimeName
from envpack.support.errors import UsageError


def runtime_chooser(project: Project, runtime: RuntimeName) -> Callable[[ServerNeeds], Runtime]:
    """What chooses the runtime of a session's server, from the settings and what its models need."""
    said = project.of()

    def choose(needs: ServerNeeds) -> Runtime:
        completion = () if needs.completes else ("--disable-auto-complete-config",)
        own = said.only("image", "triton", "served_from").saying(
            runtime=runtime, port=needs.port or said.port, server_arg=("--log-verbose=0", *completion)
        )
        spec = ServerSpec(
            own, backends=backends_folder(project), variables=needs.environment, utilities=needs.utilities
        )
        return choose_runtime(spec, project.repository, needs.models)

    return choose


@contextlib.contextmanager
def opened_debugger(project: Project, names: Sequence[str], port: int | None) -> Iterator[Debugger | None]:
    """The debugger of the one model that is named; None without a port."""
    if port is None:
        yield None
        return
    if len(names) != 1:
        raise _usage("name the one MODEL that --debug is for; what it needs is loaded as well")
    if open_model(project.repository / names[0]).is_ensemble:
        raise _usage(f"{names[0]} is an ensemble, which has no code; name one of its steps")
    check_debug_port(port)
    utilities = find_server().backends / "python/triton_python_backend_utils.py"
    with opened_instruments(debug_port=port) as tools:
        yield Debugger(names[0], tools, utilities)


def _usage(message: str) -> UsageError:
    return UsageError("usage", message, "envpack dev --help says what it takes")

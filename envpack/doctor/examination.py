"""Asks all probes at the same time, and does not wait for those that hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from envpack.doctor.host import (
    cache,
    compiled_stubs,
    compiler,
    gpu,
    pythons,
    shared_memory,
    system,
    temporary_folder,
    tools,
    zig,
)
from envpack.doctor.network import channels, index
from envpack.doctor.observation import Observation
from envpack.doctor.servers import containers, server
from envpack.project import Project
from envpack.support.errors import EnvpackError

Probe = Callable[[Project], Iterable[Observation]]

# In the order in which they are shown.
PROBES: Mapping[str, Probe] = {
    "system": system,
    "compiled stubs": compiled_stubs,
    "compiler": compiler,
    "zig": zig,
    "tools": tools,
    "pythons": pythons,
    "channels": channels,
    "index": index,
    "server": server,
    "containers": containers,
    "gpu": gpu,
    "shared memory": shared_memory,
    "temporary folder": temporary_folder,
    "cache": cache,
}


def examine(project: Project, seconds: float = 6.0, probes: Mapping[str, Probe] = PROBES) -> tuple[Observation, ...]:
    """Look at this machine.

    Args:
        project: whose channels and repository count.
        seconds: how long the slowest probe may take; one that takes longer is a warning.
        probes: what to look at.
    """
    seen: dict[str, tuple[Observation, ...]] = {}
    threads = {
        # Not waited for in the end, since what hangs is often a name server or a socket that cannot be interrupted.
        name: threading.Thread(target=_ask, args=(name, probe, project, seen), name=f"probe {name}", daemon=True)
        for name, probe in probes.items()
    }
    for thread in threads.values():
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    silent = f"no response within {seconds:g} s"
    return tuple(
        observation
        for name in probes
        for observation in seen.get(name, (Observation(name, "warn", silent, "look why it hangs, and ask again"),))
    )


def _ask(name: str, probe: Probe, project: Project, seen: dict[str, tuple[Observation, ...]]) -> None:
    try:
        seen[name] = tuple(probe(project))
    except EnvpackError as error:
        seen[name] = (Observation(name, "missing", error.message, error.hint),)
    except Exception as error:  # a machine may be odd in any way, and the other probes have something to say
        what = f"this cannot be found out: {type(error).__name__}: {error}"
        seen[name] = (Observation(name, "warn", what, "report it as a bug in envpack"),)

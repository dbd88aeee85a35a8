"""Runs all probes at the same time, within a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from envpack.settings import Project
from envpack.support.errors import EnvpackError
from envpack.workflow.doctor.host import (
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
from envpack.workflow.doctor.services import Observation, channels, containers, index, server

Probe = Callable[[Project], Iterable[Observation]]

# In the order of the output.
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
    """Examine this machine.

    Args:
        project: the project whose channels, release and repository are examined.
        seconds: time limit for each probe; a probe that exceeds it becomes a warning.
        probes: the probes to run, by name.

    Returns:
        The observations, in the order of the probes. A probe that raises an exception becomes an observation.
    """
    seen: dict[str, tuple[Observation, ...]] = {}
    threads = {
        # Daemon threads: a probe usually hangs in a name server or a socket, which cannot be interrupted.
        name: threading.Thread(target=_run_probe, args=(name, probe, project, seen), name=f"probe {name}", daemon=True)
        for name, probe in probes.items()
    }
    for thread in threads.values():
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    timeout = f"no response within {seconds:g} s"
    return tuple(
        observation
        for name in probes
        for observation in seen.get(
            name, (Observation(name, "warn", timeout, "find why it hangs, and run envpack doctor again"),)
        )
    )


def _run_probe(name: str, probe: Probe, project: Project, seen: dict[str, tuple[Observation, ...]]) -> None:
    try:
        seen[name] = tuple(probe(project))
    except EnvpackError as error:
        seen[name] = (Observation(name, "missing", error.message, error.hint),)
    except Exception as error:  # a fault of one probe must not hide the others
        what = f"the probe failed: {type(error).__name__}: {error}"
        seen[name] = (Observation(name, "warn", what, "report it as a bug in envpack"),)

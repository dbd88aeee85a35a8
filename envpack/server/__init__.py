"""One running Triton server, as a process or in a container: start, requests, log, leftovers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.server.choice import RuntimeOptions as RuntimeOptions, choose_runtime as choose_runtime
    from envpack.server.interface import Process as Process, Runtime as Runtime, Server as Server, Stopped as Stopped
    from envpack.server.interrupts import interruptible as interruptible
    from envpack.server.kserve import Client as Client, RequestError as RequestError, needs_binary as needs_binary
    from envpack.server.location import ServerInstallation as ServerInstallation, find_server as find_server
    from envpack.server.log import (
        configuration_error as configuration_error,
        last_launch as last_launch,
        last_lines as last_lines,
        plain_lines as plain_lines,
        read_model_error as read_model_error,
        standing_at as standing_at,
        stub_reports as stub_reports,
    )
    from envpack.server.preload import find_preload as find_preload
    from envpack.server.stale_runs import temporary_home as temporary_home
    from envpack.server.tensors import (
        BINARY_ONLY as BINARY_ONLY,
        FLOATING as FLOATING,
        Tensor as Tensor,
        Tolerance as Tolerance,
        Value as Value,
        decode as decode,
        difference as difference,
    )
    from envpack.server.user_site_probe import was_sprung as was_sprung

__getattr__, __all__ = lazy_imports(__name__, __file__)

"""A running Triton server, as a process or in a container: start, requests, log, leftovers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.server.choice import GPUS, ServerSpec, choose_runtime
    from envpack.server.daemon import Daemon, daemon_errors, find_daemon
    from envpack.server.interface import Process, Runtime, Server, StopResult
    from envpack.server.kserve import Client, Event, InferMessage, RequestError, needs_binary, unfinished
    from envpack.server.launch import find_server, user_site_was_read
    from envpack.server.log import (
        STUB_REPORT,
        UNHEALTHY,
        StubReport,
        before_loads,
        configuration_error,
        is_poll_failure,
        last_lines,
        last_started_stub,
        plain_lines,
        read_abort_frames,
        read_model_error,
        request_failures,
        stated,
        stub_reports,
        unquoted,
    )
    from envpack.server.process import is_free
    from envpack.server.stale_runs import temporary_home
    from envpack.server.tensors import (
        BINARY_ONLY,
        FLOATING,
        ServedConfig,
        Tensor,
        TensorConfig,
        Tolerance,
        Value,
        decode,
        difference,
        encode,
        read_served_config,
    )
    from envpack.server.together import infer_together, stream, stream_together
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)

"""A running Triton server, as a process or in a container: start, requests, log, leftovers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.server.choice import RuntimeOptions as RuntimeOptions, choose_runtime as choose_runtime
    from envpack.server.daemon import (
        ContainerShell as ContainerShell,
        Daemon as Daemon,
        daemon_errors as daemon_errors,
        find_daemon as find_daemon,
    )
    from envpack.server.interface import (
        Process as Process,
        Runtime as Runtime,
        Server as Server,
        StopResult as StopResult,
    )
    from envpack.server.kserve import (
        Client as Client,
        Event as Event,
        InferMessage as InferMessage,
        RequestError as RequestError,
        needs_binary as needs_binary,
        unfinished as unfinished,
    )
    from envpack.server.launch import (
        ServerInstallation as ServerInstallation,
        find_preload as find_preload,
        find_server as find_server,
        user_site_was_read as user_site_was_read,
    )
    from envpack.server.log import (
        STUB_REPORT as STUB_REPORT,
        StubReport as StubReport,
        configuration_error as configuration_error,
        last_lines as last_lines,
        last_started_stub as last_started_stub,
        plain_lines as plain_lines,
        read_abort_frames as read_abort_frames,
        read_model_error as read_model_error,
        request_failures as request_failures,
        stub_reports as stub_reports,
    )
    from envpack.server.process import (
        ProcessRuntime as ProcessRuntime,
        ProcessServer as ProcessServer,
        is_free as is_free,
    )
    from envpack.server.stale_runs import temporary_home as temporary_home
    from envpack.server.supervisor import interruptible as interruptible
    from envpack.server.tensors import (
        BINARY_ONLY as BINARY_ONLY,
        FLOATING as FLOATING,
        ServedConfig as ServedConfig,
        Tensor as Tensor,
        TensorConfig as TensorConfig,
        Tolerance as Tolerance,
        Value as Value,
        decode as decode,
        difference as difference,
        encode as encode,
        read_served_config as read_served_config,
    )
    from envpack.server.together import (
        Answer as Answer,
        Stream as Stream,
        infer_together as infer_together,
        stream as stream,
        stream_together as stream_together,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)

"""Runs models without a server: in their environment, under our stub, with envpack in the server's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.local.admission import sent_parameters
    from envpack.local.connection import MORE_TIME
    from envpack.local.instruments import Instruments, check_debug_port, opened_instruments
    from envpack.local.model_config import config_json
    from envpack.local.model_process import LogLine, ModelFailed
    from envpack.local.running import check_placed_environment, local_server, needs_server, python_of
    from envpack.local.server import LocalServer
    from envpack.local.starting import Python
    from envpack.local.values import NOTHING, SEQUENCE_END, SEQUENCE_START, RawTensor, Request, Response, raw, readable
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)

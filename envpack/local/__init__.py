"""Runs models without a server: in their environment, under our stub, with envpack in the server's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.local.arrays import check_can_save, from_array, read_arrays, save_arrays, to_array
    from envpack.local.inputs import check_sources, read_requests
    from envpack.local.instruments import Instruments, check_debug_port, opened_instruments
    from envpack.local.limit import MORE_TIME
    from envpack.local.local_model import LocalModel, ModelSource
    from envpack.local.model_config import config_json
    from envpack.local.model_process import LogLine, ModelFailed, Python
    from envpack.local.overrides import Override
    from envpack.local.running import local_server, python_of
    from envpack.local.server import LocalServer
    from envpack.local.trial import Answer, Trial, try_model
    from envpack.local.values import NOTHING, SEQUENCE_END, SEQUENCE_START, RawTensor, Request, Response, raw, readable
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)

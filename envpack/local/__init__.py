"""Runs models without a server: in their environment, under our stub, with envpack in the server's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.local.arrays import (
        check_can_save as check_can_save,
        from_array as from_array,
        read_arrays as read_arrays,
        save_arrays as save_arrays,
        to_array as to_array,
    )
    from envpack.local.inputs import check_sources as check_sources, read_requests as read_requests
    from envpack.local.instruments import (
        Instruments as Instruments,
        check_debug_port as check_debug_port,
        opened_instruments as opened_instruments,
    )
    from envpack.local.limit import MORE_TIME as MORE_TIME
    from envpack.local.local_model import LocalModel as LocalModel, ModelSource as ModelSource
    from envpack.local.model_config import config_json as config_json
    from envpack.local.model_process import LogLine as LogLine, ModelFailed as ModelFailed, Python as Python
    from envpack.local.overrides import Override as Override
    from envpack.local.running import local_server as local_server, python_of as python_of
    from envpack.local.server import LocalServer as LocalServer
    from envpack.local.trial import Answer as Answer, Trial as Trial, try_model as try_model
    from envpack.local.values import (
        NOTHING as NOTHING,
        SEQUENCE_END as SEQUENCE_END,
        SEQUENCE_START as SEQUENCE_START,
        RawTensor as RawTensor,
        Request as Request,
        Response as Response,
        raw as raw,
        readable as readable,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)

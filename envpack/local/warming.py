"""The requests of ``model_warmup``, which a server sends before a model is ready."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envpack.local.model_process import ModelFailed
from envpack.local.values import RawTensor, Request
from envpack.repository import WIDTHS, datatype_of, file_in
from envpack.support.bounded_reading import opened

_EMPTY_STRING = bytes(4)  # its length
_MOST_BYTES = 1 << 32  # of one input


def warmups(config: Any, folder: Path) -> Iterator[tuple[str, list[Request]]]:
    """The name of each warm-up and the requests that reach the model together, as often as they do.

    A server sends ``batch_size`` requests of one item, and none without it. Random strings are empty there, too.
    """
    for warmup in config.model_warmup:
        if not warmup.batch_size:
            continue
        batch = (1,) if config.max_batch_size else ()
        request = Request(
            tuple(
                RawTensor(name, datatype_of(value), (*batch, *value.dims), _content(warmup.name, value, folder))
                for name, value in warmup.inputs.items()
            )
        )
        for _ in range(max(warmup.count, 1)):
            yield warmup.name, [request] * warmup.batch_size


def _content(warmup: str, value: Any, folder: Path) -> bytes:
    datatype, count = datatype_of(value), math.prod(value.dims)
    is_text = datatype == "BYTES"
    size = count * (len(_EMPTY_STRING) if is_text else WIDTHS[datatype])
    if size > _MOST_BYTES:
        raise ModelFailed(f"an input of the warm-up '{warmup}' has {size} bytes, and may have {_MOST_BYTES}")
    if value.input_data_file:
        with opened(file_in(folder / "warmup", value.input_data_file)) as content:
            return content.read(_MOST_BYTES if is_text else size)
    return bytes(size) if is_text or value.zero_data else random.Random(0).randbytes(size)  # noqa: S311 - no secret

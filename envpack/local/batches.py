"""The batches that a server's dynamic batcher makes of requests that wait together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from envpack.local.values import Request

_Owner = TypeVar("_Owner")


def batches(waiting: Sequence[tuple[Request, _Owner]], config: Any) -> Iterator[list[_Owner]]:
    """What belongs to the requests of each call of ``execute()``, in their order.

    Without ``dynamic_batching``, or if the model has no batch dimension, each request is a call of its own. Requests
    are joined if their inputs have the same names and shapes, up to ``max_batch_size`` items; of those that wait, a
    preferred number goes first.
    """
    left = list(waiting)
    while left:
        count = _first_batch([request for request, _ in left], config)
        yield [owner for _, owner in left[:count]]
        del left[:count]


def _first_batch(requests: Sequence[Request], config: Any) -> int:
    """How many of the requests are the first batch."""
    if not config.HasField("dynamic_batching") or not config.max_batch_size:
        return 1
    preferred = set(config.dynamic_batching.preferred_batch_size)
    items, last_preferred, count = 0, 0, 0
    for request in requests:
        items += _items(request)
        if items > config.max_batch_size or _shapes(request, config) != _shapes(requests[0], config):
            break
        count += 1
        if items in preferred:
            last_preferred = count
    return last_preferred or max(count, 1)


def _items(request: Request) -> int:
    return next((tensor.shape[0] for tensor in request.inputs if tensor.shape), 1)


def _shapes(request: Request, config: Any) -> frozenset[tuple[str, tuple[int, ...]]]:
    """What has to be equal in the requests of a batch: names, and shapes but for inputs that may be ragged."""
    ragged = {entry.name for entry in config.input if entry.allow_ragged_batch}
    return frozenset((tensor.name, () if tensor.name in ragged else tensor.shape[1:]) for tensor in request.inputs)

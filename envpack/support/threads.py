"""Applies a function to many files with several threads, a batch at a time: one task costs as much as a small file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_BATCH = 64  # items


def map_batches(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[list[_Result]]:
    """The results in order, in lists of up to 64; raises what ``function`` raises."""
    batches = [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(lambda batch: [function(item) for item in batch], batches)

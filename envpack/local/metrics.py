"""The metrics that models make. Only a server publishes them; here, a model can change and read their values."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from envpack.local.model_process import ModelFailed

T = TypeVar("T")
_KINDS = ("counter", "gauge", "histogram")
_VERBS = ("increment", "set", "observe")
INCREMENT, SET, OBSERVE = range(3)
_ALLOWED = {("counter", INCREMENT), ("gauge", INCREMENT), ("gauge", SET), ("histogram", OBSERVE)}
# Prometheus' rules, by which a server refuses a name.
_FAMILY_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass
class _Metric:
    family: _Family
    labels: dict[str, str]
    value: float = 0.0


@dataclass(frozen=True)
class _Family:
    name: str
    kind: str


class Metrics:
    """All metrics of one run. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[int, _Family] = {}
        self._metrics: dict[int, _Metric] = {}
        self._last = 0

    def create_family(self, name: str, kind: int) -> int:
        """Create a family; returns its number. One that exists already gets another number."""
        if not _FAMILY_NAME.fullmatch(name):
            raise ModelFailed(f"'{name}' is no name of a metric family: letters, digits, _ and :, and no digit first")
        with self._lock:
            family = next((known for known in self._families.values() if known.name == name), None)
            if family is not None and family.kind != _KINDS[kind]:
                raise ModelFailed(f"the metric family '{name}' exists already, as a {family.kind}")
            return self._add(self._families, family or _Family(name, _KINDS[kind]))

    def create_metric(self, family: int, labels: str, buckets: Sequence[float] = ()) -> int:
        """Create a metric of a family; returns its number. Metrics with equal labels share their value."""
        found = json.loads(labels) or {}
        for name, value in found.items():
            if not _LABEL_NAME.fullmatch(name):
                raise ModelFailed(f"'{name}' is no name of a label: letters, digits and _, and no digit or __ first")
            if not isinstance(value, str):
                raise ModelFailed(f"the value of the label '{name}' is no string: {value}")
        if not all(low < high for low, high in pairwise(buckets)):
            raise ModelFailed(f"the buckets of a histogram must rise: {list(buckets)}")
        with self._lock:
            owner = self._families[family]
            known = (metric for metric in self._metrics.values() if (metric.family, metric.labels) == (owner, found))
            return self._add(self._metrics, next(known, None) or _Metric(owner, found))

    def delete(self, number: int) -> None:
        with self._lock:
            self._families.pop(number, None)
            self._metrics.pop(number, None)

    def change(self, number: int, change: int, value: float) -> None:
        with self._lock:
            metric = self._metrics[number]
            if (metric.family.kind, change) not in _ALLOWED:
                raise ModelFailed(f"a {metric.family.kind} has no {_VERBS[change]}()")
            if metric.family.kind == "counter" and value < 0:
                raise ModelFailed(f"a counter can only grow, not by {value:g}")
            metric.value = value if change == SET else metric.value + value

    def value(self, number: int) -> float:
        with self._lock:
            metric = self._metrics[number]
            if metric.family.kind == "histogram":
                raise ModelFailed("a histogram has no value()")
            return metric.value

    def _add(self, where: dict[int, T], what: T) -> int:
        self._last += 1
        where[self._last] = what
        return self._last

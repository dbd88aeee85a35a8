"""The metrics that models make, as a server would publish them."""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TypeVar

from envpack.local.model_process import ModelFailed

T = TypeVar("T")
_KINDS = ("counter", "gauge", "histogram")
INCREMENT, SET, OBSERVE = range(3)


@dataclass
class _Metric:
    family: _Family
    labels: str
    bounds: tuple[float, ...] = ()
    value: float = 0.0
    counts: list[int] = field(default_factory=list)  # of the observations in each bucket


@dataclass
class _Family:
    name: str
    description: str
    kind: str


class Metrics:
    """All metrics of one run. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[int, _Family] = {}
        self._metrics: dict[int, _Metric] = {}
        self._last = 0

    def create_family(self, name: str, description: str, kind: int) -> int:
        """Create a family; returns its number. One that exists already gets another number."""
        with self._lock:
            family = next((known for known in self._families.values() if known.name == name), None)
            if family is not None and family.kind != _KINDS[kind]:
                raise ModelFailed(f"Metric family '{name}' already exists, as a {family.kind}")
            return self._add(self._families, family or _Family(name, description, _KINDS[kind]))

    def create_metric(self, family: int, labels: str, bounds: tuple[float, ...] | None) -> int:
        """Create a metric of a family; returns its number. Metrics with equal labels share their value."""
        with self._lock:
            owner = self._families[family]
            text = _labels(labels)
            known = (m for m in self._metrics.values() if m.family is owner and m.labels == text)
            metric = next(known, None) or _Metric(owner, text, bounds or (), counts=[0] * (len(bounds or ()) + 1))
            return self._add(self._metrics, metric)

    def delete_family(self, number: int) -> None:
        """Forget a number of a family."""
        with self._lock:
            self._families.pop(number, None)

    def delete_metric(self, number: int) -> None:
        """Forget a number of a metric."""
        with self._lock:
            self._metrics.pop(number, None)

    def change(self, number: int, change: int, value: float) -> None:
        """Increment, set or observe."""
        with self._lock:
            metric = self._metrics[number]
            kind = metric.family.kind
            if change == OBSERVE and kind == "histogram":
                metric.counts[bisect_left(metric.bounds, value)] += 1
                metric.value += value
            elif change == SET and kind == "gauge":
                metric.value = value
            elif change == INCREMENT and kind == "gauge":
                metric.value += value
            elif change == INCREMENT and kind == "counter":
                if value < 0:
                    raise ModelFailed(
                        "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
                    )
                metric.value += value
            else:
                raise ModelFailed(f"TRITONSERVER_METRIC_KIND_{kind.upper()} does not support {_VERBS[change]}")

    def value(self, number: int) -> float:
        """Value of a counter or gauge."""
        with self._lock:
            metric = self._metrics[number]
            if metric.family.kind == "histogram":
                raise ModelFailed("TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value")
            return metric.value

    def lines(self) -> list[str]:
        """All metrics in Prometheus' format."""
        with self._lock:
            families = {id(m.family): m.family for m in self._metrics.values()}
            metrics = list({id(m): m for m in self._metrics.values()}.values())
        found = []
        for family in families.values():
            found += [f"# HELP {family.name} {family.description}", f"# TYPE {family.name} {family.kind}"]
            for metric in metrics:
                if metric.family is family:
                    found += _lines(metric)
        return found

    def _add(self, where: dict[int, T], what: T) -> int:
        self._last += 1
        where[self._last] = what
        return self._last


_VERBS = ("Increment", "Set", "Observe")


def _labels(text: str) -> str:
    labels = json.loads(text) or {}
    return ",".join(f"{name}={json.dumps(str(value))}" for name, value in labels.items())


def _lines(metric: _Metric) -> list[str]:
    name, labels = metric.family.name, metric.labels
    shown = f"{{{labels}}}" if labels else ""
    if metric.family.kind != "histogram":
        return [f"{name}{shown} {metric.value:g}"]
    comma = "," if labels else ""
    lines = []
    total = 0
    for bound, count in zip((*metric.bounds, float("inf")), metric.counts, strict=True):
        total += count
        lines.append(
            f'{name}_bucket{{{labels}{comma}le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"}} {total}'
        )
    return [f"{name}_count{shown} {total}", f"{name}_sum{shown} {metric.value:g}", *lines]

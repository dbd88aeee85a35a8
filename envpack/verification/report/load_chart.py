"""The load of every model on one axis of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from envpack.verification.verdict import ModelVerdict

_STEPS = (1, 2, 5)
_MOST_TICKS = 8


@dataclass(frozen=True)
class Bar:
    """A phase; ``left`` and ``width`` in percent of the axis."""

    name: str
    left: float
    width: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """A model and its phases."""

    model: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Tick:
    """A mark of the axis; ``left`` in percent."""

    label: str
    left: float


@dataclass(frozen=True)
class LoadChart:
    """All rows, the axis below them, and the names of the phases that occur."""

    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    names: tuple[str, ...]


def draw_load(models: Sequence[ModelVerdict]) -> LoadChart | None:
    """The chart, None if no log told anything about a load."""
    loaded = [model for model in models if model.phases]
    if not loaded:
        return None
    end = max(phase.start + phase.seconds for model in loaded for phase in model.phases)
    rows = tuple(
        Row(
            model.name,
            tuple(Bar(p.name, 100 * p.start / end, 100 * p.seconds / end, p.seconds) for p in model.phases),
        )
        for model in loaded
    )
    names = dict.fromkeys(bar.name for row in rows for bar in row.bars)
    return LoadChart(rows, _ticks(end), tuple(names))


def _ticks(end: float) -> tuple[Tick, ...]:
    """Round marks, as many as are still easy to read."""
    magnitude = 10 ** math.floor(math.log10(end)) / 10 if end > 0 else 1
    steps = (magnitude * factor * step for factor in (1, 10) for step in _STEPS)
    step = next((step for step in steps if end / step <= _MOST_TICKS), end)
    return tuple(Tick(f"{index * step:g} s", 100 * index * step / end) for index in range(int(end / step) + 1))

"""Renders a verdict as one HTML file: no script, no network access, no further files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.support.failures import storage_errors
from envpack.support.replacement import write_output
from envpack.support.text import printable
from envpack.verification.verdict import EnvironmentSize, ModelVerdict, PackageSize, Verdict

_TEMPLATES = Path(__file__).parent
_TEMPLATE = "report.html.jinja"
_TICK_STEPS = (1, 2, 5)
_MOST_TICKS = 8
WIDTH, HEIGHT = 1000.0, 320.0
_MOST_AREAS = 24
_LETTER_WIDTH = 8.6
_LINE_HEIGHT = 18.0
_REST = "other packages"
_UNNAMED = "no package"


def write_report(verdict: Verdict, file: Path) -> None:
    """Write a verdict as HTML; a regular file is replaced atomically.

    Text from models, logs and environments is escaped.
    """
    with storage_errors(file):
        write_output(file, render(verdict))


def render(verdict: Verdict) -> str:
    """The HTML text."""
    import jinja2

    import envpack

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # text from models and logs
    )
    return templates.get_template(_TEMPLATE).render(
        verdict=verdict,
        load=draw_load(verdict.models),
        environments=draw_environments(verdict.models),
        version=envpack.__version__,
    )


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
    """A mark on the axis; ``left`` in percent."""

    label: str
    left: float


@dataclass(frozen=True)
class LoadChart:
    """The rows, the axis below them, and the names of the phases in them."""

    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    names: tuple[str, ...]


def draw_load(models: Sequence[ModelVerdict]) -> LoadChart | None:
    """The chart of all loads, None if no model has phases."""
    loaded = [model for model in models if model.phases]
    if not loaded:
        return None
    end = max(phase.start + phase.seconds for model in loaded for phase in model.phases)
    if end <= 0:
        return None
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
    """Marks at round values, at most eight."""
    magnitude = 10 ** math.floor(math.log10(end)) / 10 if end > 0 else 1
    steps = (magnitude * factor * step for factor in (1, 10) for step in _TICK_STEPS)
    step = next((step for step in steps if end / step <= _MOST_TICKS), end)
    return tuple(Tick(f"{index * step:g} s", 100 * index * step / end) for index in range(int(end / step) + 1))


@dataclass(frozen=True, kw_only=True)
class Area:
    """A package as a rectangle, in units of the picture, which is `WIDTH` by `HEIGHT`."""

    name: str
    bytes: int
    x: float
    y: float
    width: float
    height: float
    shade: int  # index of the color, 0 for the largest package
    label: str  # name of the package, "" if it does not fit
    size: str  # size of the package as text, "" if it does not fit


@dataclass(frozen=True)
class Treemap:
    """An environment and the models that use it."""

    models: tuple[str, ...]
    environment: EnvironmentSize
    areas: tuple[Area, ...]


def draw_environments(models: Sequence[ModelVerdict]) -> tuple[Treemap, ...]:
    """One treemap for each environment, in the order of the models."""
    users: dict[EnvironmentSize, list[str]] = {}
    for model in models:
        if model.environment and model.environment.bytes:
            users.setdefault(model.environment, []).append(model.name)
    return tuple(Treemap(tuple(names), size, _areas(size.packages)) for size, names in users.items())


def format_megabytes(size: int) -> str:
    """A size as text in megabytes."""
    return f"{size / 1e6:.1f} MB" if size < 1e8 else f"{size / 1e6:.0f} MB"


def _areas(packages: tuple[PackageSize, ...]) -> tuple[Area, ...]:
    import squarify

    shown = _largest(packages)
    sizes = squarify.normalize_sizes([package.bytes for package in shown], WIDTH, HEIGHT)
    places = squarify.squarify(sizes, 0, 0, WIDTH, HEIGHT)
    return tuple(_area(package, place, shade) for shade, (package, place) in enumerate(zip(shown, places, strict=True)))


def _largest(packages: tuple[PackageSize, ...]) -> list[PackageSize]:
    named = [PackageSize(package.name or _UNNAMED, package.bytes) for package in packages if package.bytes > 0]
    rest = sum(package.bytes for package in named[_MOST_AREAS:])
    shown = [*named[:_MOST_AREAS], *([PackageSize(_REST, rest)] if rest else [])]
    return sorted(shown, key=lambda package: -package.bytes)


def _area(package: PackageSize, place: dict[str, float], shade: int) -> Area:
    width, height = place["dx"], place["dy"]
    size = format_megabytes(package.bytes)
    has_label = len(package.name) * _LETTER_WIDTH + 12 < width and height > _LINE_HEIGHT + 6
    has_size = has_label and len(size) * _LETTER_WIDTH + 12 < width and height > 2 * _LINE_HEIGHT + 6
    return Area(
        name=package.name,
        bytes=package.bytes,
        x=place["x"],
        y=place["y"],
        width=width,
        height=height,
        shade=shade,
        label=package.name if has_label else "",
        size=size if has_size else "",
    )

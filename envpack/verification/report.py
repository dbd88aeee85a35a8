"""Renders a verdict as one HTML file: no script, no network access, no further files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envpack.support.errors import storage_errors
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
    """Write a verdict as HTML; text from models, logs and environments is escaped."""
    with storage_errors(file):
        write_output(file, render(verdict).encode())


def render(verdict: Verdict) -> str:
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
    end = last_load(verdict.models)
    return templates.get_template(_TEMPLATE).render(
        verdict=verdict,
        end=end,
        ticks=ticks(end),
        phases=dict.fromkeys(phase.name for model in verdict.models for phase in model.phases),
        environments=_environments(verdict.models),
        areas=areas,
        megabytes=format_megabytes,
        version=envpack.__version__,
    )


def last_load(models: Sequence[ModelVerdict]) -> float:
    """When the last phase of all loads ended, in seconds since the start of the server; 0 if no model has phases."""
    return max((phase.start + phase.seconds for model in models for phase in model.phases), default=0.0)


def ticks(end: float) -> list[tuple[str, float]]:
    """Marks at round values of an axis up to ``end``, at most eight; each with its place in percent."""
    if end <= 0:
        return []
    magnitude = 10 ** math.floor(math.log10(end)) / 10
    steps = (magnitude * factor * step for factor in (1, 10) for step in _TICK_STEPS)
    step = next((step for step in steps if end / step <= _MOST_TICKS), end)
    return [(f"{index * step:g} s", 100 * index * step / end) for index in range(int(end / step) + 1)]


def _environments(models: Sequence[ModelVerdict]) -> dict[EnvironmentSize, list[str]]:
    users: dict[EnvironmentSize, list[str]] = {}
    for model in models:
        if model.environment and model.environment.bytes:
            users.setdefault(model.environment, []).append(model.name)
    return users


def format_megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size < 1e8 else f"{size / 1e6:.0f} MB"


def areas(packages: tuple[PackageSize, ...]) -> list[dict[str, Any]]:
    """Packages as rectangles with ``x``, ``y``, ``dx`` and ``dy`` in a picture that is `WIDTH` by `HEIGHT`."""
    import squarify

    shown = _largest(packages)
    sizes = squarify.normalize_sizes([package.bytes for package in shown], WIDTH, HEIGHT)
    places = squarify.squarify(sizes, 0, 0, WIDTH, HEIGHT)
    return [place | _words(package, place["dx"], place["dy"]) for package, place in zip(shown, places, strict=True)]


def _largest(packages: tuple[PackageSize, ...]) -> list[PackageSize]:
    named = [PackageSize(package.name or _UNNAMED, package.bytes) for package in packages if package.bytes > 0]
    rest = sum(package.bytes for package in named[_MOST_AREAS:])
    shown = [*named[:_MOST_AREAS], *([PackageSize(_REST, rest)] if rest else [])]
    return sorted(shown, key=lambda package: -package.bytes)


def _words(package: PackageSize, width: float, height: float) -> dict[str, Any]:
    size = format_megabytes(package.bytes)
    has_label = len(package.name) * _LETTER_WIDTH + 12 < width and height > _LINE_HEIGHT + 6
    has_size = has_label and len(size) * _LETTER_WIDTH + 12 < width and height > 2 * _LINE_HEIGHT + 6
    return {"package": package, "label": package.name if has_label else "", "size": size if has_size else ""}

"""What takes the room in each environment, as areas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envpack.verification.verdict import EnvironmentSize, ModelVerdict, PackageSize

WIDTH, HEIGHT = 1000.0, 320.0
_MOST = 24
_LETTER = 8.6
_LINE = 18.0
_REST = "all others"
_UNNAMED = "of no package"


@dataclass(frozen=True)
class Area:
    """A package; in the units of the picture, which is `WIDTH` by `HEIGHT`.

    Attributes:
        shade: 0 for the largest, counting on.
        label: its name where there is room for it, else ``""``.
        size: its size where there is room for that too, else ``""``.

    """

    name: str
    bytes: int
    x: float
    y: float
    width: float
    height: float
    shade: int
    label: str
    size: str


@dataclass(frozen=True)
class Treemap:
    """An environment and the models that use it."""

    models: tuple[str, ...]
    environment: EnvironmentSize
    areas: tuple[Area, ...]


def draw_environments(models: Sequence[ModelVerdict]) -> tuple[Treemap, ...]:
    """One picture for each environment, in the order of the models."""
    users: dict[EnvironmentSize, list[str]] = {}
    for model in models:
        if model.environment and model.environment.bytes:
            users.setdefault(model.environment, []).append(model.name)
    return tuple(Treemap(tuple(names), size, _areas(size.packages)) for size, names in users.items())


def in_megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e6:.1f} MB" if size < 1e8 else f"{size / 1e6:.0f} MB"


def _areas(packages: tuple[PackageSize, ...]) -> tuple[Area, ...]:
    import squarify

    shown = _largest(packages)
    sizes = squarify.normalize_sizes([package.bytes for package in shown], WIDTH, HEIGHT)
    places = squarify.squarify(sizes, 0, 0, WIDTH, HEIGHT)
    return tuple(_area(package, place, shade) for shade, (package, place) in enumerate(zip(shown, places, strict=True)))


def _largest(packages: tuple[PackageSize, ...]) -> list[PackageSize]:
    named = [PackageSize(package.name or _UNNAMED, package.bytes) for package in packages if package.bytes > 0]
    rest = sum(package.bytes for package in named[_MOST:])
    shown = [*named[:_MOST], *([PackageSize(_REST, rest)] if rest else [])]
    return sorted(shown, key=lambda package: -package.bytes)


def _area(package: PackageSize, place: dict[str, float], shade: int) -> Area:
    width, height = place["dx"], place["dy"]
    size = in_megabytes(package.bytes)
    has_label = len(package.name) * _LETTER + 12 < width and height > _LINE + 6
    has_size = has_label and len(size) * _LETTER + 12 < width and height > 2 * _LINE + 6
    label = package.name if has_label else ""
    return Area(
        package.name, package.bytes, place["x"], place["y"], width, height, shade, label, size if has_size else ""
    )

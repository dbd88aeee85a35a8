"""The definition of a check, and the list of all checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu.serving import Site


class WrongError(Exception):
    """A check observed another value than the expected one."""


class SkippedError(Exception):
    """The check needs something that is missing; the text names it."""


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: what it is about.
        models: those that must be loaded.
        run: tries it; may return a note for the line.
        devices: how many GPUs it needs.
        without_pool: whether it is tried again under a server without a CUDA memory pool.

    """

    name: str
    models: tuple[str, ...]
    run: Callable[[Site], str | None]
    devices: int = 1
    without_pool: bool = False


CHECKS: list[Check] = []


def check(
    name: str, *models: str, devices: int = 1, without_pool: bool = False
) -> Callable[[Callable[[Site], str | None]], Callable[[Site], str | None]]:
    """Register a function as a check."""

    def add(function: Callable[[Site], str | None]) -> Callable[[Site], str | None]:
        CHECKS.append(Check(name, models, function, devices, without_pool))
        return function

    return add


def expect(what: str, got: object, wanted: object) -> None:
    """Fail unless both are equal."""
    if got != wanted:
        raise WrongError(f"{what} is {_shown(got)} instead of {_shown(wanted)}")


def expect_on_gpu(site: Site, what: str, *, is_cpu: bool) -> None:
    """Fail if a tensor is in host memory; call it last, since without a pool the server can move tensors there."""
    if is_cpu and site.has_pool:
        raise WrongError(f"{what} is in host memory")
    if is_cpu:
        raise SkippedError(f"GPU memory, as the server put {what} into host memory; all values were right")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:297]}..."

"""The checks of a verification, each with what a failure means; the functions that make them register themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Of = Literal["model", "process", "answers", "server"]
Step = Literal["files", "start", "load", "process", "inference", "together", "unload"]
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Registered:
    """A check.

    Attributes:
        id: slug in verdicts.
        of: what it examines.
        step: of the verification that makes it.
        kind: of the failure, a section in ``docs/reference/errors.md``; empty if the failure itself names it.
        condition: when it passes; its row in ``docs/explanation/verification.md``.
        run: the function.
    """

    id: str
    of: Of
    step: Step
    kind: str
    condition: str
    run: Callable[..., Any]


CHECKS: dict[str, Registered] = {}


def check(
    name: str, *, of: Of, step: Step = "process", kind: str = "", condition: str = ""
) -> Callable[[_Function], _Function]:
    """Register the function that makes a check; its docstring begins with the condition, unless that is given."""

    def register(run: _Function) -> _Function:
        text = condition or inspect.cleandoc(run.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        CHECKS[name] = Registered(name, of, step, kind, text, run)
        return run

    return register

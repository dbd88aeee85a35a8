"""The checks of a verification, each with what a failure means; the functions that make them register themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Of = Literal["model", "process", "answers", "server"]
Step = Literal["files", "start", "load", "process", "inference", "together", "unload"]
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A check."""

    id: str  # slug in verdicts
    of: Of  # what it examines
    step: Step  # of the verification that makes it
    kind: str  # of the failure, a section in docs/reference/errors.md; empty if the failure itself names it
    condition: str  # when it passes; its row in docs/explanation/verification.md
    meaning: str  # what a failure means; the section of its kind, unless that is in docs/reference/errors.md
    run: Callable[..., Any]


CHECKS: dict[str, Registered] = {}


def check(
    name: str, *, of: Of, step: Step = "process", kind: str = "", condition: str = ""
) -> Callable[[_Function], _Function]:
    """Register the function that makes a check; its docstring is the condition, unless given, and the meaning."""

    def register(run: _Function) -> _Function:
        first, _, meaning = inspect.cleandoc(run.__doc__ or "").partition("\n\n")
        text = condition or first.replace("\n", " ")
        CHECKS[name] = Registered(
            id=name, of=of, step=step, kind=kind, condition=text, meaning=meaning if kind else "", run=run
        )
        return run

    return register

"""The result of a probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Observation:
    """A property of this machine.

    Attributes:
        name: name of the property, for example ``"compiler"``.
        state: ``"ok"``; ``"warn"`` if only some uses need it; ``"missing"`` if envpack cannot work without it.
        what: the finding in a few words.
        fix: how to fix it, ``""`` if nothing is wrong.
    """

    name: str
    state: State
    what: str
    fix: str = ""

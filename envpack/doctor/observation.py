"""What a probe has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Observation:
    """One thing that this machine has or has not.

    Attributes:
        name: of the thing, for example ``"compiler"``.
        state: ``"ok"``; ``"warn"`` for what only some need; ``"missing"`` for what envpack cannot do its work without.
        what: what was seen, a few words.
        fix: what to do about it, ``""`` if nothing is to be done.
    """

    name: str
    state: State
    what: str
    fix: str = ""

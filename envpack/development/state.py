"""What is known of a model that is being worked on."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

Phase = Literal["waiting", "building", "loading", "ready", "failed"]


@dataclass
class ModelState:
    """A model that is being worked on.

    Attributes:
        name: the model.
        phase: what happens to it.
        error: why it failed: the first line says what is wrong.
        loads: how often it was loaded.
        seconds: from the last change to the end of what it caused.
        requests: how many requests it has answered since it was loaded.
        per_second: requests in a second, since the last look.
        latency: mean time of a request in seconds, since the last look; 0 without requests.
        memory: memory of each instance in bytes, with its share of what it shares with others (PSS).

    """

    name: str
    _: KW_ONLY
    phase: Phase = "waiting"
    error: str = ""
    loads: int = 0
    seconds: float = 0.0
    requests: int = 0
    per_second: float = 0.0
    latency: float = 0.0
    memory: tuple[int, ...] = ()

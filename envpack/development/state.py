"""What is known of a model that is being worked on."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

Phase = Literal["waiting", "building", "loading", "attaching", "ready", "failed", "removed"]


@dataclass
class ModelState:
    """A model that is being worked on.

    Attributes:
        name: the model.
        phase: what happens to it; ``"attaching"`` while its instance waits for a debugger.
        error: why it failed: the first line says what is wrong, the next ones where in the model's code.
        request_error: the error of the last request that failed since it was loaded, in the same form; only if
            envpack's stub runs it.
        serves: whether the server answers requests to it; after a failure, with what it had before.
        loads: how often it was loaded.
        seconds: from the moment when a change was noticed to the end of what it caused.
        requests: how many requests it has answered since it was loaded.
        failures: how many requests to it have failed since then.
        per_second: requests in a second, since the last look.
        latency: mean time of a request in seconds, since the last look; 0 without requests.
        own_writes: files in its folder that it writes itself, which load nothing.
        memory: memory of each instance in bytes, with its share of what it shares with others (PSS).
    """

    name: str
    _: KW_ONLY
    phase: Phase = "waiting"
    error: str = ""
    request_error: str = ""
    serves: bool = False
    loads: int = 0
    seconds: float = 0.0
    requests: int = 0
    failures: int = 0
    per_second: float = 0.0
    latency: float = 0.0
    own_writes: tuple[str, ...] = ()
    memory: tuple[int, ...] = ()

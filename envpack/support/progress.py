"""How the core tells its caller what it is doing, without printing.

The core calls a `Progress`; the command line gives one that draws on the terminal, programs may give their own.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the steps of a long piece of work, in order; steps do not nest."""

    def begin(self, task: str) -> None:
        """A step starts, for example ``"solve python 3.10"``."""

    def detail(self, text: str) -> None:
        """Something worth seeing happened within the step."""

    def end(self, outcome: str) -> None:
        """The step is over; ``outcome`` is a short phrase, for example ``"12 packages"`` or ``"up to date"``."""


class Silent:
    """A `Progress` that shows nothing: the default of every API function."""

    def begin(self, task: str) -> None:
        pass

    def detail(self, text: str) -> None:
        pass

    def end(self, outcome: str) -> None:
        pass

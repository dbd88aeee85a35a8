"""The interface of what runs the models of a repository: a server, or envpack in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from envpack.local import Request, Response
from envpack.server import stated


class ModelError(Exception):
    """A model failed, or rejects a request. The text is the server's, with the model's traceback."""

    def __init__(self, text: str, fix: str = "") -> None:
        self.text, self.fix = stated(text), fix
        super().__init__(f"{self.text}\nfix: {fix}" if fix else self.text)


class Models(Protocol):
    """Runs the models of one repository."""

    def load(self, model: str) -> None:
        """Load a model, if it is not loaded; raises `ModelError`."""

    def forget(self, model: str) -> None:
        """Make the next `load` of a model load it anew."""

    def config(self, model: str) -> dict[str, Any]:
        """The completed configuration of a loaded model."""

    def infer(self, requests: Sequence[Request]) -> list[tuple[Response, ...]]:
        """Run requests at the same time, all to one model that is not decoupled; an error is in a response."""

    def stream(self, request: Request) -> Iterator[Response]:
        """Run a request that has any number of responses; closing the iterator cancels it."""

    def position(self) -> int:
        """Where the log ends now."""

    def logged(self, model: str, since: int) -> list[str]:
        """What a model has logged since a `position`."""

    def printed(self, since: int) -> str:
        """What the server and the models have printed since a `position`, if it is not on this process's output."""

    def close(self) -> None:
        """Finalize the models, and stop everything."""

    def kill(self) -> None:
        """Stop everything at once, whatever the models do; `close` follows."""

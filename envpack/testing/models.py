"""The interface of what runs the models of a repository for tests: a server, or envpack in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from envpack.local import RawTensor, Request

Outputs = tuple[RawTensor, ...]

# What a server answers to requests by HTTP that need more than one response.
DECOUPLED = "HTTP end point doesn't support models with decoupled transaction policy"


class ModelError(Exception):
    """A model failed, or rejects a request. The text is the server's, with the model's traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Models(Protocol):
    """Runs the models of one repository."""

    def load(self, model: str) -> None:
        """Load a model, if it is not loaded."""

    def forget(self, model: str) -> None:
        """Make the next `load` of a model load it anew."""

    def config(self, model: str) -> dict[str, Any]:
        """The completed configuration of a loaded model."""

    def infer(self, request: Request) -> Outputs:
        """Run a request that has one response."""

    def infer_batch(self, requests: Sequence[Request]) -> list[Outputs | ModelError]:
        """Run requests at the same time, all to one model."""

    def stream(self, request: Request) -> Iterator[Outputs]:
        """Run a request that has any number of responses."""

    def position(self) -> int:
        """Where the log ends now."""

    def logged(self, model: str, since: int) -> list[str]:
        """What a model has logged since a `position`."""

    def close(self) -> None:
        """Stop everything."""

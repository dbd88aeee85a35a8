"""What a test sees of a model, and the interface of what runs the models: a server, or envpack in its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from envpack.local.values import SEQUENCE_END, SEQUENCE_START, Request, Response
from envpack.server.log import stated
from envpack.server.tensors import read_served_config
from envpack.testing.arrays import from_array, to_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


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


__tracebackhide__ = True  # pytest shows the line of the test instead


class ModelUnderTest:
    """A loaded model, as the fixture ``triton_model`` returns it."""

    def __init__(self, name: str, models: Models, since: int) -> None:
        self.name = name
        self._models = models
        self._since = since

    @property
    def config(self) -> dict[str, Any]:
        """The configuration with which the model runs, completed as by a server."""
        return self._models.config(self.name)

    @property
    def logs(self) -> list[str]:
        """The messages that the model has logged since the test began."""
        return self._models.logged(self.name, self._since)

    def request(
        self,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        id: str = "",  # noqa: A002 - the server's name
        parameters: Mapping[str, object] | None = None,
        outputs: Collection[str] = (),
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
        **arrays: Any,
    ) -> Request:
        """A request to the model, for `infer_batch`."""
        declared = {entry.name: entry.datatype for entry in read_served_config(self.config).inputs}
        tensors = (
            from_array(name, value, declared.get(name, "")) for name, value in {**(inputs or {}), **arrays}.items()
        )
        return Request(
            tuple(tensors),
            outputs=frozenset(outputs),
            id=id,
            correlation_id=sequence_id,
            flags=SEQUENCE_START * sequence_start | SEQUENCE_END * sequence_end,
            parameters=json.dumps(dict(parameters or {}), separators=(",", ":")),
            model=self.name,
        )

    def infer(self, inputs: Mapping[str, Any] | None = None, /, **options: Any) -> Arrays:
        """Send one request; returns the outputs by name. Takes what `request` takes."""
        (answer,) = self.infer_batch([self.request(inputs, **options)])
        return answer

    @overload
    def infer_batch(
        self, requests: Sequence[Request | Mapping[str, Any]], *, return_errors: Literal[False] = False
    ) -> list[Arrays]: ...

    @overload
    def infer_batch(
        self, requests: Sequence[Request | Mapping[str, Any]], *, return_errors: Literal[True]
    ) -> list[Arrays | ModelError]: ...

    def infer_batch(
        self, requests: Sequence[Request | Mapping[str, Any]], *, return_errors: bool = False
    ) -> list[Arrays] | list[Arrays | ModelError]:
        """Send requests at the same time; returns the outputs of each.

        The model gets those in one call of ``execute()`` that the server joins by the model's ``dynamic_batching``.
        """
        made = [request if isinstance(request, Request) else self.request(request) for request in requests]
        answers = [_single(responses) for responses in self._models.infer(made)] if made else []
        for answer in answers:
            if isinstance(answer, ModelError) and not return_errors:
                raise answer
        return [answer if isinstance(answer, ModelError) else _arrays(answer) for answer in answers]

    def stream(self, inputs: Mapping[str, Any] | None = None, /, **options: Any) -> Iterator[Arrays]:
        """Send one request; yields the outputs of each response as it comes. Takes what `request` takes.

        Closing the iterator cancels the request.
        """
        for response in self._models.stream(self.request(inputs, **options)):
            if response.error is not None:
                raise ModelError(response.error)
            yield _arrays(response)


TritonModel = Callable[[str], ModelUnderTest]
"""The type of the fixture ``triton_model``: returns a model by its name."""


def _single(responses: Sequence[Response]) -> Response | ModelError:
    if len(responses) != 1:
        return ModelError(f"expected a single response, got {len(responses)}")
    (response,) = responses
    return response if response.error is None else ModelError(response.error)


def _arrays(response: Response) -> Arrays:
    return {tensor.name: to_array(tensor) for tensor in response.outputs}

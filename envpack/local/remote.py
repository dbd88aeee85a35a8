"""Models on a server, which models without one can ask."""

from __future__ import annotations

import json
from collections.abc import Iterator

from envpack.local.model_process import ModelFailed
from envpack.local.values import SEQUENCE_END, SEQUENCE_START, Request, Response, raw, readable
from envpack.server import Client, RequestError


class RemoteModel:
    """A model on a server, over HTTP."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client
        try:
            config = client.config(name)
        except RequestError as error:
            raise ModelFailed(error.message) from error
        self.decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled", False))

    def serves(self, version: int) -> bool:
        """Whether requests may name this version; the server decides."""
        return version != 0

    def stream(self, request: Request) -> Iterator[tuple[Response, bool]]:
        """Run a request; its one response."""
        if self.decoupled:
            raise ModelFailed(f"'{self.name}' is decoupled, and HTTP cannot carry its responses; run it here as well")
        client = self._client if request.version < 0 else self._client.of_version(str(request.version))
        yield self._response(client, request), True

    def stop(self) -> None:
        """Leave the model where it is."""

    def _response(self, client: Client, request: Request) -> Response:
        inputs = [readable(tensor) for tensor in request.inputs]
        parameters = dict(json.loads(request.parameters))
        if request.correlation_id:
            parameters |= {
                "sequence_id": request.correlation_id,
                "sequence_start": bool(request.flags & SEQUENCE_START),
                "sequence_end": bool(request.flags & SEQUENCE_END),
            }
        try:
            outputs = client.infer(self.name, inputs, binary=True, parameters=parameters)
        except RequestError as error:
            return Response(error=error.message)
        wanted = (tensor for tensor in outputs if not request.outputs or tensor.name in request.outputs)
        return Response(tuple(raw(tensor) for tensor in wanted))

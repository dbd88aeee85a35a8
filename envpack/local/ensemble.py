"""An ensemble, run step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from envpack.local.admission import admit
from envpack.local.model_config import complete_config
from envpack.local.values import RawTensor, Request, Response
from envpack.repository import ModelConfig

Stream = Iterator[tuple[Response, bool]]


class LocalEnsemble:
    """An ensemble.

    Args:
        config: the content of its config.pbtxt.
        name: its name.
        run: runs a request to a model; yields its responses, and whether each is the last one.

    """

    def __init__(self, config: ModelConfig, name: str, run: Callable[[Request], Stream]) -> None:
        self.config = complete_config(config, name)
        self.decoupled = False
        self.version = "1"
        self._run = run

    def stream(self, request: Request) -> Stream:
        """Run a request; as `LocalModel.stream`.

        Raises:
            ModelFailed: a server rejects the request.

        """
        admitted = admit(request, self.config)
        tensors = {tensor.name: tensor for tensor in admitted.inputs}
        steps = tuple(self.config.ensemble_scheduling.step)
        return _with_last(self._responses(admitted, tensors, steps))

    def stop(self) -> None:
        """Does nothing: its models are stopped by themselves."""

    def _responses(
        self, request: Request, tensors: Mapping[str, RawTensor], steps: Sequence[Any]
    ) -> Iterator[Response]:
        step = next((step for step in steps if _is_ready(step, tensors, steps)), None)
        if step is None:
            names = sorted(request.outputs, key=[entry.name for entry in self.config.output].index)
            yield Response(tuple(tensors[name] for name in names if name in tensors))
            return
        rest = [other for other in steps if other is not step]
        inputs = tuple(
            dataclasses.replace(tensors[name], name=own) for own, name in step.input_map.items() if name in tensors
        )
        own_request = dataclasses.replace(
            request,
            inputs=inputs,
            outputs=frozenset(step.output_map),
            model=step.model_name,
            version=step.model_version or -1,
        )
        for response, _ in self._run(own_request):
            if response.error is not None:
                yield response
                return
            made = {
                step.output_map[tensor.name]: dataclasses.replace(tensor, name=step.output_map[tensor.name])
                for tensor in response.outputs
            }
            if made:
                yield from self._responses(request, {**tensors, **made}, rest)


def _is_ready(step: Any, tensors: Mapping[str, RawTensor], steps: Sequence[Any]) -> bool:
    """Whether a step has all inputs, except optional ones that nobody makes."""
    coming = {name for other in steps if other is not step for name in other.output_map.values()}
    return all(name in tensors or name not in coming for name in step.input_map.values())


def _with_last(responses: Iterator[Response]) -> Stream:
    previous = next(responses, None)
    if previous is None:
        yield Response(), True
        return
    for response in responses:
        yield previous, False
        previous = response
    yield previous, True

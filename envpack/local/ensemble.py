"""An ensemble, run step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from envpack.local.admission import admit, fits
from envpack.local.model_config import complete_config
from envpack.local.model_process import ModelFailed
from envpack.local.values import INVALID, NOTHING, RawTensor, Request, Response
from envpack.repository import ModelConfig

Stream = Iterator[tuple[Response, bool]]


class LocalEnsemble:
    """An ensemble."""

    def __init__(
        self, config: ModelConfig, name: str, run: Callable[[Request], Stream], config_of: Callable[[str], Any]
    ) -> None:
        self.config = complete_config(config, name)
        self.decoupled = False
        self._run = run
        self._config_of = config_of

    def stream(self, request: Request) -> Stream:
        """Run a request; as `LocalModel.stream`."""
        admitted = admit(request, self.config)
        tensors = {tensor.name: tensor for tensor in admitted.inputs}
        steps = tuple(self.config.ensemble_scheduling.step)
        return _with_last(self._responses(admitted, tensors, steps, frozenset()))

    def serves(self, version: int) -> bool:
        """Whether requests may name this version; -1 stands for any."""
        return version in (-1, 1)

    def stop(self) -> None:
        """Does nothing: its models are stopped by themselves."""

    def _responses(
        self, request: Request, tensors: Mapping[str, RawTensor], steps: Sequence[Any], absent: frozenset[str]
    ) -> Iterator[Response]:
        """Run the steps that are left. What a step did not write is absent, and steps that read it run without it."""
        step = next((step for step in steps if self._is_ready(step, {*tensors, *absent})), None)
        if step is None:
            yield self._outputs(request, tensors, absent)
            return
        rest = [other for other in steps if other is not step]
        wanted = self._wanted(request, step)
        if not wanted:
            yield from self._responses(request, tensors, rest, absent)
            return
        inputs = tuple(
            dataclasses.replace(tensors[name], name=own) for own, name in step.input_map.items() if name in tensors
        )
        lifted = self._lifted(step, inputs)
        own_request = dataclasses.replace(
            request,
            inputs=lifted or inputs,
            outputs=wanted,
            model=step.model_name,
            version=step.model_version or -1,
        )
        for response in self._step_responses(own_request):
            if response.error is not None:
                text = f"in ensemble '{self.config.name}', {response.error}"
                yield dataclasses.replace(response, error=text)
                return
            made = {step.output_map[tensor.name]: tensor for tensor in response.outputs}
            named = {name: dataclasses.replace(tensor, name=name) for name, tensor in made.items()}
            if lifted:
                named = {name: _without_batch(tensor) for name, tensor in named.items()}
            lacking = {step.output_map[own] for own in wanted} - set(named)
            yield from self._responses(request, {**tensors, **named}, rest, absent | lacking)

    def _lifted(self, step: Any, inputs: Sequence[RawTensor]) -> tuple[RawTensor, ...]:
        """The inputs of a step with a batch dimension, if only the step's model has one and they lack it; else none."""
        model = self._config_of(step.model_name)
        if model is None or self.config.max_batch_size or not model.max_batch_size:
            return ()
        dims = {entry.name: entry.dims for entry in model.input}
        if not all(tensor.name in dims and fits(tensor.shape, dims[tensor.name]) for tensor in inputs):
            return ()
        return tuple(dataclasses.replace(tensor, shape=(1, *tensor.shape)) for tensor in inputs)

    def _step_responses(self, request: Request) -> Iterator[Response]:
        try:
            for response, _ in self._run(request):
                if response is not NOTHING:
                    yield response
        except ModelFailed as error:
            yield Response(error=error.text, code=INVALID)

    def _is_ready(self, step: Any, known: Collection[str]) -> bool:
        """Whether a step has all inputs, except those that are optional inputs of the ensemble."""
        made = {name for other in self.config.ensemble_scheduling.step for name in other.output_map.values()}
        return all(name in known or name not in made for name in step.input_map.values())

    def _wanted(self, request: Request, step: Any) -> frozenset[str]:
        """The outputs of a step, without outputs of the ensemble that the request does not name.

        A server drops these even if another step needs them.
        """
        unasked = {entry.name for entry in self.config.output} - request.outputs
        return frozenset(own for own, name in step.output_map.items() if name not in unasked)

    def _outputs(self, request: Request, tensors: Mapping[str, RawTensor], absent: frozenset[str]) -> Response:
        if not request.outputs <= {*tensors, *absent}:
            return Response(
                error=f"in ensemble '{self.config.name}', [request id: {request.id or '<id_unknown>'}] unexpected "
                "deadlock, at least one output is not set while no more ensemble steps can be made"
            )
        return Response(tuple(tensor for name, tensor in tensors.items() if name in request.outputs))


def _without_batch(tensor: RawTensor) -> RawTensor:
    return dataclasses.replace(tensor, shape=tensor.shape[1:]) if tensor.shape[:1] == (1,) else tensor


def _with_last(responses: Iterator[Response]) -> Stream:
    previous = next(responses, None)
    if previous is None:
        yield NOTHING, True
        return
    for response in responses:
        yield previous, False
        previous = response
    yield previous, True

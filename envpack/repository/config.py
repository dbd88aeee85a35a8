"""Reads config.pbtxt with Triton's own schema, so that a file that is valid here also parses in the server."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Protocol

from envpack.repository.config_schema import message_class
from envpack.support.errors import InputError


class Parameter(Protocol):
    """One entry of ``parameters``."""

    string_value: str


class EnsembleStep(Protocol):
    """One step of an ensemble."""

    model_name: str


class EnsembleScheduling(Protocol):
    """The steps of an ensemble, in any order."""

    step: Sequence[EnsembleStep]


class Tensor(Protocol):
    """An input or output that a model declares."""

    name: str


class ModelConfig(Protocol):
    """The part of Triton's ``inference.ModelConfig`` that envpack uses; the object is the real protobuf message."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    default_model_filename: str
    input: Sequence[Tensor]
    output: Sequence[Tensor]
    parameters: MutableMapping[str, Parameter]
    ensemble_scheduling: EnsembleScheduling

    def HasField(self, field_name: str) -> bool:  # noqa: N802 - protobuf's name
        """Whether an optional message field is set."""

    def SerializeToString(self, *, deterministic: bool) -> bytes:  # noqa: N802 - protobuf's name
        """The message in protobuf's wire format."""


def parse_config(text: str, where: str | Path) -> ModelConfig:
    """Parse the text of a config.pbtxt.

    Args:
        text: content of the file.
        where: file that the text is from, for the error message.

    Raises:
        InputError: the text is not a model configuration (kind ``bad-config``, with file and line).

    """
    from google.protobuf import text_format

    message = message_class()()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        line = error.GetLine()
        reason = str(error)
        reason = reason.split(" : ", 1)[1] if line and " : " in reason else reason
        raise InputError(
            f"not a valid Triton model configuration: {reason.rstrip('.')}",
            kind="bad-config",
            where=f"{where}:{line}" if line else str(where),
            hint="see Triton's model configuration guide; a field may be newer than envpack's schema",
        ) from error
    parsed: ModelConfig = message
    return parsed

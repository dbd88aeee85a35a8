"""Reads config.pbtxt with Triton's own schema, so that a file that is valid here also parses in the server."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from envpack.repository.config_schema import message_class
from envpack.support.errors import InputError

# What Triton 24.10's server takes in the quotes of a string.
_STRING = re.compile(
    r"""(?:[^\\]|\\(?:[abfnrtv\\?'"]|[0-7]|[xX][0-9a-fA-F]|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}))*""",
)
_ESCAPE = re.compile(r"\\.")
# Words that tools replace: ${name}, {{ name }}, $NAME, @NAME@, and #NAME where a value belongs.
_BLANK = re.compile(
    r"\$\{[^{}\n]{1,80}\}|\{\{[^{}\n]{1,80}\}\}|\$[A-Z]\w{0,80}|@\w{1,80}@|(?<=[:\[,\s])#[A-Z][A-Z0-9_]{0,80}\b"
)
_COMMENT = re.compile(r"[ \t]*#.*")
_SHOWN_BLANKS = 5


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


class InstanceGroup(Protocol):
    """Instances of a model on one kind of device."""

    kind: int


class SpecificVersions(Protocol):
    """Versions by number."""

    versions: Sequence[int]


class VersionPolicy(Protocol):
    """Which versions a server loads; the message has other kinds of policies too."""

    specific: SpecificVersions


class ModelConfig(Protocol):
    """The part of Triton's ``inference.ModelConfig`` that envpack uses; the object is the real protobuf message."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    default_model_filename: str
    version_policy: VersionPolicy
    input: Sequence[Tensor]
    output: Sequence[Tensor]
    parameters: MutableMapping[str, Parameter]
    ensemble_scheduling: EnsembleScheduling
    instance_group: Sequence[InstanceGroup]

    def HasField(self, field_name: str) -> bool:  # noqa: N802 - protobuf's name
        """Whether an optional message field is set."""

    def SerializeToString(self, *, deterministic: bool) -> bytes:  # noqa: N802 - protobuf's name
        """The message in protobuf's wire format."""


def parse_config(text: str, where: str | Path) -> ModelConfig:
    """Parse the text of a config.pbtxt."""
    from google.protobuf import text_format

    message = message_class()()
    try:
        _check_escapes(text)
        text_format.Parse(_ESCAPE.sub(_without_trigraph_escape, text), message)
    except (text_format.ParseError, ValueError) as error:
        # protobuf checks the number of an enumeration by itself, and names no line then.
        line = error.GetLine() if isinstance(error, text_format.ParseError) else None
        if blanks := _blanks(text):
            raise _template(blanks, where) from error
        reason = str(error)
        reason = reason.split(" : ", 1)[1] if line and " : " in reason else reason
        what = f"not a valid Triton model configuration: {reason.rstrip('.')}"
        fix = "see Triton's model configuration guide; a field may be newer than envpack's schema"
        raise InputError("bad-config", what, fix, f"{where}:{line}" if line else str(where)) from error
    parsed: ModelConfig = message
    return parsed


def _blanks(text: str) -> dict[str, int]:
    """The words of a template that are not filled in, each with its first line; none in lines that are comments."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for blank in () if _COMMENT.fullmatch(line) else _BLANK.findall(line):
            found.setdefault(blank, number)
    return found


def _template(blanks: dict[str, int], where: str | Path) -> InputError:
    words = list(blanks)
    more = f" and {len(words) - _SHOWN_BLANKS} more" if len(words) > _SHOWN_BLANKS else ""
    what = (
        f"this is a template, in which {', '.join(words[:_SHOWN_BLANKS])}{more} "
        f"{'is' if len(words) == 1 else 'are'} not filled in"
    )
    fix = "write values in place of these words, as the tool does that the template is for"
    return InputError("bad-config", what, fix, f"{where}:{blanks[words[0]]}")


def parse_json_config(text: str) -> ModelConfig:
    """Parse the JSON of a configuration, as a server takes it from clients."""
    from google.protobuf import json_format

    message = message_class()()
    try:
        json_format.Parse(text, message)
    except json_format.ParseError as error:
        raise ValueError(str(error)) from error
    parsed: ModelConfig = message
    return parsed


def _without_trigraph_escape(escape: re.Match[str]) -> str:
    """An escape as Python's protobuf reads it, which does not know that of the question mark."""
    return "?" if escape[0] == "\\?" else escape[0]


def _check_escapes(text: str) -> None:
    """Raise protobuf's ParseError for an escape sequence that the server refuses and Python's protobuf takes."""
    from google.protobuf import text_format

    if "\\" not in text:
        return
    tokenizer: Any = text_format.Tokenizer(text.split("\n"))
    while not tokenizer.AtEnd():
        if tokenizer.token[0] in "\"'" and not _STRING.fullmatch(tokenizer.token[1:-1]):
            raise tokenizer.ParseError("Invalid escape sequence in string literal.")
        tokenizer.NextToken()

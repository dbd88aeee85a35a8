"""Changes one field or parameter of a config.pbtxt and leaves every other byte unchanged; the stub's parameters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.repository.config import ModelConfig, parse_config
from envpack.support.errors import InputError

EXECUTION_ENVIRONMENT = "EXECUTION_ENV_PATH"
_PARAMETERS = "parameters"
_CLOSING = {"{": "}", "<": ">"}
_SEPARATORS = {",", ";"}


@dataclass(frozen=True)
class Token:
    """A token and its position: ``text[start:end]`` of the whole text."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Field:
    """A field of a message: its name and the tokens of one value, braces included."""

    name: str
    value: tuple[Token, ...]
    start: int  # where the name begins, or the value if it is an element of a list


def get_string_parameter(config: ModelConfig, key: str) -> str:
    return config.parameters[key].string_value if key in config.parameters else ""


def set_execution_environment(text: str, path_value: str, where: str | Path) -> str:
    return set_string_parameter(text, EXECUTION_ENVIRONMENT, path_value, where)


def set_string_parameter(text: str, key: str, value: str, where: str | Path) -> str:
    """The text with a parameter set: an existing literal is replaced, else a block is added at the end."""
    config = parse_config(text, where)
    if key in config.parameters and config.parameters[key].string_value == value:
        return text
    config.parameters[key].string_value = value
    return _checked(
        _with_parameter(text, key, value), config, f"set the parameter {key}", f"set {key} to {value!r}", where
    )


def remove_parameter(text: str, key: str, where: str | Path) -> str:
    """The text without a parameter, and without the comments in its block."""
    config = parse_config(text, where)
    if key not in config.parameters:
        return text
    del config.parameters[key]
    edited = text
    while key in parse_config(edited, where).parameters:  # an entry can hide another one
        edited = _without_entry(edited, key)
    return _checked(edited, config, f"remove the parameter {key}", f"remove {key} from parameters", where)


def set_backend(text: str, name: str, where: str | Path) -> str:
    config = parse_config(text, where)
    if config.backend == name:
        return text
    config.backend = name
    return _checked(
        _with_field(text, "backend", name), config, "set the field backend", f"set backend to {name!r}", where
    )


def _checked(edited: str, expected: ModelConfig, what: str, by_hand: str, where: str | Path) -> str:
    if parse_config(edited, where).SerializeToString(deterministic=True) != expected.SerializeToString(
        deterministic=True
    ):
        fix = f"{by_hand} by hand"
        raise InputError("config-not-editable", f"cannot {what} without changing other fields", fix, str(where))
    return edited


def _with_field(text: str, name: str, value: str) -> str:
    """The text with a field of the outermost message, which occurs at most once."""
    literal = _quoted(value)
    found = [field.value for field in _fields(tuple(_tokens(text))) if field.name == name]
    if found:
        return _replaced(text, found[-1], literal)
    return _with_lines(text, [f"{name}: {literal}"])


def _with_parameter(text: str, key: str, value: str) -> str:
    literal = _quoted(value)
    entries = _entries(_tokens(text), key)
    if not entries:
        lines = ["parameters {", f"  key: {_quoted(key)}", f"  value {{ string_value: {literal} }}", "}"]
        return _with_lines(text, lines)
    entry = entries[-1].value
    holder = _last(entry, "value")
    if not holder:
        return _inserted(text, entry[-1].start, f" value {{ string_value: {literal} }} ")
    strings = _last(holder, "string_value")
    if not strings:
        return _inserted(text, holder[0].end, f" string_value: {literal} ")
    return _replaced(text, strings, literal)


def _with_lines(text: str, lines: list[str]) -> str:
    """The text with further lines; it ends in a newline if it did before, so that `_cut` restores it."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if text and not text.endswith("\n"):
        return newline.join([text, *lines])
    return text + newline.join([*lines, ""])


def _replaced(text: str, strings: tuple[Token, ...], literal: str) -> str:
    """The text with one literal in place of several side by side; comments between them stay."""
    gaps = [text[literal.end : following.start] for literal, following in itertools.pairwise(strings)]
    comments = "".join(gap for gap in gaps if "#" in gap)
    return text[: strings[0].start] + literal + comments + text[strings[-1].end :]


def _without_entry(text: str, key: str) -> str:
    """The text without the last entry of ``parameters`` that has a key, and without the separator that it needed."""
    tokens = _tokens(text)
    entry = _entries(tokens, key)[-1]
    end = entry.value[-1].end
    before = [token for token in tokens if token.start < entry.start]
    after = [token for token in tokens if token.start >= end]
    if after and after[0].text in _SEPARATORS:
        return _cut(_cut(text, after[0].start, after[0].end), entry.start, end)
    text = _cut(text, entry.start, end)
    is_last_element = after and after[0].text == "]" and before[-1].text in _SEPARATORS
    return _cut(text, before[-1].start, before[-1].end) if is_last_element else text


def _cut(text: str, start: int, end: int) -> str:
    """The text without a part of it, and without the line that this leaves empty."""
    line, following = text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text)
    if text[line:start].strip() or text[end:following].strip():
        return text[:start] + text[end:]
    if line and not text[end:].endswith("\n") and following == len(text):  # a last line without a newline
        return text[: line - 1].removesuffix("\r")
    return text[:line] + text[following:]


def _inserted(text: str, position: int, addition: str) -> str:
    return text[:position] + addition + text[position:]


def _quoted(value: str) -> str:
    from google.protobuf import text_encoding

    escaped: str = text_encoding.CEscape(value, True)  # type: ignore[arg-type]  # True: keep UTF-8; takes str too
    return f'"{escaped}"'


def _string(tokens: tuple[Token, ...]) -> str:
    """The value of a string, which may consist of several adjacent literals."""
    from google.protobuf import text_encoding

    return b"".join(text_encoding.CUnescape(token.text[1:-1]) for token in tokens).decode("utf-8", "replace")


def _tokens(text: str) -> list[Token]:
    """The tokens of a valid text, from protobuf's own tokenizer, whose parse errors contain its position."""
    from google.protobuf import text_format

    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    tokenizer: Any = text_format.Tokenizer(lines)
    found = []
    while not tokenizer.AtEnd():
        position = tokenizer.ParseError("")
        found.append(Token(tokenizer.token, starts[position.GetLine() - 1] + position.GetColumn() - 1))
        tokenizer.NextToken()
    return found


def _entries(tokens: list[Token], key: str) -> list[Field]:
    """The entries of ``parameters`` with a key, in order, in either notation of a list."""
    entries = (field for field in _fields(tuple(tokens)) if field.name == _PARAMETERS)
    return [entry for entry in entries if _string(_last(entry.value, "key")) == key]


def _last(message: tuple[Token, ...], name: str) -> tuple[Token, ...]:
    """The value of a field in a braced message; the last one, if the field occurs several times."""
    found: tuple[Token, ...] = ()
    for field in _fields(message[1:-1]):
        if field.name == name:
            found = field.value
    return found


def _fields(tokens: tuple[Token, ...]) -> Iterator[Field]:
    """The fields of a message without its braces; a list in brackets yields one field for each element."""
    at = 0
    while at < len(tokens):
        if tokens[at].text in _SEPARATORS:
            at += 1
            continue
        name, start = tokens[at].text, tokens[at].start
        at += 1
        if at < len(tokens) and tokens[at].text == ":":
            at += 1
        if at < len(tokens) and tokens[at].text == "[":
            end = _end_of_value(tokens, at)
            for value in _elements(tokens[at + 1 : end - 1]):
                yield Field(name, value, value[0].start)
        else:
            end = _end_of_value(tokens, at)
            yield Field(name, tokens[at:end], start)
        at = end


def _elements(tokens: tuple[Token, ...]) -> Iterator[tuple[Token, ...]]:
    at = 0
    while at < len(tokens):
        if tokens[at].text in _SEPARATORS:
            at += 1
            continue
        end = _end_of_value(tokens, at)
        yield tokens[at:end]
        at = end


def _end_of_value(tokens: tuple[Token, ...], at: int) -> int:
    """Index after the value that begins at ``at``: a bracketed group, adjacent strings, or one (signed) scalar."""
    opening = tokens[at].text
    closing = _CLOSING.get(opening, "]" if opening == "[" else "")
    if closing:
        depth = 0
        for index in range(at, len(tokens)):
            depth += (tokens[index].text == opening) - (tokens[index].text == closing)
            if depth == 0:
                return index + 1
        return len(tokens)
    if opening[0] in "\"'":
        while at < len(tokens) and tokens[at].text[0] in "\"'":
            at += 1
        return at
    return at + 2 if opening == "-" else at + 1


START_PARAMETER = "ENVPACK_START"
TEMPLATE_PARAMETER = "ENVPACK_TEMPLATE"
STUB_PARAMETERS = {  # what the stub accepts, and how to say it
    START_PARAMETER: ("cold|warm", "cold or warm"),
    TEMPLATE_PARAMETER: ("import|initialize", "import or initialize"),
    "ENVPACK_RESTARTS": ("[0-9]{1,19}", "a number such as 3"),
    "ENVPACK_EXECUTE_TIMEOUT": (r"[0-9]{1,6}(\.[0-9]*)?|\.[0-9]+", "seconds such as 30 or 0.5"),
}


def with_start(text: str, start: str, where: str | Path) -> str:
    """The text of a configuration whose model starts warm or cold."""
    if start == "warm":
        return set_string_parameter(text, START_PARAMETER, start, where)
    return remove_parameter(text, START_PARAMETER, where) if start else text


def stub_parameter_faults(config: ModelConfig, file: Path) -> Iterator[InputError]:
    """An error for each of the parameters that has a value which the stub rejects."""
    for key, (accepted, words) in STUB_PARAMETERS.items():
        value = config.parameters[key].string_value if key in config.parameters else None
        if value is not None and not re.fullmatch(accepted, value):
            what = f"the parameter {key} is {value!r}"
            yield InputError("bad-config", what, f"write {words}, or remove the parameter", str(file))

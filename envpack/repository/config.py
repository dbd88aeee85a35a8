"""Reads config.pbtxt with Triton's own schema, so that a file that is valid here also parses in the server."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from envpack.support.errors import InputError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto


# What Triton 24.10's server takes in the quotes of a string.
_STRING = re.compile(
    r"""(?:[^\\]|\\(?:[abfnrtv\\?'"]|[0-7]|[xX][0-9a-fA-F]|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}))*""",
)
_LONG = 400  # characters of a reason, in which protobuf quotes the whole line
_ESCAPE = re.compile(r"\\.")
# What the server's parser reads. Python's also takes other blanks, digits and forms of numbers, such as 1_0 and 0b11.
_TOKEN = re.compile(
    r"""
    (?: [ \t\r\n\v\f] | \#[^\n\0]* )+
    | "(?P<text> (?: [^"\\\n\0] | \\. )* )" | '(?P<text_too> (?: [^'\\\n\0] | \\. )* )'
    | [A-Za-z_][A-Za-z0-9_]*
    | (?: 0[xX][0-9a-fA-F]+ | (?: [0-9]+ (?:\.[0-9]*)? | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? [fF]? ) (?![A-Za-z0-9_.])
    | [-{}\[\]<>:,;./]
    """,
    re.VERBOSE,
)
# A sign in front of blanks and a number, which Python's parser does not take; not in a text or a comment.
_SIGN = re.compile(r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#[^\n]*)|-([ \t\r\n\v\f]+)(?=[\w.])""")
_WORD = re.compile(r"[\w+.-]+|.", re.DOTALL)
# Words that tools replace: ${name}, {{ name }}, {% if name %}, <%= name %>, %(name)s, $NAME, @NAME@, __NAME__, and
# #NAME, <name>, {name} where a value belongs; a server, $$NAME.
_BLANK = re.compile(
    r"\$\{[^{}\n]{1,80}\}|\{\{[^{}\n]{1,80}\}\}|\{%[^{}\n]{1,80}%\}|<%[^%\n]{1,80}%>|%\(\w{1,80}\)s"
    r"|(?<!\$)\$[A-Z]\w{0,80}|@\w{1,80}@|\b__[A-Z]\w{0,80}__\b|(?<=[:\[,\s])#[A-Z][A-Z0-9_]{0,80}\b"
    r"|(?:(?<=[:\[,])|(?<=[:\[,] ))(?:<\w{1,80}>|\{\w{1,80}\})"
)
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""")
_COMMENT = re.compile(r"[ \t]*#.*")
_SHOWN_BLANKS = 5


class Parameter(Protocol):
    """``inference.ModelParameter``."""

    string_value: str


class DeclaredTensor(Protocol):
    """What ``inference.ModelInput`` and ``ModelOutput`` have in common."""

    name: str
    data_type: int
    dims: MutableSequence[int]
    reshape: Any
    is_shape_tensor: bool
    is_non_linear_format_io: bool

    def HasField(self, field_name: str) -> bool:  # noqa: N802 - protobuf's name
        """Whether an optional message field is set."""


class DeclaredInput(DeclaredTensor, Protocol):
    """``inference.ModelInput``."""

    optional: bool


class DeclaredOutput(DeclaredTensor, Protocol):
    """``inference.ModelOutput``."""

    label_filename: str


class InstanceGroup(Protocol):
    """``inference.ModelInstanceGroup``."""

    kind: int
    count: int


class Step(Protocol):
    """``inference.ModelEnsembling.Step``."""

    model_name: str
    model_version: int
    input_map: Mapping[str, str]
    output_map: Mapping[str, str]


class Ensemble(Protocol):
    """``inference.ModelEnsembling``."""

    step: Sequence[Step]


class ModelConfig(Protocol):
    """The part of Triton's ``inference.ModelConfig`` that envpack uses; the object is the real protobuf message."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    default_model_filename: str
    runtime: str
    version_policy: Any  # a message, whose fields have the names in model_config.toml
    input: Sequence[DeclaredInput]
    output: Sequence[DeclaredOutput]
    parameters: MutableMapping[str, Parameter]
    ensemble_scheduling: Ensemble
    instance_group: Sequence[InstanceGroup]

    def HasField(self, field_name: str) -> bool:  # noqa: N802 - protobuf's name
        """Whether an optional message field is set."""

    def SerializeToString(self, *, deterministic: bool) -> bytes:  # noqa: N802 - protobuf's name
        """The message in protobuf's wire format."""


def parse_config(text: str, where: str | Path) -> ModelConfig:
    from google.protobuf import text_format

    message = message_class()()
    try:
        _check_escapes(text)
        known = _SIGN.sub(lambda found: found[1] or f"{found[2]}-", _ESCAPE.sub(_without_trigraph_escape, text))
        text_format.Parse(known, message)
        _check_tokens(text)
    except (text_format.ParseError, ValueError) as error:
        # protobuf checks the number of an enumeration by itself, and names no line then.
        line = error.GetLine() if isinstance(error, text_format.ParseError) else None
        if _blanks(_QUOTED.sub("", text)):  # in a text they are not the reason
            raise _template(_blanks(text), where) from error
        reason = str(error)
        reason = reason.split(" : ", 1)[1] if line and " : " in reason else reason
        reason = reason.rstrip(".")
        short = reason if len(reason) < _LONG else f"{reason[: _LONG // 2]} … {reason[-_LONG // 2 :]}"
        what = f"not a valid Triton model configuration: {short}"
        pool, before = message.DESCRIPTOR.file.pool, "\n".join(text.splitlines()[: line or 0])
        fix = _FIRST.get(text.lstrip()[:1]) or _name_fix(reason, pool) or _form_fix(reason, before)
        raise InputError("bad-config", what, fix, f"{where}:{line}" if line else str(where)) from error
    parsed: ModelConfig = message
    return parsed


def unfilled_parameters(config: ModelConfig) -> dict[str, str]:
    values = {name: parameter.string_value for name, parameter in config.parameters.items()}
    return {name: value for name, value in sorted(values.items()) if _BLANK.fullmatch(value)}


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


def _without_trigraph_escape(escape: re.Match[str]) -> str:
    """An escape as Python's protobuf reads it, which does not know that of the question mark."""
    return "?" if escape[0] == "\\?" else escape[0]


def _check_escapes(text: str) -> None:
    """Raise protobuf's ParseError for an escape sequence that the server refuses and Python's protobuf may take."""
    for token, place in _tokens(text):
        if token and not _STRING.fullmatch(token["text"] or token["text_too"] or ""):
            raise _parse_error("Invalid escape sequence in string literal", text, place)


def _check_tokens(text: str) -> None:
    """Raise protobuf's ParseError for other things that the server refuses and Python's protobuf takes."""
    for token, place in _tokens(text):
        if token is None:
            word = _WORD.match(text, place)
            raise _parse_error(f"the server does not read {word and word[0]!r}", text, place)


def _tokens(text: str) -> Iterator[tuple[re.Match[str] | None, int]]:
    """What a text consists of, up to the first thing that the server does not read, each with its place."""
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        yield token, place
        if token is None:
            return
        place = token.end()


def _parse_error(what: str, text: str, place: int) -> Exception:
    from google.protobuf import text_format

    return text_format.ParseError(what, text.count("\n", 0, place) + 1)


PACKAGE = "inference"
_DATA = Path(__file__).with_name("model_config.toml")


@functools.cache
def message_class() -> Any:
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    # The module that tritonclient generates registers the same names in protobuf's default pool.
    pool.Add(file_descriptor())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.ModelConfig"))


def file_descriptor() -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    data = tomllib.loads(_DATA.read_text(encoding="utf-8"))
    schema = FileDescriptorProto(name="model_config.proto", package=PACKAGE, syntax="proto3")
    messages: dict[str, DescriptorProto] = {}
    for name, fields in data["messages"].items():  # an outer message comes before its nested ones
        outer, _, own = name.rpartition(".")
        message = messages[outer].nested_type.add() if outer else schema.message_type.add()
        message.name = own
        messages[name] = message
        for field, text in fields.items():
            _add_field(message, name, field, text.split(), data["enums"])
    for name, values in data["enums"].items():
        outer, _, own = name.rpartition(".")
        enum = messages[outer].enum_type.add() if outer else schema.enum_type.add()
        enum.name = own
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    return schema


def _add_field(
    message: DescriptorProto, message_name: str, name: str, words: list[str], enums: Mapping[str, Any]
) -> None:
    """Add the field that ``words`` describe: ``NUMBER [repeated | map KEY] TYPE [in ONEOF]``."""
    field = message.field.add(name=name, number=int(words[0]))
    match words[1:]:
        case ["map", key, value]:
            _make_map(message, message_name, field, key, value, enums)
        case ["repeated", kind]:
            field.label = field.LABEL_REPEATED
            _set_type(field, kind, enums)
        case [kind, "in", oneof]:
            field.label = field.LABEL_OPTIONAL
            _set_type(field, kind, enums)
            field.oneof_index = _oneof(message, oneof)
        case [kind]:
            field.label = field.LABEL_OPTIONAL
            _set_type(field, kind, enums)
        case _:
            raise ValueError(f"{_DATA.name}: {message_name}.{name}")


def _make_map(
    message: DescriptorProto, message_name: str, field: FieldDescriptorProto, key: str, value: str, enums: Any
) -> None:
    """Make ``field`` a map: a repeated message with a key and a value, marked as a map entry."""
    entry = message.nested_type.add(name="".join(map(str.capitalize, field.name.split("_"))) + "Entry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate((("key", key), ("value", value)), start=1):
        part = entry.field.add(name=name, number=number, label=field.LABEL_OPTIONAL)
        _set_type(part, kind, enums)
    field.label = field.LABEL_REPEATED
    field.type = field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{message_name}.{entry.name}"


def _set_type(field: FieldDescriptorProto, kind: str, enums: Mapping[str, Any]) -> None:
    if kind.islower():
        field.type = field.Type.Value(f"TYPE_{kind.upper()}")
        return
    field.type = field.TYPE_ENUM if kind in enums else field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{kind}"


def _oneof(message: DescriptorProto, name: str) -> int:
    names = [declared.name for declared in message.oneof_decl]
    if name not in names:
        message.oneof_decl.add(name=name)
        return len(names)
    return names.index(name)


_FORM = "correct this line, or give the one before it its value; Triton's model configuration guide has the form"
_NO_VALUE = re.compile(r'Enum type "(?P<type>[\w.]+)" has no value named')
_NO_FIELD = re.compile(r'Message type "(?P<type>[\w.]+)" has no field named "(?P<name>\w+)"')
_NOTHING = "TYPE_INVALID"  # what a type is that is not set
_FIRST = {  # what a configuration cannot begin with
    "\ufeff": "save the file as UTF-8 without a byte order mark, which a server does not read",
    "{": "this is JSON: write the fields without the braces around them and the quotes around their names",
}
_TRAILING_COMMA = re.compile(r",(?:\s|#[^\n]*\n)*\]")


def _name_fix(reason: str, pool: Any) -> str:
    if found := _NO_VALUE.search(reason):
        names = pool.FindEnumTypeByName(found["type"]).values_by_name
        listed = ", ".join(name for name in names if name != _NOTHING)
        return f"write one of {listed.replace('TYPE_STRING', 'TYPE_STRING (for bytes, too)')}"
    if found := _NO_FIELD.search(reason):
        fields = pool.FindMessageTypeByName(found["type"]).fields_by_name
        alike = difflib.get_close_matches(found["name"], fields, n=1)
        newer = "see Triton's model configuration guide; the field may be newer than envpack's schema"
        return f"write {alike[0]} if that is meant; else {newer}" if alike else newer
    return ""


def _form_fix(reason: str, before: str) -> str:
    """What to write in another form; ``before`` is the text up to the end of the line with the error."""
    if before.rpartition("\n")[2].lstrip().startswith("/"):
        return "begin a comment with #"
    if "Expected string" in reason:
        return "put the text in double quotes"
    if reason.endswith(('Expected "{"', ": ]")) and _TRAILING_COMMA.search(before):
        return "remove the comma in front of ]"
    if reason.endswith('Expected "{"'):
        return "write the value of this field in braces: { … }"
    return _FORM

"""The protobuf message of config.pbtxt, built from the field list in model_config.toml.

envpack has its own field list because the wheel that carries Triton's generated schema also installs NumPy and a gRPC
client. The test extra installs that wheel, and a test compares the two descriptors.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

PACKAGE = "inference"
_DATA = Path(__file__).with_name("model_config.toml")


@functools.cache
def message_class() -> Any:
    """The class of ``inference.ModelConfig`` messages, in a descriptor pool of its own."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    # The module that tritonclient generates registers the same names in protobuf's default pool.
    pool.Add(file_descriptor())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.ModelConfig"))


def file_descriptor() -> FileDescriptorProto:
    """The descriptor that model_config.toml describes."""
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

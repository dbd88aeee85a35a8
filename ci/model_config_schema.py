"""Write the fields of config.pbtxt to envpack/repository/model_config.toml, from the schema in the tritonclient wheel.

    python ci/model_config_schema.py            rewrite the file
    python ci/model_config_schema.py --check    fail if the file differs

envpack reads this file instead of the wheel, which would bring NumPy along. Needs the extra `test`.
"""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

DATA = Path(__file__).resolve().parents[1] / "envpack/repository/model_config.toml"
HEADER = """\
# The fields of Triton's config.pbtxt: names, numbers and types of the messages of the package "inference".
# Written by ci/model_config_schema.py. envpack/repository/config.py builds the protobuf descriptor from it.
#
#   FIELD = "NUMBER TYPE"               TYPE is a scalar type, or a message or enum by its full name in this file
#   FIELD = "NUMBER repeated TYPE"
#   FIELD = "NUMBER map KEY TYPE"
#   FIELD = "NUMBER TYPE in ONEOF"
"""


def tritonclient_schema() -> FileDescriptorProto:
    """The schema as tritonclient carries it; its module is loaded alone, since its package imports gRPC."""
    distribution = importlib.metadata.distribution("tritonclient")
    file = str(distribution.locate_file("tritonclient/grpc/model_config_pb2.py"))
    spec = importlib.util.spec_from_file_location("tritonclient_model_config", file)
    assert spec
    assert spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    schema = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(schema)
    return schema


def as_toml(schema: FileDescriptorProto) -> str:
    """The schema as text."""
    lines = [HEADER.rstrip()]
    for message in sorted(schema.message_type, key=lambda message: message.name):
        lines += _message(message, message.name)
    for enum in sorted(schema.enum_type, key=lambda enum: enum.name):
        lines += _enum(enum, enum.name)
    return "\n".join(lines) + "\n"


def _message(message: DescriptorProto, name: str) -> Iterator[str]:
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    yield from ("", f'[messages."{name}"]')
    for field in message.field:  # in the order in which a server writes them as JSON
        yield f'{field.name} = "{field.number} {_type(message, field, entries)}"'
    for nested in message.nested_type:
        if nested.name not in entries:
            yield from _message(nested, f"{name}.{nested.name}")
    for enum in message.enum_type:
        yield from _enum(enum, f"{name}.{enum.name}")


def _type(message: DescriptorProto, field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        return f"map {_plain(entry.field[0])} {_plain(entry.field[1])}"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {_plain(field)}"
    member = f" in {message.oneof_decl[field.oneof_index].name}" if field.HasField("oneof_index") else ""
    return _plain(field) + member


def _plain(field: FieldDescriptorProto) -> str:
    named = field.type_name.removeprefix(".inference.")
    return named or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _enum(enum: EnumDescriptorProto, name: str) -> Iterator[str]:
    yield from ("", f'[enums."{name}"]')
    for value in enum.value:
        yield f"{value.name} = {value.number}"


def main() -> None:
    text = as_toml(tritonclient_schema())
    if "--check" not in sys.argv:
        DATA.write_text(text, encoding="utf-8")
    elif DATA.read_text(encoding="utf-8") != text:
        sys.exit(f"error: {DATA.name} differs from the schema of tritonclient; run {Path(__file__).name}")


if __name__ == "__main__":
    main()

"""The descriptor built from model_config.toml is that of tritonclient, which only the tests install."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from envpack.repository.config import file_descriptor, message_class, parse_config
from envpack.support.errors import InputError
from tests.tables import every_row
from tests.unit.repository.scripts import model_config_schema

CHECKOUT = Path(__file__).parents[3]


def in_order(schema):
    """A copy in which messages, enums and fields are sorted; their order in a file has no meaning."""
    copy = FileDescriptorProto()
    copy.CopyFrom(schema)
    sort(copy.message_type, "name")
    sort(copy.enum_type, "name")
    for message in copy.message_type:
        sort_message(message)
    return copy


def sort_message(message):
    for field in message.field:
        field.ClearField("json_name")  # derived from the name
    names = [declared.name for declared in message.oneof_decl]
    members = {field.number: names[field.oneof_index] for field in message.field if field.HasField("oneof_index")}
    sort(message.oneof_decl, "name")
    position = {declared.name: index for index, declared in enumerate(message.oneof_decl)}
    for field in message.field:
        if field.number in members:
            field.oneof_index = position[members[field.number]]
    sort(message.field, "number")
    sort(message.nested_type, "name")
    sort(message.enum_type, "name")
    for nested in message.nested_type:
        sort_message(nested)


def sort(items, key):
    items.sort(key=lambda item: getattr(item, key))


def test_the_descriptor_equals_tritonclients():
    schema = model_config_schema().tritonclient_schema()
    assert in_order(file_descriptor()) == in_order(schema)


def test_the_file_is_up_to_date():
    script = CHECKOUT / "ci/model_config_schema.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_neither_tritonclient_nor_numpy_is_imported():
    program = (
        "import sys; from envpack.repository.config import parse_config; "
        "parse_config('max_batch_size: 3', 'config.pbtxt'); "
        "assert not {'tritonclient', 'numpy', 'grpc'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_kind_of_field_is_parsed():
    config = parse_config(
        """
        name: "m"  max_batch_size: 8
        input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 2 ] } ]
        parameters { key: "k" value { string_value: "v" } }
        dynamic_batching { priority_queue_policy { key: 7 value { timeout_action: DELAY } } }
        """,
        "config.pbtxt",
    )
    assert config.HasField("dynamic_batching")
    assert config.parameters["k"].string_value == "v"
    assert config.dynamic_batching.priority_queue_policy[7].timeout_action == 1
    assert list(config.input[0].dims) == [-1, 2]


def test_one_member_of_a_oneof_replaces_another():
    config = message_class()()
    config.dynamic_batching.SetInParent()
    config.sequence_batching.SetInParent()
    assert config.WhichOneof("scheduling_choice") == "sequence_batching"


def test_an_unknown_field_is_an_error_with_its_line():
    with pytest.raises(InputError) as caught:
        parse_config('name: "m"\nnames: "m"\n', "config.pbtxt")
    assert caught.value.kind == "bad-config"
    assert caught.value.where == "config.pbtxt:2"
    assert caught.value.message.endswith('Message type "inference.ModelConfig" has no field named "names"')


@every_row(
    ("text", "fix"),
    [
        ("instance_group { kind: GPU }", "write one of KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL"),
        ('input { data_type: "INT8" }', "write one of TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, "),
        ("input { dim: 1 }", "write dims if that is meant; else see Triton's model configuration guide; "),
        ("nonsense: 1", "see Triton's model configuration guide; the field may be newer than envpack's schema"),
        ("// a note", "begin a comment with #"),
        ("backend: python", "put the text in double quotes"),
        ('input [ { name: "X" },  # the last\n\n]', "remove the comma in front of ]"),
        ("input { dims: [ 1, ] }", "remove the comma in front of ]"),
        ("dynamic_batching: true", "write the value of this field in braces: { … }"),
        ("max_batch_size = 3", "correct this line, or give the one before it its value; "),
    ],
)
def test_an_error_in_the_syntax_has_a_fix_of_its_own(text, fix):
    with pytest.raises(InputError) as caught:
        parse_config(f'name: "m"\n{text}\nmax_batch_size: 1', "config.pbtxt")
    assert caught.value.hint.startswith(fix)


@every_row(
    ("text", "fix"),
    [
        ('{\n  "backend": "python"\n}\n', "this is JSON: write the fields without the braces around them"),
        ('\ufeffbackend: "python"\n', "save the file as UTF-8 without a byte order mark"),
    ],
)
def test_what_no_configuration_begins_with_is_named(text, fix):
    with pytest.raises(InputError) as caught:
        parse_config(text, "config.pbtxt")
    assert caught.value.hint.startswith(fix)


def test_an_error_quotes_the_line_in_full():
    with pytest.raises(InputError) as caught:
        parse_config('name: "m"\ninput { dims: x }  # a : b\n', "config.pbtxt")
    assert caught.value.where == "config.pbtxt:2"
    assert caught.value.message.endswith(": 'input { dims: x }  # a : b': Couldn't parse integer: x")


@pytest.mark.parametrize("literal", [r"\p", r"\N{BULLET}", r"\x", r"\8", r"\u12", r"\U00110000"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_escapes_that_the_server_refuses_are_refused(literal, quote):
    text = f'name: "m"\nparameters {{ key: "a" value {{ string_value: {quote}C:{literal}{quote} }} }}\n'
    with pytest.raises(InputError, match="Invalid escape sequence in string literal") as caught:
        parse_config(text, "config.pbtxt")
    assert (caught.value.kind, caught.value.where) == ("bad-config", "config.pbtxt:2")


@pytest.mark.parametrize("word", ["\u00a08", "\u20038", "\x1f8", "1_0", "0b11", "0o17", "\u0668"])
def test_blanks_and_numbers_that_only_python_reads_are_refused(word):
    """A no-break space comes with a text that is copied from a page."""
    with pytest.raises(InputError, match=r"the server does not read '[^']+'") as caught:
        parse_config(f"# {word}\nmax_batch_size:{word}\n", "config.pbtxt")
    assert (caught.value.kind, caught.value.where) == ("bad-config", "config.pbtxt:2")


def test_a_zero_byte_is_refused_in_a_comment_too():
    with pytest.raises(InputError, match=r"the server does not read '\\x00'"):
        parse_config('backend: "python"  # a\0b\n', "config.pbtxt")


def test_blanks_and_numbers_that_the_server_reads_are_read():
    text = "max_batch_size:\v0x8\finput { dims: [ - 1, -\n2, 010 ] } # \u00a0\nname: '- 1 \u00a0#- 1'"
    config = parse_config(text, "f")
    assert (config.max_batch_size, list(config.input[0].dims), config.name) == (8, [-1, -2, 8], "- 1 \u00a0#- 1")


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"C:\\?\\p", r"C:\?\p"),
        (r"\n\t\'\"\?", "\n\t'\"?"),
        (r"\x4a\101\7", "JA\7"),
        (r"\u00e9\U0010ffff", "é\U0010ffff"),
        ("é", "é"),
    ],
)
def test_escapes_that_the_server_takes_are_taken(literal, value):
    text = f'# C:\\people\nname: "m" # \\p\nparameters {{ key: "a" value {{ string_value: "{literal}" }} }}\n'
    assert parse_config(text, "f").parameters["a"].string_value == value


def test_a_number_that_no_enumeration_can_have_is_refused():
    with pytest.raises(InputError, match="9999999999") as caught:
        parse_config("input [ { data_type: 9999999999 } ]", "config.pbtxt")
    assert (caught.value.kind, caught.value.where) == ("bad-config", "config.pbtxt")

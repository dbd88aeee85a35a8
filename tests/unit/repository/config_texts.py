"""Random model configurations of Triton's schema, and their texts in every notation that protobuf reads.

protobuf's text_format parses the texts, which shows whether they mean the same configuration.
"""

from google.protobuf import text_encoding
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from envpack.repository.config import message_class

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = {
    Field.TYPE_STRING: WORDS,
    Field.TYPE_BOOL: st.booleans(),
    Field.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    Field.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    Field.TYPE_UINT32: st.integers(0, 2**32 - 1),
    Field.TYPE_UINT64: st.integers(0, 2**64 - 1),
    Field.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    Field.TYPE_DOUBLE: st.floats(allow_nan=False),
}
SPACE = st.sampled_from(
    [" ", "\n", "\t", "  ", "\r\n", "\n\n", " # note: { \"'\n", "#\n", "\n# parameters { key: 'K' }\r\n", " # é ü 中\n"]
)
DEEPEST = 3


def model_config():
    """The message class."""
    return message_class()


@st.composite
def messages(draw, kind=None, depth=0):
    """A message of a class, ModelConfig by default, with some of its fields set."""
    message = (kind or model_config())()
    choices = [field for field in message.DESCRIPTOR.fields if depth < DEEPEST or not field.message_type]
    fields = st.lists(st.sampled_from(choices), unique_by=lambda f: f.number, max_size=5 - depth)
    for field in draw(fields) if choices else ():
        _set(draw, message, field, depth)
    return message


def _set(draw, message, field, depth):
    values = getattr(message, field.name)
    if _is_map(field):
        key_type, value_type = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for key in draw(st.lists(_scalars(key_type), unique=True, max_size=3)):
            if value_type.message_type:
                values[key].CopyFrom(draw(messages(_class_of(value_type), depth + 1)))
            else:
                values[key] = draw(_scalars(value_type))
    elif field.message_type and _is_repeated(field):
        values.extend(draw(st.lists(messages(_class_of(field), depth + 1), max_size=3)))
    elif field.message_type:
        values.CopyFrom(draw(messages(_class_of(field), depth + 1)))
    elif _is_repeated(field):
        values.extend(draw(st.lists(_scalars(field), max_size=3)))
    else:
        setattr(message, field.name, draw(_scalars(field)))


def _scalars(field):
    if field.enum_type:
        return st.sampled_from([value.number for value in field.enum_type.values])
    return SCALARS[field.type]


def _class_of(field):
    return GetMessageClass(field.message_type)


def _is_repeated(field):
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == Field.LABEL_REPEATED


def _is_map(field):
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


@st.composite
def texts(draw, message):
    """A text of a message: in either list notation, with and without colons, with comments and space anywhere."""
    body = draw(_fields(message))
    return draw(st.sampled_from(["", "\n", "# first\n"])) + body + draw(st.sampled_from(["", "\n", " # end", "\t\r\n"]))


@st.composite
def _fields(draw, message):
    written = []
    for field, value in message.ListFields():
        if _is_repeated(field):
            written += draw(_repeated(field, _entries(field, value)))
        else:
            written.append(draw(_field(field, value)))
    ends = [draw(st.sampled_from(["", "", ",", ";", " ,", "\n;"])) + draw(SPACE) for _ in written]
    return "".join(field + end for field, end in zip(draw(st.permutations(written)), ends, strict=True))


def _entries(field, value):
    if not _is_map(field):
        return list(value)
    entry = _class_of(field)
    return [_entry(entry, key, value[key]) for key in value]


def _entry(kind, key, value):
    entry = kind(key=key)
    if hasattr(value, "DESCRIPTOR"):
        entry.value.CopyFrom(value)
    else:
        entry.value = value
    return entry


@st.composite
def _repeated(draw, field, values):
    """Some values as repeated fields, the rest as a list, in their original order."""
    first = draw(st.integers(0, len(values)))
    single = [draw(_field(field, value)) for value in values[:first]]
    if first == len(values) and draw(st.booleans()):
        return [draw(SPACE).join(single)] if single else []
    inner = [draw(_value(field, value)) + draw(st.sampled_from(["", " ", "\n"])) for value in values[first:]]
    colon = draw(st.sampled_from([":", ": ", " : ", ":\n# list\n"]))
    listed = f"{field.name}{colon}[{draw(SPACE)}{(',' + draw(SPACE)).join(inner)}]"
    return [draw(SPACE).join([*single, listed])]


@st.composite
def _field(draw, field, value):
    colons = ["", " ", ":", " : "] if field.message_type else [":", ": ", " :\n"]
    return field.name + draw(st.sampled_from(colons)) + draw(_value(field, value))


@st.composite
def _value(draw, field, value):
    if field.message_type:
        opening, closing = draw(st.sampled_from(["{}", "<>"]))
        return opening + draw(SPACE) + draw(_fields(value)) + closing
    if field.enum_type:
        return draw(st.sampled_from([str(value), field.enum_type.values_by_number[value].name]))
    if field.type == Field.TYPE_BOOL:
        return draw(st.sampled_from(["true", "True", "t", "1"] if value else ["false", "False", "f", "0"]))
    return draw(literals(value)) if field.type == Field.TYPE_STRING else repr(value)


@st.composite
def literals(draw, value):
    """A string, as one literal or as several adjacent literals."""
    cut = draw(st.integers(0, len(value)))
    parts = draw(st.sampled_from([[value], [value[:cut], value[cut:]], ["", value]]))
    return draw(SPACE).join(draw(_literal(part)) for part in parts)


@st.composite
def _literal(draw, value):
    quote = draw(st.sampled_from("\"'"))
    return quote + text_encoding.CEscape(value, draw(st.booleans())) + quote

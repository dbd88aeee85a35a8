"""An edit of any configuration changes the requested value and no other byte; protobuf parses the results."""

import re

from google.protobuf import text_encoding, text_format
from hypothesis import HealthCheck, given, settings, strategies as st

from envpack.repository.config_editor import remove_parameter, set_backend, set_string_parameter
from tests.unit.repository.config_texts import WORDS, messages, model_config, texts

PIECE = re.compile(r"""(?P<comment>\#[^\r\n]*)|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<other>[^"'#])""")
KEYS = st.sampled_from(["EXECUTION_ENV_PATH", "K", "", "é"])
# Random messages are large, and a run with a new one must not fail because the machine is busy.
patient = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def configurations(draw):
    """A message and a text of it; some have the parameters and the backend that the test edits."""
    message = draw(messages())
    for key in draw(st.lists(KEYS, unique=True, max_size=2)):
        message.parameters[key].string_value = draw(WORDS)
    if draw(st.booleans()):
        message.backend = draw(st.sampled_from(["python", "python_3_8", "é"]))
    printed = st.one_of(texts(message), st.sampled_from(by_protobuf(message)))
    return message, draw(printed)


def by_protobuf(message):
    """The texts that protobuf writes, in each of its styles."""
    styles = ({}, {"as_utf8": True}, {"use_short_repeated_primitives": True}, {"as_one_line": True})
    return [text_format.MessageToString(message, **style) for style in styles]


def parsed(text):
    return text_format.Parse(text, model_config()())


def pieces(text):
    found = list(PIECE.finditer(text))
    assert "".join(piece[0] for piece in found) == text
    return [(piece.lastgroup, piece[0]) for piece in found]


def removed_and_added(before, after):
    """The differences of two texts, in pieces: everything between the common start and the common end."""
    old, new = pieces(before), pieces(after)
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    ends = zip(reversed(old[start:]), reversed(new[start:]), strict=False)
    end = next((i for i, (a, b) in enumerate(ends) if a != b), min(len(old), len(new)) - start)
    return old[start : len(old) - end], new[start : len(new) - end]


def only_the_value_changed(before, after, old_value):
    """Only string literals with the old value were removed; everything else is still there, in the same order."""
    removed, added = removed_and_added(before, after)
    assert is_subsequence([piece for piece in removed if piece[0] != "string" and piece[1].strip()], added)
    removed_value = b"".join(text_encoding.CUnescape(text[1:-1]) for kind, text in removed if kind == "string")
    assert removed_value.decode() in old_value  # one of several literals may be the new one


def is_subsequence(some, of):
    rest = iter(of)
    return all(piece in rest for piece in some)


def comments(text):
    return [piece for kind, piece in pieces(text) if kind == "comment"]


@patient
@given(configurations())
def test_the_generated_texts_parse_as_their_message(configuration):
    message, text = configuration
    assert parsed(text) == message


@patient
@given(configurations(), KEYS, WORDS)
def test_a_parameter(configuration, key, value):
    message, text = configuration
    old = message.parameters[key].string_value if key in message.parameters else ""
    edited = set_string_parameter(text, key, value, "config.pbtxt")
    message.parameters[key].string_value = value
    assert parsed(edited) == message
    assert comments(edited) == comments(text)
    only_the_value_changed(text, edited, old)
    assert set_string_parameter(edited, key, value, "config.pbtxt") == edited


@patient
@given(configurations(), st.sampled_from(["python", "python_3_12", "ö"]))
def test_the_backend(configuration, name):
    message, text = configuration
    old = message.backend
    edited = set_backend(text, name, "config.pbtxt")
    message.backend = name
    assert parsed(edited) == message
    assert comments(edited) == comments(text)
    only_the_value_changed(text, edited, old)
    assert set_backend(edited, name, "config.pbtxt") == edited


@patient
@given(configurations(), KEYS)
def test_the_removal_of_a_parameter(configuration, key):
    message, text = configuration
    edited = remove_parameter(text, key, "config.pbtxt")
    if key not in message.parameters:
        assert edited == text
        return
    del message.parameters[key]
    assert parsed(edited) == message
    assert is_subsequence(pieces(edited), pieces(text))
    assert remove_parameter(edited, key, "config.pbtxt") == edited


@patient
@given(configurations(), KEYS, st.sampled_from(["", "\n", "\r\n", " ", "# end"]))
def test_the_removal_of_what_was_added(configuration, key, end):
    message, text = configuration
    text = text.rstrip() + end
    if key not in message.parameters:
        assert remove_parameter(set_string_parameter(text, key, "value", "f"), key, "f") == text


@patient
@given(configurations(), WORDS, WORDS)
def test_edits_do_not_depend_on_each_other(configuration, first, second):
    _, text = configuration
    edited = set_backend(set_string_parameter(text, "A", first, "f"), "python_3_9", "f")
    other = set_string_parameter(set_backend(text, "python_3_9", "f"), "A", first, "f")
    assert parsed(edited) == parsed(other)
    there_and_back = set_string_parameter(set_string_parameter(edited, "A", second, "f"), "A", first, "f")
    assert parsed(there_and_back) == parsed(edited)
    assert comments(there_and_back) == comments(text)

from pathlib import Path

import pytest

from envpack.repository.config import parse_config
from envpack.repository.config_editor import (
    get_string_parameter,
    remove_parameter,
    set_backend,
    set_execution_environment,
    set_string_parameter,
    stub_parameter_faults,
)
from envpack.support.errors import InputError

REPEATED = """# who: the vision team
name: "core"   # keep
backend: 'python'
parameters { key: "A" value { string_value: "one" } }
parameters: {
  key: "EXECUTION_ENV_PATH"  # the environment
  value: < string_value: 'old' "er" >
}
max_batch_size: 8
"""
LIST = """backend: "python"
parameters: [
  { key: "EXECUTION_ENV_PATH" value: { string_value: "old" } },  # { key: "EXECUTION_ENV_PATH" }
  { value { string_value: "b" } key: "B" }
]
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
"""


@pytest.mark.parametrize(("text", "old"), [(REPEATED, "'old' \"er\""), (LIST, '"old"')])
def test_only_the_literal_changes(text, old):
    edited = set_execution_environment(text, "/envs/new", "config.pbtxt")
    before, after = text.rsplit(old, 1)
    assert edited == f'{before}"/envs/new"{after}'


@pytest.mark.parametrize("text", [REPEATED, LIST, "", "# only a comment\n", 'backend: "python"'])
def test_a_missing_key_is_appended_and_the_rest_stays(text):
    edited = set_string_parameter(text, "NEW", "v", "f")
    assert edited.startswith(text)
    assert get_string_parameter(parse_config(edited, "f"), "NEW") == "v"


@pytest.mark.parametrize("value", ["-1", "0x10", "1"])
def test_what_follows_a_number_is_found(value):
    edited = set_backend(f'max_batch_size: {value} backend: "old"', "new", "f")
    assert edited == f'max_batch_size: {value} backend: "new"'


@pytest.mark.parametrize("text", [REPEATED, LIST, ""])
def test_a_second_edit_changes_nothing(text):
    once = set_execution_environment(text, "/e", "f")
    assert set_execution_environment(once, "/e", "f") == once


@pytest.mark.parametrize(
    "text",
    [
        'parameters { key: "K" }',
        'parameters { key: "K" value {} }',
        'parameters { key: "K" value {} } # {',
        "parameters < key: 'K' value: < > >",
        'parameters [ { key: "K" }, { key: "L" } ]',
        'parameters { key: "K" value { string_value: "a" } } parameters { key: "K" value { string_value: "b" } }',
        'parameters { key: "K" value { string_value: "a" }, }; ',
    ],
)
def test_unusual_ways_to_write_an_entry(text):
    edited = set_string_parameter(text, "K", "v", "f")
    assert get_string_parameter(parse_config(edited, "f"), "K") == "v"


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (REPEATED, REPEATED.replace("'python'", '"python_3_8"')),
        (LIST, LIST.replace('"python"', '"python_3_8"')),
        ("", 'backend: "python_3_8"\n'),
        ("# only a comment", '# only a comment\nbackend: "python_3_8"'),
        ("backend: 'py' # one\r\n 'thon', platform: 'x'", "backend: \"python_3_8\" # one\r\n , platform: 'x'"),
    ],
)
def test_the_backend(text, edited):
    assert set_backend(text, "python_3_8", "f") == edited
    assert set_backend(edited, "python_3_8", "f") == edited


def test_carriage_returns_stay():
    edited = set_string_parameter('backend: "python"\r\n', "K", "v", "f")
    assert edited.count("\r\n") == edited.count("\n")


def test_broken_text_is_refused_with_its_line():
    with pytest.raises(InputError) as caught:
        set_string_parameter('name: "x"\nnonsense {\n', "K", "v", "dir/config.pbtxt")
    assert caught.value.kind == "bad-config"
    assert caught.value.where == "dir/config.pbtxt:2"


def changes_another_field(text, *_):
    return text + "max_batch_size: 9\n"


def drops_the_value(text, *_):
    return text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('name: "m"\n', 'name: "m"\n'),
        ('parameters { key: "K" value { string_value: "a" } }\nname: "m"', 'name: "m"'),
        ('parameters: {\n  key: "K"\n  value < string_value: "a" >\n}  # tail\n', "  # tail\n"),
        ('name: "m", parameters { key: "K" }, max_batch_size: 1', 'name: "m",  max_batch_size: 1'),
        ('parameters [ { key: "K" } ]', "parameters [  ]"),
        ('parameters: [\n  { key: "K" },\n  { key: "B" }\n]\n', 'parameters: [\n  { key: "B" }\n]\n'),
        ('parameters: [\n  { key: "B" },\n  { key: "K" }\n]\n', 'parameters: [\n  { key: "B" }\n]\n'),
        (
            'parameters [{ key: "K" }, { key: "A" }, { key: "K" }]; parameters { key: "K" };',
            'parameters [ { key: "A" } ]; ',
        ),
    ],
)
def test_a_parameter_is_removed_with_its_line_and_its_comma(text, rest):
    assert remove_parameter(text, "K", "f") == rest


@pytest.mark.parametrize(
    "text",
    [
        *(REPEATED, LIST, "", "# only a comment\n", 'backend: "python"\n', "max_batch_size: 1\r\n"),
        *("# only a comment", 'backend: "python"', 'name: "a"\r\nmax_batch_size: 1', LIST.rstrip()),
    ],
)
def test_removing_what_was_added_gives_the_text_of_before(text):
    assert remove_parameter(set_string_parameter(text, "NEW", "v", "f"), "NEW", "f") == text


@pytest.mark.parametrize("edit", [changes_another_field, drops_the_value])
def test_an_edit_with_another_result_than_the_requested_one_is_rejected(monkeypatch, edit):
    """No known text leads there: the edited text is parsed again and compared, in case one does."""
    monkeypatch.setattr("envpack.repository.config_editor._with_parameter", edit)
    monkeypatch.setattr("envpack.repository.config_editor._with_field", edit)
    for what, change in (
        ("the parameter K", lambda: set_string_parameter('name: "m"\n', "K", "v", "dir/config.pbtxt")),
        ("the field backend", lambda: set_backend('name: "m"\n', "v", "dir/config.pbtxt")),
    ):
        with pytest.raises(InputError) as caught:
            change()
        assert (caught.value.kind, caught.value.where) == ("config-not-editable", "dir/config.pbtxt")
        assert caught.value.message == f"cannot set {what} without changing other fields"
        assert caught.value.hint == f"set {what.split()[-1]} to 'v' by hand"


def test_a_removal_with_another_result_than_the_requested_one_is_rejected(monkeypatch):
    monkeypatch.setattr("envpack.repository.config_editor._without_entry", lambda *_: "max_batch_size: 9")
    with pytest.raises(InputError) as caught:
        remove_parameter('parameters { key: "K" }', "K", "config.pbtxt")
    assert caught.value.message == "cannot remove the parameter K without changing other fields"
    assert caught.value.hint == "remove K from parameters by hand"


def test_an_edit_that_no_longer_parses_is_rejected(monkeypatch):
    monkeypatch.setattr("envpack.repository.config_editor._with_parameter", lambda text, *_: text + "}")
    with pytest.raises(InputError) as caught:
        set_string_parameter('name: "m"\n', "K", "v", "dir/config.pbtxt")
    assert caught.value.kind == "bad-config"


def stubs_parameter(key, value):
    config = parse_config(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}', "config.pbtxt")
    return list(stub_parameter_faults(config, Path("m/config.pbtxt")))


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [
        ("ENVPACK_START", "hot", "cold or warm"),
        ("ENVPACK_START", "", "cold or warm"),
        ("ENVPACK_TEMPLATE", "execute", "import or initialize"),
        ("ENVPACK_RESTARTS", "never", "a number such as 3"),
        ("ENVPACK_RESTARTS", "-1", "a number such as 3"),
        ("ENVPACK_EXECUTE_TIMEOUT", "30 s", "seconds such as 30 or 0.5"),
    ],
)
def test_a_value_that_the_stub_does_not_know_is_an_error(key, value, known):
    (error,) = stubs_parameter(key, value)
    assert (error.kind, error.where) == ("bad-config", "m/config.pbtxt")
    assert error.message == f"the parameter {key} is {value!r}"
    assert error.hint == f"write {known}, or remove the parameter"


@pytest.mark.parametrize(("key", "value"), [("ENVPACK_RESTARTS", "0"), ("ENVPACK_EXECUTE_TIMEOUT", "0.5")])
def test_a_number_for_the_stub_is_read(key, value):
    assert stubs_parameter(key, value) == []

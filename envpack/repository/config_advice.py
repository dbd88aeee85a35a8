"""What to do about an error in the syntax of config.pbtxt, as far as protobuf's reason and the text before it say."""

from __future__ import annotations

import difflib
import re
from typing import Any

_FORM = "correct this line, or give the one before it its value; Triton's model configuration guide has the form"
_NO_VALUE = re.compile(r'Enum type "(?P<type>[\w.]+)" has no value named')
_NO_FIELD = re.compile(r'Message type "(?P<type>[\w.]+)" has no field named "(?P<name>\w+)"')
_NOTHING = "TYPE_INVALID"  # what a type is that is not set
_FIRST = {  # what a configuration cannot begin with
    "\ufeff": "save the file as UTF-8 without a byte order mark, which a server does not read",
    "{": "this is JSON: write the fields without the braces around them and the quotes around their names",
}
_TRAILING_COMMA = re.compile(r",(?:\s|#[^\n]*\n)*\]")


def syntax_fix(reason: str, text: str, line: int, pool: Any) -> str:
    """How to correct a configuration.

    Args:
        reason: what protobuf says is wrong.
        text: the whole configuration.
        line: number of the line that protobuf names, from 1; 0 if it names none.
        pool: the descriptors of the configuration's messages and enumerations.
    """
    before = "\n".join(text.splitlines()[:line])
    return _FIRST.get(text.lstrip()[:1]) or _name_fix(reason, pool) or _form_fix(reason, before)


def _name_fix(reason: str, pool: Any) -> str:
    """Which value or field is meant; ``""`` if that is not the error."""
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

"""Match specs of conda as text: name, channel and version; and the ranges of versions of conda and of Poetry.

Everything else is left to the engine that resolves them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"(?=.*[a-z])[a-z0-9_][\w.-]*", re.IGNORECASE)
_FIELD = re.compile(r"\b(?P<key>\w++)\s*=\s*(?:'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<bare>[^,\s'\"]+))")
_NAMESPACE = re.compile(r"(?:^|(?<=::))[\w-]+:(?=\w)")  # conda reads it, and nothing depends on it
_NOT_IN_BUILD = "-=,|<>~"
_KEPT = re.compile(r"([\^~])(?!=)\s*(\w[\w.]*)")
_LONGEST_RANGE = 1000  # characters
_RELATION = re.compile(r"(?P<operator>===?|[<>!~]=|[<>=]|)(?P<version>[\w.*+!]+)")


class CondaSpec(NamedTuple):
    """The parts of a match spec that matter before it is resolved."""

    channel: str  # name or address of the channel, "" if it names none
    name: str  # of the package, in lower case; "" if the text is not a match spec
    version: str  # with its operators, without the build; "" for any


def tidy_spec(text: str) -> str:
    """A match spec with single blanks, none beside operators and commas, the channel in front and no namespace.

    >>> tidy_spec("numpy >= 1.20 , < 2"), tidy_spec("numpy[version='<2', channel=conda-forge]")
    ('numpy >=1.20,<2', "conda-forge::numpy[version='<2']")
    """
    text = re.sub(r"\s*([,|])\s*", r"\1", _NAMESPACE.sub("", " ".join(text.split()), count=1))
    return _with_channel_in_front(re.sub(r"([<>=!~])\s+(?=[\w*])", r"\1", text))


def _with_channel_in_front(spec: str) -> str:
    start = _start_of_fields(spec)
    fields = spec[start + 1 : -1] if start >= 0 else ""
    found = next((field for field in _FIELD.finditer(fields) if field["key"] == "channel"), None)
    if not found:
        return spec
    others = ",".join(filter(None, (fields[: found.start()].strip(" ,"), fields[found.end() :].strip(" ,"))))
    name = spec[:start].rpartition("::")[2]
    return f"{_value(found)}::{name}{f'[{others}]' if others else ''}"


def _start_of_fields(spec: str) -> int:
    return spec.find("[", spec.rfind("]", 0, -1) + 1) if spec.endswith("]") else -1


def _value(field: re.Match[str]) -> str:
    return field["single"] or field["double"] or field["bare"] or ""


def parse_spec(text: str) -> CondaSpec:
    """The parts of a match spec.

    >>> parse_spec("conda-forge::numpy=1.26.*=py310*")
    CondaSpec(channel='conda-forge', name='numpy', version='=1.26.*')
    """
    channel, _, rest = tidy_spec(text).rpartition("::")
    name = re.split(r"[\s=<>!~\[]", rest, maxsplit=1)[0]
    if not _NAME.fullmatch(name):
        return CondaSpec(channel, "", "")
    rest, version = rest[len(name) :].strip(), ""
    start = _start_of_fields(rest)
    if start >= 0:
        fields = {field["key"]: _value(field) for field in _FIELD.finditer(rest[start + 1 : -1])}
        rest, version = rest[:start].strip(), fields.get("version", "")
    return CondaSpec(channel, name.lower(), version or _version_before_build(rest) or rest)


def _version_before_build(text: str) -> str:
    """The version before a build, which follows a blank, or a ``=`` that is no operator; ``""`` without one."""
    last = max(text.rfind(mark) for mark in _NOT_IN_BUILD)
    if 0 < last < len(text) - 1 and text[last] == "=" and text[last - 1] not in "=<>!~,|":
        return text[:last]
    blank = text.find(" ", max(last + 1, 1))
    return text[:blank] if 0 < blank < len(text) - 1 else ""


def without_build(spec: str) -> str:
    """A match spec without the build after its version.

    >>> without_build("numpy=1.26.4=py310h62c760a_0"), without_build("numpy[version='<2',build=0]")
    ('numpy==1.26.4', 'numpy<2')
    """
    channel, separator, rest = spec.rpartition("::")
    name = re.split(r"[\s=<>!~\[]", rest, maxsplit=1)[0]
    written = rest[len(name) :].strip()
    fields = _start_of_fields(written)
    version = _version_before_build(written) if fields < 0 else parse_spec(rest).version
    if not (version if fields < 0 else "build" in written[fields:]):
        return spec
    exact = version.startswith("=") and not version.startswith("==") and not version.endswith("*")
    between = " " if version[:1].isalnum() else "=" if exact else ""
    return f"{channel}{separator}{name}{between}{version}"


def python_range(version: str) -> str:
    """The versions of a conda spec as version specifiers of Python packages; alternatives are separated by ``|``.

    A version stands for all its patches, also after ``==``: only the minor version of Python counts.

    >>> python_range("=3.8"), python_range(">=3.6,<3.9|3.11.*")
    ('==3.8.*', '>=3.6,<3.9|==3.11.*')
    """
    from packaging.specifiers import SpecifierSet

    found = dict.fromkeys(version.split("|")) if version else ()
    alternatives = [",".join(filter(None, map(_relation, alternative.split(",")))) for alternative in found]
    for alternative in alternatives:
        SpecifierSet(alternative)  # which raises a ValueError
    return "" if "" in alternatives else "|".join(dict.fromkeys(alternatives))


def _relation(text: str) -> str:
    match = _RELATION.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a version")
    operator, version = match["operator"], match["version"].rstrip("*").rstrip(".")
    if not version:
        return ""
    if operator in ("", "=", "==", "==="):
        return f"=={version}.*"
    if operator == "!=" and match["version"].endswith("*"):
        return f"!={version}.*"
    return f">={version}" if operator == "~=" and "." not in version else f"{operator}{version}"


def poetry_range(text: str) -> str:
    """A range of versions in Poetry's syntax as version specifiers; as `python_range`.

    >>> poetry_range("^3.8"), poetry_range("~3.9 || >=3.11 <3.13"), poetry_range("3.10.*"), poetry_range("^0.2")
    ('>=3.8,<4', '>=3.9,<3.10|>=3.11,<3.13', '==3.10.*', '>=0.2,<0.3')
    """
    if len(text) > _LONGEST_RANGE:
        raise ValueError(f"{text[:20]!r}… is too long for a range")
    alternatives = re.sub(r"([<>=!~])\s+", r"\1", _KEPT.sub(_between, text)).replace("||", "|").split("|")
    return python_range("|".join(",".join(re.split(r"[\s,]+", one.strip(" ,"))) for one in alternatives))


def version_range(text: str) -> str:
    """As `python_range`, ``""`` for versions that no Python package can have."""
    try:
        return python_range(text)
    except ValueError:
        return ""


def _between(match: re.Match[str]) -> str:
    """A caret keeps the first number that is not 0, a tilde the second number."""
    numbers = [int(part) for part in match[2].split(".")]
    first = next((place for place, number in enumerate(numbers, 1) if number), len(numbers))
    kept = first if match[1] == "^" else min(len(numbers), 2)
    return f">={match[2]},<{'.'.join(map(str, [*numbers[: kept - 1], numbers[kept - 1] + 1]))}"

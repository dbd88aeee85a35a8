"""The reference of envpack.toml: a table of its keys, and a JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envpack.settings.fields import Field, Kind
from envpack.settings.table import FIELDS

_TYPES = {"project": "in_project", "model": "in_model"}


def keys(where: str) -> list[Field]:
    """The keys of the top level (``"project"``) or of the table of a model (``"model"``)."""
    return [field for field in FIELDS.values() if getattr(field, _TYPES[where])]


def table(where: str) -> str:
    """The keys with their defaults and meanings, as Markdown."""
    rows = [f"| `{field.name}` | {_default(field, where)} | {_text(field)} |" for field in keys(where)]
    return "\n".join(["| key | default | |", "|---|---|---|", *rows])


def set_only(command: str) -> str:
    """The settings of a command that have no option, as Markdown."""
    names = [f"`{field.name}`" for field in FIELDS.values() if command in field.has_set]
    return f"`--set KEY=VALUE` takes these keys, too: {', '.join(names)}." if names else ""


def schema() -> dict[str, Any]:
    """The JSON Schema of envpack.toml."""
    model = {"type": "object", "additionalProperties": False, "properties": _properties(keys("model"))}
    project = _properties(keys("project"))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "envpack.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": {**project, "models": {"type": "object", "additionalProperties": model}},
    }


def _properties(fields: Iterable[Field]) -> dict[str, Any]:
    return {field.name: _type(field.kind) | {"description": field.help} for field in fields}


def _type(kind: Kind) -> dict[str, Any]:
    match kind.form:
        case "texts":
            return {"type": "array", "items": {"type": "string", "minLength": 1}}
        case "flag":
            return {"type": "boolean"}
        case "number":
            return {"type": "integer", "minimum": kind.least, "maximum": kind.most}
        case "choice":
            return {"type": "string", "enum": list(kind.values)}
    return {"type": "string"}


def _default(field: Field, where: str) -> str:
    if where == "model" and field.in_project:
        return "added to the repository's" if field.adds else "the repository's"
    if field.otherwise:
        return field.otherwise
    return "`false`" if field.kind.form == "flag" else "none"


def _text(field: Field) -> str:
    text = field.explained or field.help.removesuffix(".")
    return text.replace("; repeatable", "").replace("|", "\\|")

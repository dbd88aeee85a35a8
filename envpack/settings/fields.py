"""Rows of the table of settings: what a setting is called, where it may be said, and what it means."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envpack.settings.kinds import Kind


class Unsaid(enum.Enum):
    """The value of a setting that is not set; false like an empty one."""

    UNSAID = enum.auto()

    def __bool__(self) -> bool:
        return False


UNSAID = Unsaid.UNSAID


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One setting.

    Attributes:
        name: its name in `envpack.settings.table.Settings`, as a key of envpack.toml and of ``--set``.
        kind: what its values are.
        default: its value if it is not said.
        help: what it means, in a few words, for ``--help``.
        otherwise: what holds if it is not said, for ``--help`` and the reference.
        explained: what the reference says instead of ``help``, as Markdown.
        option: its option, ``""`` for ``--`` and the name.
        has_option: the commands that have this option.
        has_set: the commands in which only ``--set`` and envpack.toml reach it.
        in_project: whether the top level of envpack.toml may say it.
        in_model: whether the table of a model may say it.
        adds: whether what is said in several places adds up; otherwise the nearest counts.
        group: heading in ``--help``.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    otherwise: str = ""
    explained: str = ""
    option: str = ""
    has_option: tuple[str, ...] = ()
    has_set: tuple[str, ...] = ()
    in_project: bool = True
    in_model: bool = False
    adds: bool = False
    group: str = "Options"

    @property
    def flag(self) -> str:
        """The option, for example ``"--link-mode"``."""
        return self.option or f"--{self.name.replace('_', '-')}"

    def concerns(self, command: str) -> bool:
        """Whether a command uses the setting."""
        return command in self.has_option or command in self.has_set

    def read_word(self, word: str, place: str) -> Any:
        """What a word of the command line says of it; paths start at the working folder. Raises `BadValueError`."""
        return self.kind.read(self.name, self.kind.parse(word), Path.cwd() / "envpack.toml", place)


def setting(kind: Kind, help_text: str, *, has: str = "", has_set: str = "", **more: Any) -> Any:
    """A field of `envpack.settings.table.Settings`; words are names of commands, other arguments those of `Field`."""
    default = more.pop("default", _empty(kind))
    row = {"kind": kind, "default": default, "help": help_text, "has_option": tuple(has.split())}
    metadata = row | {"has_set": tuple(has_set.split())} | more
    return dataclasses.field(default=UNSAID, metadata=metadata)


def _empty(kind: Kind) -> object:
    empty: dict[str, object] = {"texts": (), "flag": False, "text": ""}
    return empty.get(kind.form)


def fields_of(table: Any) -> Mapping[str, Field]:
    """The rows of a dataclass whose fields are made by `setting`, by name."""
    return {field.name: Field(name=field.name, **field.metadata) for field in dataclasses.fields(table)}

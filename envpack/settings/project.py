"""A model repository and its settings: what `envpack.toml` and the command line say of all models and of each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envpack.settings.fields import BadValueError
from envpack.settings.releases import Release, release_for_stub
from envpack.settings.table import DEFAULT_RELEASE, FIELDS, Settings
from envpack.support.bounded_reading import read_bytes
from envpack.support.errors import InputError, UsageError
from envpack.support.folders import whole_path
from envpack.support.tables import Location, parse_toml
from envpack.support.text import toml_key

FILE_NAME = "envpack.toml"
_MOST = 1 << 20  # bytes


def server_variables(entries: Sequence[str]) -> dict[str, str]:
    """The variables of ``env``: ``NAME=VALUE``, or a name of this process; `UsageError` for another one."""
    found = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not name or not (equals or name in os.environ):
            lacks = " without a value, and this shell has no such variable" if name else ", which names no variable"
            fix = "write NAME=VALUE, or the NAME of a variable that this shell has"
            raise UsageError("usage", f"env has {entry!r}{lacks}", fix)
        found[name] = value if equals else os.environ[name]
    return found


@dataclass(frozen=True, kw_only=True)
class Project:
    """A model repository and its settings.

    Attributes:
        repository: folder whose sub-folders are models, absolute.
        settings: what `envpack.toml` says of all models.
        models: what it says of single models, by the names of their folders.
        said: what the caller says, which counts more than the file.
    """

    repository: Path
    settings: Settings = field(default_factory=Settings)
    models: Mapping[str, Settings] = field(default_factory=dict)
    said: Settings = field(default_factory=Settings)

    @property
    def file(self) -> Path:
        """Where its `envpack.toml` is, or would be."""
        return self.repository / FILE_NAME

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know of the release, and of settings that apply to nothing or are not read."""
        names = " and ".join(self.absent)
        unused = f"{FILE_NAME} has settings for {names}, and there is no such folder" if names else ""
        return tuple(text for text in (self.release.warning, unused, self.overlooked) if text)

    @property
    def overlooked(self) -> str:
        """A warning of an `envpack.toml` that is not this repository's, where one may be looked for; else ``""``."""
        near = (Path(FILE_NAME), self.repository.parent / FILE_NAME)  # the first one in the working folder
        found = None if os.path.lexists(self.file) else next((file for file in near if file.is_file()), None)
        return f"{found} is not read: the settings of this repository belong in {self.file}" if found else ""

    @property
    def absent(self) -> tuple[str, ...]:
        """The models that `envpack.toml` names and the repository does not have."""
        return tuple(name for name in self.models if not (self.repository / name).is_dir())

    def of(self, model: str = "") -> Settings:
        """The settings of a model by the name of its folder, or of the repository; defaults for what is not said.

        Requirements that are said of all models count less than a file in the model's folder, so they are not among
        them: `envpack.repository.folders.requirements_file` knows both.
        """
        general = self.settings.only(*(name for name in FIELDS if name != "requirements"))
        return self.said.over(self.models.get(model, Settings())).over(general).settled()

    @property
    def requirements(self) -> Path | None:
        """The requirements file of the models that have none of their own; None if the file names none."""
        return self.settings.settled().requirements

    @property
    def release(self) -> Release:
        """The Triton release that is named, else the default one."""
        said = self.of()
        where = "" if self.said.triton else str(self.file)
        return release_for_stub(said.triton or DEFAULT_RELEASE, abi=said.abi or "", where=where)

    def saying(self, said: Settings) -> Project:
        """The same repository with further settings, which count most."""
        return dataclasses.replace(self, said=said.over(self.said))


def open_project(repository: Path | str, said: Settings | None = None) -> Project:
    """Read ``envpack.toml`` in a model repository; without that file the defaults hold.

    Args:
        repository: folder whose sub-folders are models.
        said: settings that count more than the file's.

    Raises:
        InputError: the folder does not exist, or the file cannot be read or says something unknown.
    """
    repository, said = whole_path(Path(repository)), said or Settings()
    if not repository.is_dir():
        fix = "give the folder that holds the model folders with --repository"
        raise InputError("repository-missing", "model repository not found", fix, str(repository))
    file = repository / FILE_NAME
    if not os.path.lexists(file):
        return Project(repository=repository, said=said)
    place = Location(file, kind="bad-project-file")
    try:
        content = read_bytes(file, most=_MOST)
    except OSError as error:
        raise place.error(
            f"this file cannot be read: {error.strerror}",
            hint="make it a file that you can read, or remove it: envpack works without one, too",
        ) from error
    hint = 'an entry looks like this: [models.NAME] and below it python = "3.10"'
    return _parsed(parse_toml(content, place, hint=hint), place, said)


def _parsed(content: dict[str, object], file: Location, said: Settings) -> Project:
    keys = {name for name, row in FIELDS.items() if row.in_project}
    settings = _settings(
        {key: content[key] for key in content if key != "models"}, keys, file, "the top level", "models"
    )
    models = content.get("models", {})
    if not isinstance(models, dict):
        raise _not_a_table("models", file)
    of_models = {name: _settings_of_model(name, entry, file) for name, entry in models.items()}
    return Project(repository=file.path.parent, settings=settings, models=of_models, said=said)


def _settings_of_model(name: str, entry: object, file: Location) -> Settings:
    place = f"[models.{toml_key(name)}]"
    if not isinstance(entry, dict):
        raise _not_a_table(place, file)
    for key, value in entry.items():
        if isinstance(value, dict) and key not in FIELDS:
            dotted = toml_key(f"{name}.{key}")
            hint = f"quote the name of a model that contains a dot: [models.{dotted}]"
            raise file.error(f"unknown table {key!r} in {place}", hint=hint)
    settings = _settings(entry, {key for key, row in FIELDS.items() if row.in_model}, file, place)
    if settings.requirements and settings.from_prefix:
        raise file.error(
            f"{place} has both requirements and from_prefix",
            hint="keep one of them: an environment is built from requirements, or taken from a folder",
        )
    return settings


def _settings(table: Mapping[str, object], keys: set[str], file: Location, place: str, *more: str) -> Settings:
    if unknown := sorted(set(table) - keys):
        import difflib

        known = sorted({*keys, *more})
        near = difflib.get_close_matches(unknown[0], known, n=1)
        meant = f"did you mean {near[0]}?" if near else f"known there: {', '.join(known)}"
        hint = _place_of(unknown[0]) or meant
        raise file.error(f"unknown key {unknown[0]!r} in {place}", hint=hint)
    values: dict[str, Any] = {}
    for key, value in table.items():
        try:
            values[key] = FIELDS[key].kind.read(key, value, file.path, place)
        except BadValueError as fault:
            raise file.error(str(fault), hint=fault.hint) from fault
    return Settings(**{key: value for key, value in values.items() if value not in ("", None)})


def _place_of(key: str) -> str:
    """Where a key belongs, of which only one place knows it; ``""`` if none does."""
    row = FIELDS.get(key)
    if row is None:
        return ""
    if not (row.in_model or row.in_project):
        return f"{key} is not for a file: say it with each command that needs it"
    if row.in_model:
        return f"{key} is a setting of a model: write it below [models.NAME], for each model that needs it"
    return f"{key} is a setting of the repository: write it at the top, before the first [models.NAME]"


def _not_a_table(name: str, file: Location) -> InputError:
    return file.error(f"{name} must be a table", hint='write a line [models.NAME] and below it python = "3.10"')

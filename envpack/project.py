"""A model repository and its settings: what `envpack.toml` says of all models and of each."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from envpack.support.bounded_reading import parse_toml, read_text
from envpack.support.errors import InputError
from envpack.support.home_folders import expand_home
from envpack.support.platforms import PLATFORMS, platform_name

FILE_NAME = "envpack.toml"
_MOST = 1 << 20  # bytes
_BUILD_KEYS = {"format", "exclude", "toolchain", "layout", "link_mode", "start"}
_PROJECT_KEYS = {
    "triton",
    "platform",
    "channels",
    "python_preference",
    "served_from",
    "backends",
    "store",
    "push",
    "models",
} | _BUILD_KEYS
_MODEL_KEYS = {"python", "requirements", "from_prefix"} | _BUILD_KEYS
LAYOUTS = ("model", "backend")
ARCHIVE_FORMATS = ("dir", "tar.gz", "tar")
TOOLCHAINS = ("auto", "system", "zig")
LINK_MODES = ("auto", "clone", "hardlink", "copy")
STARTS = ("cold", "warm")
PREFERENCES = ("system", "managed", "only-system", "only-managed")
_EXAMPLES = {
    "triton": "24.10",
    "platform": "linux-64",
    "python_preference": "managed",
    "served_from": "/models",
    "layout": "backend",
    "format": "tar.gz",
    "toolchain": "zig",
    "link_mode": "copy",
    "start": "warm",
    "backends": "../backends",
    "store": "s3://bucket/envpack",
    "python": "3.10",
    "requirements": "core/requirements.txt",
    "from_prefix": "/home/me/venv",
}
_LIST_EXAMPLES = {"channels": 'channels = ["conda-forge"]', "exclude": 'exclude = ["*.pyi"]'}


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What `envpack.toml` says of one model; every field may be empty.

    Attributes:
        python: Python minor version, for example ``"3.8"``.
        requirements: requirements file, absolute.
        from_prefix: folder of an existing environment to take over instead, absolute.
        layout: where its stub goes, see `Project`.
        archive_format: form of its environment, see `Project`.
        exclude: patterns of files to leave out, beside those of the project.
        toolchain: compiler for its stub, see `Project`.
        link_mode: how its files are placed, see `Project`.
        start: how its instances start, see `Project`.
    """

    python: str = ""
    requirements: Path | None = None
    from_prefix: Path | None = None
    layout: str = ""
    archive_format: str = ""
    exclude: tuple[str, ...] = ()
    toolchain: str = ""
    link_mode: str = ""
    start: str = ""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A model repository and its settings. An empty field means that `envpack.toml` does not set it.

    Attributes:
        repository: folder whose sub-folders are models, absolute.
        triton: Triton release that the models are for.
        platform: ``"linux-64"`` or ``"linux-aarch64"``.
        channels: conda channels in order of preference.
        python_preference: where interpreters come from: a name in `PREFERENCES`.
        served_from: path of the model repository on the server, if it differs.
        layout: ``"model"`` for stubs beside their models, ``"backend"`` for one per Python in a folder of backends.
        backends: that folder, absolute.
        archive_format: ``"dir"``, ``"tar.gz"`` or ``"tar"``; key ``format``.
        exclude: patterns of files to leave out of every environment, as in ``.gitignore``.
        toolchain: compiler for stubs: ``"auto"``, ``"system"`` or ``"zig"``.
        link_mode: how environments are placed: a name in `LINK_MODES`.
        start: how the models' instances start: ``"warm"`` or ``"cold"``.
        store: address of a store that machines share.
        push: whether what this machine makes is put into that store.
        models: settings by model name; models without an entry are not listed.
    """

    repository: Path
    triton: str = ""
    platform: str = ""
    channels: tuple[str, ...] = ()
    python_preference: str = ""
    served_from: str = ""
    layout: str = ""
    backends: Path | None = None
    archive_format: str = ""
    exclude: tuple[str, ...] = ()
    toolchain: str = ""
    link_mode: str = ""
    start: str = ""
    store: str = ""
    push: bool = False
    models: dict[str, ModelSettings] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Where its `envpack.toml` is, or would be."""
        return self.repository / FILE_NAME

    def settings(self, model: str) -> ModelSettings:
        """Settings of one model, empty ones if `envpack.toml` does not name it."""
        return self.models.get(model, ModelSettings())


def open_project(repository: Path) -> Project:
    """Read ``envpack.toml`` in a model repository; without that file the defaults hold.

    Raises:
        InputError: the folder does not exist, or the file cannot be read or says something unknown.
    """
    repository = repository.absolute()
    if not repository.is_dir():
        raise InputError(
            "model repository not found",
            kind="repository-missing",
            where=str(repository),
            hint="give the folder that holds the model folders with --repository",
        )
    file = repository / FILE_NAME
    if not os.path.lexists(file):
        return Project(repository=repository)
    try:
        content = parse_toml(read_text(file, most=_MOST))
    except OSError as error:
        raise InputError(
            f"this file cannot be read: {error.strerror}",
            kind="bad-project-file",
            where=str(file),
            hint="it must be a text file of settings; envpack works without one, too",
        ) from error
    except ValueError as error:  # also a number with more digits than Python reads
        line = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        raise InputError(
            f"not valid TOML: {str(error).removesuffix(line.group()) if line else error}",
            kind="bad-project-file",
            where=f"{file}:{line[1]}" if line else str(file),
            hint='an entry looks like this: [models.NAME] and below it python = "3.10"',
        ) from error
    return _parsed(content, file)


def _parsed(content: dict[str, object], file: Path) -> Project:
    place = "the top level"
    _refuse_unknown(content, _PROJECT_KEYS, file, place)
    backends = _text(content, "backends", file, place)
    return Project(
        repository=file.parent,
        triton=_text(content, "triton", file, place),
        platform=_one_of(PLATFORMS, content, "platform", file, place),
        channels=_texts(content, "channels", file, place),
        python_preference=_one_of(PREFERENCES, content, "python_preference", file, place),
        served_from=_text(content, "served_from", file, place),
        layout=_one_of(LAYOUTS, content, "layout", file, place),
        backends=file.parent / expand_home(backends, str(file)) if backends else None,
        archive_format=_one_of(ARCHIVE_FORMATS, content, "format", file, place),
        exclude=_texts(content, "exclude", file, place),
        toolchain=_one_of(TOOLCHAINS, content, "toolchain", file, place),
        link_mode=_one_of(LINK_MODES, content, "link_mode", file, place),
        start=_one_of(STARTS, content, "start", file, place),
        store=_text(content, "store", file, place),
        push=_flag(content, "push", file, place),
        models={name: _model_settings(name, entry, file) for name, entry in _table(content, "models", file).items()},
    )


def _one_of(known: tuple[str, ...], table: dict[str, object], key: str, file: Path, place: str) -> str:
    value = platform_name(_text(table, key, file, place))
    if value and value not in known:
        raise InputError(
            f"unknown {key} {value!r} in {place}",
            kind="bad-project-file",
            where=str(file),
            hint=f"known: {', '.join(known)}",
        )
    return value


def _texts(table: dict[str, object], key: str, file: Path, place: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
        raise InputError(
            f"{key} in {place} must be a list of texts",
            kind="bad-project-file",
            where=str(file),
            hint=f"write it like {_LIST_EXAMPLES[key]}",
        )
    return tuple(value)


def _model_settings(name: str, entry: object, file: Path) -> ModelSettings:
    if not isinstance(entry, dict):
        raise _not_a_table(f"[models.{name}]", file)
    place = f"[models.{name}]"
    _refuse_unknown(entry, _MODEL_KEYS, file, place)
    if "requirements" in entry and "from_prefix" in entry:
        raise InputError(
            f"{place} has both requirements and from_prefix",
            kind="bad-project-file",
            where=str(file),
            hint="keep one of them: an environment is built from requirements, or taken from a folder",
        )
    requirements, prefix = (_text(entry, key, file, place) for key in ("requirements", "from_prefix"))
    return ModelSettings(
        python=_text(entry, "python", file, place),
        requirements=file.parent / requirements if requirements else None,
        from_prefix=file.parent / expand_home(prefix, str(file)) if prefix else None,
        layout=_one_of(LAYOUTS, entry, "layout", file, place),
        archive_format=_one_of(ARCHIVE_FORMATS, entry, "format", file, place),
        exclude=_texts(entry, "exclude", file, place),
        toolchain=_one_of(TOOLCHAINS, entry, "toolchain", file, place),
        link_mode=_one_of(LINK_MODES, entry, "link_mode", file, place),
        start=_one_of(STARTS, entry, "start", file, place),
    )


def _text(table: dict[str, object], key: str, file: Path, place: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise InputError(
            f"{key} in {place} must be text in quotes",
            kind="bad-project-file",
            where=str(file),
            hint=f'write it like {key} = "{_EXAMPLES[key]}"',
        )
    return value


def _flag(table: dict[str, object], key: str, file: Path, place: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise InputError(
            f"{key} in {place} must be true or false",
            kind="bad-project-file",
            where=str(file),
            hint=f"write it like {key} = true, without quotes",
        )
    return value


def _table(content: dict[str, object], key: str, file: Path) -> dict[str, object]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise _not_a_table(key, file)
    return value


def _not_a_table(name: str, file: Path) -> InputError:
    return InputError(
        f"{name} must be a table",
        kind="bad-project-file",
        where=str(file),
        hint='write a line [models.NAME] and below it python = "3.10"',
    )


def _refuse_unknown(table: dict[str, object], known: set[str], file: Path, place: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise InputError(
            f"unknown key {unknown[0]!r} in {place}",
            kind="bad-project-file",
            where=str(file),
            hint=f"known there: {', '.join(sorted(known))}",
        )

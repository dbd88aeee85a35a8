"""What the user works on: a model repository, its models, and what `envpack.toml` says of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from envpack.errors import InputError
from envpack.releases import DEFAULT_RELEASE

FILE_NAME = "envpack.toml"
_PROJECT_KEYS = {"triton", "models"}
_MODEL_KEYS = {"python", "requirements"}


@dataclass(frozen=True)
class ModelSettings:
    """What `envpack.toml` says of one model; every field may be empty.

    Attributes:
        python: Python minor version, for example ``"3.8"``.
        requirements: requirements file, absolute.
    """

    python: str = ""
    requirements: Path | None = None


@dataclass(frozen=True)
class Project:
    """A model repository and its settings.

    Attributes:
        repository: folder whose sub-folders are models, absolute.
        triton: Triton release that the models are for.
        models: settings by model name; models without an entry are not listed.
    """

    repository: Path
    triton: str = DEFAULT_RELEASE
    models: dict[str, ModelSettings] = field(default_factory=dict)

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
    if not file.exists():
        return Project(repository)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not valid TOML: {error}", kind="bad-project-file", where=str(file)) from error
    _refuse_unknown(content, _PROJECT_KEYS, file, "the top level")
    models = {name: _model_settings(name, entry, file) for name, entry in _table(content, "models", file).items()}
    return Project(repository, str(content.get("triton", DEFAULT_RELEASE)), models)


def _model_settings(name: str, entry: object, file: Path) -> ModelSettings:
    if not isinstance(entry, dict):
        raise InputError(f"[models.{name}] must be a table", kind="bad-project-file", where=str(file))
    _refuse_unknown(entry, _MODEL_KEYS, file, f"[models.{name}]")
    python, requirements = entry.get("python", ""), entry.get("requirements")
    if not isinstance(python, str):
        raise InputError(
            f"python of [models.{name}] must be text",
            kind="bad-project-file",
            where=str(file),
            hint=f'write python = "{python}" with quotes',
        )
    return ModelSettings(python, file.parent / str(requirements) if requirements else None)


def _table(content: dict[str, object], key: str, file: Path) -> dict[str, object]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{key} must be a table", kind="bad-project-file", where=str(file))
    return value


def _refuse_unknown(table: dict[str, object], known: set[str], file: Path, place: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise InputError(
            f"unknown key {unknown[0]!r} in {place}",
            kind="bad-project-file",
            where=str(file),
            hint=f"known there: {', '.join(sorted(known))}",
        )

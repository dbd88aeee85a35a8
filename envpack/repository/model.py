"""A model: a folder of the repository, its configuration and its code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.repository.config import ModelConfig, parse_config
from envpack.support.errors import InputError

CONFIG_NAME = "config.pbtxt"
DEFAULT_CONFIG = 'backend: "python"\n'
_MODEL_FILE = "model.py"
SHELL_CHARACTER = re.compile(r"[\s\"'`$&|;<>()*?\[\]{}\\!]")


@dataclass(frozen=True)
class Model:
    """One model of a repository.

    Attributes:
        name: name that the server knows it by (the configuration's, else the folder's).
        folder: absolute path of the folder that holds ``config.pbtxt``.
        config: its configuration, the real protobuf message.
        is_ensemble: whether it only ties other models together and has no code of its own.
        backend: backend that runs it, for example ``"python"``; empty for an ensemble.

    """

    name: str
    folder: Path
    config: ModelConfig
    is_ensemble: bool
    backend: str

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the models that an ensemble runs; empty for every other model."""
        return tuple(dict.fromkeys(step.model_name for step in self.config.ensemble_scheduling.step))


def open_model(folder: Path) -> Model:
    """Read the model in ``folder``, and check what would fail on the server.

    Raises:
        InputError: kinds ``model-missing``, ``bad-path``, ``bad-config``, ``model-name-mismatch``,
            ``not-a-python-model`` and ``model-without-code``.

    """
    model, faults = examine_model(folder)
    for fault in faults:
        raise fault
    if model is None:
        raise AssertionError("unreachable: a model that cannot be read has a fault")
    return model


def examine_model(folder: Path) -> tuple[Model | None, tuple[InputError, ...]]:
    """Read the model in ``folder`` as far as that goes, and tell all that is wrong with it, not only the first.

    Returns:
        The model, None if its configuration cannot be read; and the errors of `open_model`.

    """
    folder = folder.absolute()
    if not folder.is_dir():
        return None, (_missing(folder),)
    faults = list(_path_faults(folder))
    try:
        config = parse_config(config_text(folder), folder / CONFIG_NAME)
    except InputError as error:
        return None, (*faults, error)
    if config.name and config.name != folder.name:
        faults.append(_name_mismatch(folder, config.name))
    is_ensemble = config.platform == "ensemble" or config.HasField("ensemble_scheduling")
    if not is_ensemble:
        faults += _code_faults(folder, config)
    backend = "" if is_ensemble else config.backend or "python"
    return Model(config.name or folder.name, folder, config, is_ensemble, backend), tuple(faults)


def find_models(repository: Path) -> tuple[Model, ...]:
    """Every Python model and ensemble of a repository, sorted by name.

    Sub-folders that hold neither a configuration nor code, and those whose name starts with a dot, are no models.
    Models of another backend are left out.

    Raises:
        InputError: the repository does not exist (kind ``repository-missing``), or as `open_model`.

    """
    if not repository.is_dir():
        raise InputError(
            "model repository not found",
            kind="repository-missing",
            where=str(repository),
            hint="give the folder that holds the model folders with --repository",
        )
    models = []
    for folder in sorted(repository.iterdir()):
        if folder.name.startswith(".") or not folder.is_dir() or not looks_like_model(folder):
            continue
        try:
            models.append(open_model(folder))
        except InputError as error:
            if error.kind != "not-a-python-model":
                raise
    return tuple(sorted(models, key=lambda model: model.name))


def named_models(repository: Path, names: Sequence[str]) -> tuple[Model, ...]:
    """The models that a user names, or all of the repository for no names.

    Args:
        repository: folder that holds the model folders.
        names: see `model_name`.

    Raises:
        InputError: as `model_name`, `open_model` and `find_models`; or there is no model at all (``repository-empty``).

    """
    if names:
        return tuple(open_model(repository / model_name(repository, name)) for name in dict.fromkeys(names))
    models = find_models(repository)
    if not models:
        raise no_models(repository)
    return models


def model_name(repository: Path, text: str) -> str:
    """The folder name of the model that a user names, by that name or by a path to its folder.

    Raises:
        InputError: the path leads to another folder than one of this repository (kind ``other-repository``).

    """
    name = text.rstrip("/")
    if "/" not in name and name not in ("", ".", ".."):
        return name
    folder = Path(os.path.abspath(text))  # noqa: PTH100 - links stay: the server sees the name in the repository
    if folder.parent.resolve() == repository.resolve():
        return folder.name
    raise InputError(
        f"{text!r} is not in the model repository {repository}",
        kind="other-repository",
        hint=f"name a model of this repository, or add --repository {folder.parent}",
    )


def no_models(repository: Path) -> InputError:
    """The error for a repository without a Python model or ensemble."""
    return InputError(
        "no Python model in this repository",
        kind="repository-empty",
        where=str(repository),
        hint="`envpack init FOLDER` makes one that works",
    )


def config_text(model: Model | Path) -> str:
    """The text of a model's configuration; a folder with code but without config.pbtxt gets `DEFAULT_CONFIG`.

    Line ends are given as they are in the file.

    Raises:
        InputError: the file is not UTF-8 text (kind ``bad-config``).

    """
    folder = model.folder if isinstance(model, Model) else model
    file = folder / CONFIG_NAME
    if not file.is_file():
        return DEFAULT_CONFIG
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 text: {error}", kind="bad-config", where=str(file), hint="save the file as UTF-8"
        ) from error


def looks_like_model(folder: Path) -> bool:
    """Whether a folder holds a configuration, or the code of a version."""
    return (folder / CONFIG_NAME).is_file() or any((f / _MODEL_FILE).is_file() for f in version_folders(folder))


def version_folders(folder: Path) -> list[Path]:
    """What the server takes for versions: every folder whose name starts with a digit other than zero."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] in "123456789")


def _missing(folder: Path) -> InputError:
    return InputError(
        f"model {folder.name!r} not found",
        kind="model-missing",
        where=str(folder),
        hint="a model is a folder of the model repository; see --repository",
    )


def _name_mismatch(folder: Path, name: str) -> InputError:
    return InputError(
        f"the configuration calls the model {name!r} but its folder is {folder.name!r}",
        kind="model-name-mismatch",
        where=str(folder / CONFIG_NAME),
        hint="remove the line with name, or rename the folder: Triton wants both to agree",
    )


def _path_faults(folder: Path) -> Iterator[InputError]:
    unsafe = SHELL_CHARACTER.search(str(folder))
    if unsafe:
        yield InputError(
            f"the path contains {unsafe.group()!r}, and Triton hands paths to a shell without quotes",
            kind="bad-path",
            where=str(folder),
            hint="move the model repository to a path of letters, digits, '/', '_', '-' and '.'",
        )


def _code_faults(folder: Path, config: ModelConfig) -> Iterator[InputError]:
    file_name = config.default_model_filename or _MODEL_FILE
    versions = version_folders(folder)
    without = [version for version in versions if not (version / file_name).is_file()]
    named = config.backend or config.platform
    if len(without) == len(versions) and named and not named.startswith("python"):
        yield InputError(
            f"a model of the backend {named!r}, not a Python model",
            kind="not-a-python-model",
            where=str(folder / CONFIG_NAME),
            hint="envpack prepares models of Triton's Python backend only",
        )
        return
    if not versions:
        yield InputError(
            f"no version folder with a {file_name}",
            kind="model-without-code",
            where=str(folder),
            hint=f"put the model's code into {folder.name}/1/{file_name}",
        )
    for version in reversed(without):
        yield InputError(
            f"Triton takes this folder for a version of the model, but it has no {file_name}",
            kind="model-without-code",
            where=str(version),
            hint="add the file, or give the folder a name that does not start with a digit; "
            "a server would wait for ever on loading it",
        )

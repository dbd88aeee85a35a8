"""A model: a folder of the repository, its configuration and its code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.repository.code import may_complete
from envpack.repository.config import ModelConfig, parse_config
from envpack.repository.config_editor import (
    EXECUTION_ENVIRONMENT,
    START_PARAMETER,
    get_string_parameter,
    stub_parameter_faults,
)
from envpack.repository.folders import (
    BACKENDS,
    LONGEST_NAME,
    PLATFORMS,
    backend_of,
    default_file,
    file_in,
    first_without_backend,
    is_too_long,
    misspelt_backend,
    no_such_model,
    odd_version,
    served_versions,
    version_folders,
    version_number,
)
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError
from envpack.support.folders import check_enterable, check_models_path, real_path, shell_fault, whole_path
from envpack.support.placed_files import CONFIG_NAME

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"  # the model's folder in EXECUTION_ENV_PATH
_KIND_GPU = 1  # of Triton's ModelInstanceGroup
DEFAULT_CONFIG = 'backend: "python"\n'
_MODEL_FILE = "model.py"
_PYTHON = "python"
_MOST = 4 << 20  # bytes of a configuration; real ones have some kilobytes
_LARGEST_VERSION = (1 << 63) - 1
# A server compares the address of a request with names as they are; clients encode these characters in addresses.
UNADDRESSABLE = re.compile(r"[^A-Za-z0-9._~,@+:-]")


@dataclass(frozen=True)
class Model:
    """A model of a repository."""

    name: str  # its name on the server: from the configuration, else the folder's name
    folder: Path  # absolute path of the folder that holds ``config.pbtxt``
    config: ModelConfig  # its configuration, the real protobuf message
    is_ensemble: bool  # whether it only combines other models and has no code
    backend: str  # backend that runs it, for example ``"python"``; empty for an ensemble
    is_foreign: bool = False  # whether that is another backend than Triton's Python backend

    @property
    def has_stub(self) -> bool:
        """Whether a stub runs it: Python code, and no ensemble."""
        return not (self.is_ensemble or self.is_foreign)

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.model_name for step in self.config.ensemble_scheduling.step))

    @property
    def start(self) -> str:
        """``"warm"`` or ``"cold"``, as its configuration says; ``""`` if it leaves that to the server's variables."""
        return get_string_parameter(self.config, START_PARAMETER)

    @property
    def written_environment(self) -> str:
        """EXECUTION_ENV_PATH as its configuration has it; ``""`` if that is not set."""
        return get_string_parameter(self.config, EXECUTION_ENVIRONMENT)

    @property
    def environment(self) -> Path | None:
        """The folder or archive in EXECUTION_ENV_PATH, whether it exists or not.

        None if that is not set, or is longer than a path can be. A server takes ``..`` away with the part before it,
        without following links, so this path has none either.
        """
        value = self.written_environment
        if not value or is_too_long(value):
            return None
        return Path(os.path.normpath(value.replace(MODEL_DIRECTORY, str(self.folder))))

    @property
    def has_own_environment(self) -> bool:
        """Whether its environment is in its folder; another model's was built for that one."""
        place = self.environment
        return place is not None and real_path(place).parent == real_path(self.folder)

    @property
    def code_file(self) -> str:
        """The file in each of its versions that a stub imports."""
        return self.config.default_model_filename or _MODEL_FILE

    @property
    def default_file(self) -> str:
        return "" if self.is_ensemble else default_file(self.config, self.backend)

    @property
    def may_complete(self) -> bool:
        """Whether a server that completes configurations could serve it in another way than one that does not."""
        return not self.is_ensemble and may_complete(self.folder, self.config)

    @property
    def needs_gpu(self) -> bool:
        return any(group.kind == _KIND_GPU for group in self.config.instance_group)

    def served_versions(self) -> list[int]:
        """The versions that a server loads by its version_policy, the newest first."""
        return served_versions(self.folder, self.config)

    def misspelt_backend(self, backends: Path) -> InputError | None:
        """The error for a backend that is almost one that servers come with; ``backends`` has others."""
        return misspelt_backend(self.backend, self.folder / CONFIG_NAME, backends)


def open_model(folder: Path, *, foreign: bool = False) -> Model:
    """Read the model in ``folder``, and check for errors that would fail on the server."""
    model, faults = examine_model(folder)
    for fault in faults:
        raise fault
    if model is not None and model.is_foreign and not foreign:
        raise not_in_python(model)
    if model is None:
        raise AssertionError("unreachable: a model that cannot be read has a fault")
    return model


def not_in_python(model: Model) -> InputError:
    what = f"this is a model of the backend {model.backend!r}, not a Python model"
    fix = (
        "envpack makes environments and stubs only for models of Triton's Python backend; "
        "`verify` and `publish` also work on others"
    )
    return InputError("not-a-python-model", what, fix, str(model.folder / CONFIG_NAME))


def examine_model(folder: Path, config: ModelConfig | None = None) -> tuple[Model | None, tuple[InputError, ...]]:
    """Read the model in ``folder`` as far as possible, and return all of its errors, not only the first."""
    folder = whole_path(folder)
    if is_too_long(folder.name) or not folder.is_dir():
        return None, (no_such_model(folder),)
    check_enterable(folder)
    for version in version_folders(folder):
        check_enterable(version)
    faults = list(_encoding_faults(folder))
    try:
        config = config or parse_config(config_text(folder), folder / CONFIG_NAME)
    except InputError as error:
        return None, (*faults, error)
    if config.name and config.name != folder.name:
        what = f"the configuration names the model {config.name!r}, but its folder is {folder.name!r}"
        fix = "remove the name field or rename the folder: Triton requires the same name"
        faults.append(InputError("model-name-mismatch", what, fix, str(folder / CONFIG_NAME)))
    is_ensemble = config.platform == "ensemble" or config.HasField("ensemble_scheduling")
    faults += _long_name_faults(folder, config)
    backend = "" if is_ensemble else backend_of(config, folder)
    is_foreign = not is_ensemble and _is_foreign(folder, backend)
    if is_ensemble:
        faults += _step_faults(folder, config)
    else:
        faults += _platform_faults(folder, config)
        if not is_foreign:
            faults += [*_shell_faults(folder), *_file_name_faults(folder, config), *_code_faults(folder, config)]
        faults += _module_faults(folder, config) if backend == _PYTHON else ()
    faults += stub_parameter_faults(config, folder / CONFIG_NAME)
    return Model(config.name or folder.name, folder, config, is_ensemble, backend, is_foreign), tuple(faults)


def config_text(model: Model | Path) -> str:
    """The text of a model's configuration; a folder of Python code without config.pbtxt gets `DEFAULT_CONFIG`.

    Without config.pbtxt the files of a model of another backend decide, and the text is empty. Line endings are
    unchanged.
    """
    folder = model.folder if isinstance(model, Model) else model
    file = folder / CONFIG_NAME
    if not os.path.lexists(file):
        return DEFAULT_CONFIG if backend_of(parse_config("", file), folder) == _PYTHON else ""
    return read_config(file)


def read_config(file: Path) -> str:
    if not file.is_file():
        what = "this is not a file" if file.exists() else "this link leads nowhere"
        raise InputError("bad-config", what, "write the model's configuration there", str(file))
    try:
        return read_text(file, most=_MOST)
    except UnicodeDecodeError as error:
        raise InputError("bad-config", f"not UTF-8 text: {error}", "save the file as UTF-8", str(file)) from error


def _long_name_faults(folder: Path, config: ModelConfig) -> Iterator[InputError]:
    names = {
        "default_model_filename": config.default_model_filename,
        EXECUTION_ENVIRONMENT: get_string_parameter(config, EXECUTION_ENVIRONMENT),
    }
    for field, value in names.items():
        if is_too_long(value):
            what = f"no file can have the name that {field} gives: a name has at most {LONGEST_NAME} bytes"
            yield InputError("bad-path", what, "give the file a shorter name", str(folder / CONFIG_NAME))


def _encoding_faults(folder: Path) -> Iterator[InputError]:
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        what = "the path is not valid UTF-8, so neither Triton's requests nor envpack's records can name the model"
        yield InputError("name-not-text", what, "rename it", str(folder))


def _shell_faults(folder: Path) -> Iterator[InputError]:
    """A shell starts stubs; no other backend, and no ensemble, has one read its paths."""
    try:
        check_models_path(folder)
    except InputError as error:
        yield error


def _step_faults(folder: Path, config: ModelConfig) -> Iterator[InputError]:
    for name in dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step):
        if "/" in name or name in ("", ".", ".."):
            what = f"the ensemble's step {name!r} is not the name of a model"
            fix = "name a model of this repository in model_name"
            yield InputError("bad-config", what, fix, str(folder / CONFIG_NAME))


def _platform_faults(folder: Path, config: ModelConfig) -> Iterator[InputError]:
    if not config.backend and config.platform and config.platform not in PLATFORMS:
        known = ", ".join(f'"{platform}"' for platform in PLATFORMS)
        what = f"no server knows the platform {config.platform!r}"
        fix = f'write backend: "{config.platform}" in place of platform, which is one of {known} or "ensemble"'
        yield InputError("bad-config", what, fix, str(folder / CONFIG_NAME))
    if first := first_without_backend(config, folder):
        what = f"a server cannot determine the backend: {CONFIG_NAME} names none, and {first} has no file of one"
        fix = (
            f'write backend: "{backend_of(config, folder)}": a server looks only into the folder whose name comes first'
        )
        yield InputError("model-without-code", what, fix, str(folder / CONFIG_NAME))


def _is_foreign(folder: Path, backend: str) -> bool:
    """Whether a model is of another backend; a Python backend may have a name of its own."""
    return not backend.startswith(_PYTHON) and (backend in BACKENDS or not _has_code(folder))


def _has_code(folder: Path) -> bool:
    return any((version / _MODEL_FILE).is_file() for version in version_folders(folder))


def _module_faults(folder: Path, config: ModelConfig) -> Iterator[InputError]:
    """A stub imports the file as the module VERSION.NAME; other Python backends may run code of their own."""
    if config.platform.startswith("tensorflow_") and not config.default_model_filename:
        what = f"the platform is {config.platform!r}, with which a server looks for another file than {_MODEL_FILE}"
        yield InputError("bad-config", what, "remove platform: the field backend is enough", str(folder / CONFIG_NAME))
    name = Path(config.default_model_filename or _MODEL_FILE)
    if name.suffix != ".py" or "." in name.stem:
        what = f"default_model_filename is {str(name)!r}, and a stub imports only NAME.py, without other dots"
        fix = "rename the file, for example to model.py, and remove default_model_filename"
        yield InputError("bad-path", what, fix, str(folder / CONFIG_NAME))


def _file_name_faults(folder: Path, config: ModelConfig) -> Iterator[InputError]:
    file_name = config.default_model_filename
    if unfit := shell_fault(file_name):
        fix = "give the file a name of letters, digits, '_', '-' and '.'"
        yield InputError("bad-path", f"default_model_filename {unfit}", fix, str(folder / CONFIG_NAME))
    if file_name and {"", "."}.intersection(file_name.split("/")):
        what = f"default_model_filename is {file_name!r}, and a server takes a path from the version's folder on"
        fix = "write the file's name only, or FOLDER/NAME"
        yield InputError("bad-path", what, fix, str(folder / CONFIG_NAME))


def _code_faults(folder: Path, config: ModelConfig) -> Iterator[InputError]:
    file_name = config.default_model_filename or _MODEL_FILE
    if is_too_long(file_name):
        return
    versions = version_folders(folder)
    for version in versions:
        if version_number(version) > _LARGEST_VERSION:
            what = "the number of this version does not fit into 64 bits, so a server cannot load the model"
            yield InputError("odd-version", what, "give the folder a smaller number", str(version))
    if not (config.backend or config.platform or config.default_model_filename or _has_code(folder)):
        named = f"{CONFIG_NAME} {'names none' if str(config) else 'is empty'}"
        what = f"a server cannot determine the backend: {named}, and no version has a {file_name}"
        fix = (
            f'put the model\'s code in {folder.name}/1/{file_name}, or write backend: "NAME" for a model of another one'
        )
        yield InputError("model-without-code", what, fix, str(folder))
        return
    if not versions:
        fix = f"put the model's code in {folder.name}/1/{file_name}"
        yield InputError("model-without-code", f"no version folder with a {file_name}", fix, str(folder))
    for number in served_versions(folder, config):
        if odd := odd_version(folder, number):
            yield odd
        elif not file_in(folder / str(number), file_name).is_file():
            what = f"Triton loads this folder as a version of the model, but it has no {file_name}"
            fix = (
                "add the file, or give the folder a name that does not start with a digit; "
                "otherwise a server waits forever while it loads the model"
            )
            yield InputError("model-without-code", what, fix, str(folder / str(number)))

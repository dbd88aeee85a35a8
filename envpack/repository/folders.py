"""What folders show: which are models, their versions and requirements, and the backend that a server runs each with.

The errors for models that are not where a user named them name the place where envpack sees some.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.repository.config import ModelConfig
from envpack.requirements.format import find_requirements
from envpack.settings.project import Project
from envpack.support.errors import InputError
from envpack.support.folders import check_enterable, path_in_shell, real_path
from envpack.support.placed_files import CONFIG_NAME

LONGEST_NAME = 255  # bytes of a file's name
_OF_AUTHORS = ("tests", "envpack", "training")
_TEST = re.compile(r"test_.*\.py|conftest\.py")


def find_folder(repository: Path, name: str) -> Path | None:
    """The folder with a name from a configuration or code; compared, so that no text leads elsewhere."""
    return next((entry for entry in repository.iterdir() if entry.name == name and entry.is_dir()), None)


def requirements_file(project: Project, folder: Path) -> Path | None:
    """The requirements file of a model: named for it, in its folder, or named for all; None if there is none."""
    return project.of(folder.name).requirements or find_requirements(folder) or project.requirements


def is_too_long(path: str) -> bool:
    """Whether no file can have a path, because one of its parts has more bytes than a file system takes."""
    return any(len(part.encode("utf-8", "surrogateescape")) > LONGEST_NAME for part in path.split("/"))


def file_in(folder: Path, name: str) -> Path:
    """The file in a folder that a configuration names: as a server joins them, a leading slash has no effect."""
    return folder / name.lstrip("/")


def is_for_authors(path: str) -> bool:
    """Whether a path below a model's folder is of no use to a server: tests, samples, and what trained the model."""
    first = path.partition("/")[0]
    return first in _OF_AUTHORS or (first == path and _TEST.fullmatch(path) is not None)


def looks_like_model(folder: Path) -> bool:
    """Whether a folder contains a configuration, or a version with the file of a backend that a server knows.

    A version is enough if the folder's name ends in a backend of Triton's images: ``NAME.dali``. A folder that this
    user may not read may be a model too: to open it is then an error of this model alone. The one that every file
    system of its own has, for root, is none.
    """
    try:
        check_enterable(folder)
        if (folder / CONFIG_NAME).is_file():
            return True
        versions = version_folders(folder)
        if versions and _backend_in_name(folder) in BACKENDS:
            return True
        return any(map(_has_model, versions))
    except PermissionError:
        return folder.name != "lost+found"


def version_folders(folder: Path) -> list[Path]:
    """The folders that the server loads as versions: ``0``, and those whose names start with another digit."""
    return sorted(entry for entry in folder.iterdir() if _VERSION.match(entry.name) and entry.is_dir())


_VERSION = re.compile("[1-9]|0$")


def version_number(folder: Path) -> int:
    """The version that a server takes a folder from `version_folders` for, whatever follows the digits."""
    return int("".join(itertools.takewhile("0123456789".__contains__, folder.name)))


def served_versions(folder: Path, config: ModelConfig) -> list[int]:
    """The versions that a server loads by the version_policy, the newest first; each from the folder of its number."""
    policy: Any = config.version_policy
    newest = sorted({version_number(version) for version in version_folders(folder)}, reverse=True)
    if policy.HasField("all"):
        return newest
    if policy.HasField("specific"):
        return [number for number in newest if number in policy.specific.versions]
    return newest[: policy.latest.num_versions if policy.HasField("latest") else 1]


def missing_version(folder: Path, config: ModelConfig) -> str:
    policy: Any = config.version_policy
    return "" if version_folders(folder) else str(next(iter(policy.specific.versions), 1))


def odd_version(folder: Path, number: int) -> InputError | None:
    """The error for a folder such as ``2_old``, for which a server looks for version 2 in a missing folder ``2``."""
    if (folder / str(number)).exists():
        return None
    odd = next(version for version in version_folders(folder) if version_number(version) == number)
    what = f"because of this folder, a server loads version {number} of the model from {number}, which does not exist"
    return InputError("odd-version", what, "remove it, or give it a name that does not start with a digit", str(odd))


@dataclass(frozen=True)
class KnownBackend:
    """A backend that a server chooses by itself."""

    name: str
    platform: str  # what stands for it in the field platform, "" if nothing does
    file: str  # the file or folder of a version that it loads by default


# In the order in which a server looks for their files.
KNOWN = (
    KnownBackend("tensorflow", "tensorflow_savedmodel", "model.savedmodel"),
    KnownBackend("tensorflow", "tensorflow_graphdef", "model.graphdef"),
    KnownBackend("tensorrt", "tensorrt_plan", "model.plan"),
    KnownBackend("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    KnownBackend("openvino", "", "model.xml"),
    KnownBackend("pytorch", "pytorch_libtorch", "model.pt"),
    KnownBackend("python", "", "model.py"),
)
_OTHERS = ("dali", "fil", "vllm", "tensorrtllm", "identity", "repeat", "square")  # that images of Triton have
BACKENDS = (*dict.fromkeys(known.name for known in KNOWN), *_OTHERS)
_ALIKE = 0.8  # of difflib: one letter of five may be wrong
PLATFORMS = tuple(known.platform for known in KNOWN if known.platform)


def backend_of(config: ModelConfig, folder: Path) -> str:
    """The backend of the model in a folder that is no ensemble.

    The field backend decides, then platform, then default_model_filename, then the files of the first version, then
    the name of the model, ``NAME.BACKEND``.

    Returns ``"python"`` if nothing decides, and the platform itself if no server has such a platform.
    """
    if config.backend:
        return config.backend
    if config.platform:
        return next((known.name for known in KNOWN if known.platform == config.platform), config.platform)
    wanted, versions = config.default_model_filename, version_folders(folder)
    files = {wanted} if wanted else set(os.listdir(versions[0])) if versions else set()  # noqa: PTH208 - only names
    found = next((known.name for known in KNOWN if known.file in files), "")
    return found or ("" if wanted else _backend_in_name(folder)) or "python"


def first_without_backend(config: ModelConfig, folder: Path) -> str:
    """The name of a model's first folder, where a server looks in vain for a file of a backend that a version has."""
    if config.backend or config.platform or config.default_model_filename or _backend_in_name(folder):
        return ""
    first = min((entry for entry in folder.iterdir() if entry.is_dir()), default=None)
    return first.name if first and not _has_model(first) and any(map(_has_model, version_folders(folder))) else ""


def _has_model(folder: Path) -> bool:
    return any((folder / known.file).exists() for known in KNOWN)


def _backend_in_name(folder: Path) -> str:
    """What follows the first dot of a model's name, ``""`` if it cannot be a backend, as in ``llama-3.1-chat``."""
    name = folder.name.partition(".")[2]
    return name if re.fullmatch(r"[A-Za-z]\w*", name) else ""


def misspelt_backend(backend: str, config: Path, backends: Path) -> InputError | None:
    """The error for a misspelt backend, or for the name of its platform or model file in its place; None for others."""
    import difflib

    if backend in ("", *BACKENDS) or backend.startswith("python_") or (backends / backend).is_dir():
        return None
    meant = [known.name for known in KNOWN if backend in (known.platform, known.file.removeprefix("model."))]
    alike = meant or difflib.get_close_matches(backend, BACKENDS, n=1, cutoff=_ALIKE)
    if not alike:
        return None
    fix = f'write backend: "{alike[0]}"; or name the folder that contains {backend} with --set backends=DIRECTORY'
    return InputError("backend-missing", f"no server comes with the backend {backend!r}", fix, str(config))


def is_model_file(path: str) -> bool:
    """Whether a path below a model's folder is the file, or in the folder, that a backend loads by default."""
    version, _, file = path.partition("/")
    return bool(_VERSION.match(version)) and file.partition("/")[0] in {known.file for known in KNOWN}


def default_file(config: ModelConfig, backend: str) -> str:
    """The file that a version of a model must have; ``""`` for a backend whose files are not known."""
    if config.default_model_filename:  # of which another backend may do without, as fastertransformer does
        return config.default_model_filename if backend in BACKENDS or backend.startswith("python_") else ""
    if config.platform or config.runtime:  # the same backend may have others, as PyTorch's has model.pt2 and model.py
        files = [known.file for known in KNOWN if known.platform and known.platform == config.platform]
    else:
        files = [known.file for known in KNOWN if known.name == backend]
    return files[0] if len(files) == 1 else ""


# For each file of a model its path, time of change and size.
Stamps = frozenset[tuple[str, int, int]]


def source_stamps(folder: Path, pattern: str = "*") -> Stamps:
    """What a model is loaded from, as far as it can be read now: its configuration, and what its versions hold."""
    found = set()
    with contextlib.suppress(OSError):
        sources = [source for version in version_folders(folder) for source in version.rglob(pattern)]
        for file in (folder / CONFIG_NAME, *sources):
            with contextlib.suppress(OSError):
                status = file.stat()
                if stat.S_ISREG(status.st_mode) and file.suffix != ".pyc":
                    found.add((str(file), status.st_mtime_ns, status.st_size))
    return frozenset(found)


_MOST_FOLDERS = 500  # that are searched below a folder, which may be a home folder
_DEPTH = 4  # as in a course's folder with lecture_9/example_1/triton/models
_MOST_NAMES = 5


def no_models(repository: Path, how: str = "add --repository") -> InputError:
    if inside := _inside_model(repository):
        return inside
    below = " or ".join(map(path_in_shell, itertools.islice(_repositories_below(repository), _MOST_NAMES)))
    fix = "`envpack init FOLDER` creates a working example"
    if below:
        fix = f"models are in a folder below: {how} {below}"
    elif any(repository.glob(f"*/{CONFIG_NAME}")):
        fix = "models of other backends need no environment: `envpack verify` loads them"
    return InputError("repository-empty", "no Python model in this repository", fix, str(repository))


def _inside_model(repository: Path) -> InputError | None:
    here = repository.absolute()
    for model, is_what in ((here, "a model"), (here.parent, f"in the model {here.parent.name}")):
        if looks_like_model(model):
            fix = f"give the folder that contains the model: --repository {path_in_shell(model.parent)}"
            what = f"this folder is {is_what}, not a model repository"
            return InputError("repository-empty", what, fix, str(repository))
    return None


def repository_missing(repository: Path) -> InputError:
    fix = "give the folder that holds the model folders with --repository"
    return InputError("repository-missing", "model repository not found", fix, str(repository))


def no_such_model(folder: Path) -> InputError:
    import difflib

    repository, name = folder.parent, folder.name
    if not repository.is_dir():
        return repository_missing(repository)
    models = [model.name for model in _models_in(repository)]
    if not models and (inside := _inside_model(repository)):
        return inside
    alike = difflib.get_close_matches(name, models, n=1)
    below = next((one for one in _repositories_below(repository) if is_readable_model(one / name)), None)
    if below:
        fix = f"it is in a folder below: add --repository {path_in_shell(below)}"
    elif alike:
        fix = f"did you mean {alike[0]}?"
    elif models:
        more = f" and {len(models) - _MOST_NAMES} more" if len(models) > _MOST_NAMES else ""
        fix = f"models of this repository: {', '.join(models[:_MOST_NAMES])}{more}"
    else:
        fix = "a model is a folder of the model repository; see --repository"
    return InputError("model-missing", f"model {name!r} not found", fix, str(folder))


def elsewhere(text: str, folder: Path, repository: Path) -> InputError | None:
    """The error for a path that a user gives as a model; None for a folder of the repository that may be one."""
    if "://" in text:
        fix = "write an address before the models: envpack publish ADDRESS MODEL; `envpack fetch` gets models from one"
        return InputError("other-repository", f"{text!r} is an address, and no model", fix)
    if any(_models_in(folder)) and not is_readable_model(folder):
        if real_path(folder) == real_path(repository):
            fix = "leave it out: without a name, all its models are meant"
            return InputError("other-repository", f"{text!r} is the model repository, and no model", fix)
        what = f"{text!r} is a model repository, not a model of the repository {repository}"
        return InputError("other-repository", what, f"add --repository {path_in_shell(folder)} instead")
    if real_path(folder.parent) == real_path(repository):
        return None
    if owner := next((above for above in folder.parents if is_readable_model(above)), None):
        its_place = "" if real_path(owner.parent) == real_path(repository) else path_in_shell(owner.parent)
        fix = f"name the model: {shlex.quote(owner.name)}{its_place and f' --repository {its_place}'}"
        return InputError("other-repository", f"{text!r} is in the folder of the model {owner.name}, and no model", fix)
    what = f"{text!r} is not in the model repository {repository}"
    fix = f"name a model of this repository, or add --repository {path_in_shell(folder.parent)}"
    return InputError("other-repository", what, fix)


def _repositories_below(folder: Path) -> Iterator[Path]:
    level, left = [folder], _MOST_FOLDERS
    for _ in range(_DEPTH):
        level = list(itertools.islice((inner for one in level for inner in _folders_in(one)), left))
        left -= len(level)
        yield from (one for one in level if any(_models_in(one)))


def _models_in(repository: Path) -> Iterator[Path]:
    return (folder for folder in itertools.islice(_folders_in(repository), _MOST_FOLDERS) if is_readable_model(folder))


def _folders_in(folder: Path) -> Iterator[Path]:
    try:
        found = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:  # another user's, which is no place to point to
        return iter(())
    return (Path(path) for path in found if not os.path.basename(path).startswith("."))  # noqa: PTH119


def is_readable_model(folder: Path) -> bool:
    """Whether this user sees that a folder is a model."""
    try:
        may_read = os.access(folder, os.R_OK | os.X_OK, effective_ids=True)
        return may_read and folder.is_dir() and looks_like_model(folder)
    except OSError:
        return False

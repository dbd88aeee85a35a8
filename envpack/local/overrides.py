"""What a model gives to ``load_model()`` in place of what the repository has. What is done here was read off a Triton
24.10 server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from envpack.local.model_process import ModelFailed
from envpack.repository import CONFIG_NAME, ModelConfig, parse_json_config, version_folders
from envpack.support.replacement import temp_dir

_FILE = "file:"
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Override:
    """A configuration, and maybe files, in place of those in the repository.

    Attributes:
        config: the configuration.
        folder: holds the given files, and nothing of the repository; None if there are none.
    """

    config: ModelConfig
    folder: Path | None = None


@contextlib.contextmanager
def opened_override(name: str, config: str, files: Mapping[str, bytes]) -> Iterator[Override]:
    """What ``load_model()`` is given; the files exist during the block."""
    parsed = _parsed(name, config)
    if not files:
        yield Override(parsed)
        return
    with temp_dir("files") as parent:
        folder = parent / name
        for path, content in files.items():
            file = folder / _relative(name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        (folder / CONFIG_NAME).write_text(str(parsed), encoding="utf-8")
        yield Override(parsed, folder)


def stamp_of(folder: Path) -> Stamp:
    """Names, times of change and sizes of a model's own files; without those of its environment."""
    sources = (file for version in version_folders(folder) for file in version.rglob("*"))
    found = []
    for file in (folder / CONFIG_NAME, *sources):
        if file.is_file() and file.suffix != ".pyc":
            status = file.stat()
            found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(sorted(found))


def not_found(name: str) -> ModelFailed:
    """The error for a model that a server cannot read."""
    return ModelFailed(f"failed to load '{name}', failed to poll from model repository")


def no_version(name: str) -> ModelFailed:
    """The error for a model without a version that a server may load."""
    reason = f"at least one version must be available under the version policy of model '{name}'"
    return ModelFailed(f"load failed for model '{name}': {reason}\n")


def _parsed(name: str, text: str) -> ModelConfig:
    try:
        config = parse_json_config(text)
    except ValueError as error:
        raise not_found(name) from error
    if config.name not in ("", name):
        raise not_found(name)
    config.name = name
    return config


def _relative(name: str, path: str) -> PurePosixPath:
    relative = PurePosixPath(path.removeprefix(_FILE).lstrip("/"))
    if not path.startswith(_FILE) or ".." in relative.parts or not relative.parts:
        raise not_found(name)
    return relative

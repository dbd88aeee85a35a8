"""What a model is loaded from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from envpack.local.starting import Python
from envpack.repository import CONFIG_NAME, ModelConfig, version_folders

Stamp = tuple[tuple[str, int, int], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What to load."""

    name: str
    folder: Path
    version: str
    config: ModelConfig  # the content of its config.pbtxt
    python: Python  # what it runs on
    # variables that it gets beside those of all models
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The file that holds its class."""
        return self.folder / self.version / (self.config.default_model_filename or "model.py")

    def stamp(self) -> Stamp:
        """Names, times of change and sizes of the model's own files now; without those of its environment."""
        sources = (file for version in version_folders(self.folder) for file in version.rglob("*"))
        found = []
        for file in (self.folder / CONFIG_NAME, *sources):
            if file.is_file() and file.suffix != ".pyc":
                status = file.stat()
                found.append((str(file), status.st_mtime_ns, status.st_size))
        return tuple(sorted(found))

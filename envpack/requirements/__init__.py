"""Requirements of a model, read from the files that projects already have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.requirements.model import (
        CondaPackage as CondaPackage,
        PipPackage as PipPackage,
        Requirements as Requirements,
    )
    from envpack.requirements.parsing import YamlTable as YamlTable
    from envpack.requirements.pixi_lock import (
        default_environment as default_environment,
        locked_entries as locked_entries,
    )
    from envpack.requirements.read import find_requirements as find_requirements, read_requirements as read_requirements
    from envpack.requirements.target import Target as Target, host_platform as host_platform
    from envpack.requirements.yaml_reading import parse_yaml as parse_yaml

__getattr__, __all__ = lazy_imports(__name__, __file__)

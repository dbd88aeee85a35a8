"""Requirements of a model, read from the files that projects already have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.requirements.conda_spec import parse_spec, tidy_spec, without_build
    from envpack.requirements.format import find_requirements, read_requirements, unread_above
    from envpack.requirements.formats.pixi_lock import default_environment, locked_entries
    from envpack.requirements.import_names import is_provided, package_of
    from envpack.requirements.markers import reduced_marker
    from envpack.requirements.model import CondaPackage, PipPackage, Requirements
    from envpack.requirements.target import Target, allows_minor, only_system
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)

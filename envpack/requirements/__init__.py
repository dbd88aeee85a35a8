"""Requirements of a model, read from the files that projects already have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.requirements.conda_spec import (
        parse_spec as parse_spec,
        tidy_spec as tidy_spec,
        without_build as without_build,
    )
    from envpack.requirements.discovery import find_requirements as find_requirements, unread_above as unread_above
    from envpack.requirements.format import read_requirements as read_requirements
    from envpack.requirements.formats.pixi_lock import (
        default_environment as default_environment,
        locked_entries as locked_entries,
    )
    from envpack.requirements.import_names import is_provided as is_provided, package_of as package_of
    from envpack.requirements.model import (
        CondaPackage as CondaPackage,
        PipPackage as PipPackage,
        Requirements as Requirements,
    )
    from envpack.requirements.other_platforms import only_system as only_system
    from envpack.requirements.target import (
        Target as Target,
        allows_minor as allows_minor,
        host_platform as host_platform,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)

"""Builds relocatable execution environments from locks, or from prefixes that exist already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.environment.build import (
        environment_of,
        find_environment,
        find_intact,
    )
    from envpack.environment.from_prefix import environment_from_prefix
    from envpack.environment.inventory import (
        INVENTORY,
        OWN,
        Entry,
        Package,
        inventory_text,
        parse_inventory,
        read_entry,
        read_inventory,
    )
    from envpack.environment.prefix_files import detect_prefix, holds_credentials
    from envpack.environment.relocation import check_prefix, replace_placeholder
    from envpack.environment.store import (
        Environment,
        Index,
        differing,
        environment_in_use,
        read_environment,
        read_index,
    )
    from envpack.support.placed_files import MANIFEST
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)

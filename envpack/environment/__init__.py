"""Builds relocatable execution environments from locks, or from prefixes that exist already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.environment.build import (
        build_environment as build_environment,
        environment_of as environment_of,
        find_environment as find_environment,
        find_intact as find_intact,
        find_remembered_lock as find_remembered_lock,
        remembered_lock as remembered_lock,
    )
    from envpack.environment.from_prefix import environment_from_prefix as environment_from_prefix
    from envpack.environment.inventory import (
        INVENTORY as INVENTORY,
        OWN as OWN,
        Entry as Entry,
        Package as Package,
        inventory_text as inventory_text,
        parse_inventory as parse_inventory,
        read_inventory as read_inventory,
    )
    from envpack.environment.prefix_files import holds_credentials as holds_credentials
    from envpack.environment.relocation import (
        check_prefix as check_prefix,
        replace_placeholder as replace_placeholder,
        rewrite as rewrite,
    )
    from envpack.environment.store import (
        MANIFEST as MANIFEST,
        Environment as Environment,
        EnvironmentManifest as EnvironmentManifest,
        Index as Index,
        damaged_files as damaged_files,
        differing as differing,
        environment_in_use as environment_in_use,
        read_environment as read_environment,
        read_index as read_index,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)

"""A store that machines share, in an object store or a folder: environments, stubs, locks, packages by their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.store.connection import server_variables as server_variables
    from envpack.store.environments import obtain_environment as obtain_environment
    from envpack.store.location import (
        Location as Location,
        parse_location as parse_location,
        server_address as server_address,
    )
    from envpack.store.locks import (
        find_lock as find_lock,
        locate_packages as locate_packages,
        push_lock as push_lock,
        push_packages as push_packages,
    )
    from envpack.store.maintenance import (
        PrunedStore as PrunedStore,
        StoreContent as StoreContent,
        StoredEntry as StoredEntry,
        list_store as list_store,
        prune_store as prune_store,
        verify_store as verify_store,
    )
    from envpack.store.objects import ObjectInfo as ObjectInfo, Objects as Objects
    from envpack.store.shared import SharedStore as SharedStore, open_store as open_store
    from envpack.store.stubs import fetch_stub as fetch_stub, obtain_stub as obtain_stub, push_stub as push_stub

__getattr__, __all__ = lazy_imports(__name__, __file__)

"""A store that machines share, in an object store or a folder: records by their keys, blobs, claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.store.location import (
        Location as Location,
        parse_location as parse_location,
        server_address as server_address,
        server_variables as server_variables,
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
    from envpack.store.records import MOST_BYTES as MOST_BYTES, Blob as Blob, Record as Record
    from envpack.store.shared import SharedStore as SharedStore, open_store as open_store

__getattr__, __all__ = lazy_imports(__name__, __file__)

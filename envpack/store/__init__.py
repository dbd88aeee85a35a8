"""A store that machines share, in an object store or a folder: records by their keys, blobs, claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.store.claims import EXPIRY, Claim, reserved
    from envpack.store.location import Location, is_object_path, parse_location, server_address
    from envpack.store.maintenance import PrunedStore, StoreCheck, StoreContent, list_store, prune_store, verify_store
    from envpack.store.objects import ObjectInfo, Objects, upload_requests
    from envpack.store.records import MOST_BYTES, Blob, Record
    from envpack.store.shared import SharedStore, open_store
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)

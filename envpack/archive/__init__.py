"""Turns an execution environment of the store into what a model repository holds: a folder or an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.archive.comparison import Inspection
    from envpack.archive.folder import changed_files, is_folder_of_mode, locked_destination, place_folder
    from envpack.archive.inspection import inspect_environment, is_rejected, refused_members
    from envpack.archive.layer import LayerMember, LayerUnpacker, PackedLayer, pack_layer
    from envpack.archive.manifest import (
        Format,
        archive_metadata_file,
        format_costs,
        is_cached_as,
        is_made_by_envpack,
        is_recorded_archive,
        read_metadata,
        record_in_metadata,
    )
    from envpack.archive.reading import is_archive, opened_archive, other_format
    from envpack.archive.sbom import bill_of_materials
    from envpack.archive.segments import compressor
    from envpack.archive.selection import Selection
    from envpack.archive.tarball import is_archive_of_mode, pack_archive, pack_whole, stored_archive, unpack_whole
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)

"""Turns an execution environment of the store into what a model repository holds: a folder or an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.archive.comparison import Inspection as Inspection
    from envpack.archive.folder import (
        changed_files as changed_files,
        is_folder_of_mode as is_folder_of_mode,
        locked_destination as locked_destination,
        place_folder as place_folder,
    )
    from envpack.archive.inspection import (
        inspect_environment as inspect_environment,
        is_rejected as is_rejected,
        refused_members as refused_members,
    )
    from envpack.archive.layer import (
        LayerMember as LayerMember,
        LayerUnpacker as LayerUnpacker,
        PackedLayer as PackedLayer,
        pack_layer as pack_layer,
    )
    from envpack.archive.manifest import (
        Format as Format,
        PlacedMetadata as PlacedMetadata,
        archive_metadata_file as archive_metadata_file,
        format_costs as format_costs,
        is_made_by_envpack as is_made_by_envpack,
        is_recorded_archive as is_recorded_archive,
        read_metadata as read_metadata,
        record_in_metadata as record_in_metadata,
        sha256_of as sha256_of,
    )
    from envpack.archive.reading import is_archive as is_archive, opened_archive as opened_archive
    from envpack.archive.sbom import bill_of_materials as bill_of_materials
    from envpack.archive.segments import compressor as compressor
    from envpack.archive.selection import Selection as Selection
    from envpack.archive.tarball import (
        TarFormat as TarFormat,
        is_archive_of_mode as is_archive_of_mode,
        pack_archive as pack_archive,
        pack_whole as pack_whole,
        stored_archive as stored_archive,
        unpack_whole as unpack_whole,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)

"""From an environment in the store to what a model repository holds: a folder or an archive."""

from envpack.archive.folder import place_folder
from envpack.archive.selection import Selection
from envpack.archive.tarball import ArchiveForm, PackerName, pack_archive, sidecar_of

__all__ = ["ArchiveForm", "PackerName", "Selection", "pack_archive", "place_folder", "sidecar_of"]

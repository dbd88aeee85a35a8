"""From an environment in the store to what a model repository holds: a folder or an archive."""

from envpack.archive.folder import place_folder
from envpack.archive.tarball import pack_tar_gz

__all__ = ["pack_tar_gz", "place_folder"]

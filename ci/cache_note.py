"""Print what `make clean` leaves in the cache of the user, and how to remove it.

Runs on a bare Python, since `make clean` removes the virtual environment.
"""

import os
from pathlib import Path

XDG = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
CACHE = Path(os.environ.get("ENVPACK_CACHE_DIR") or f"{XDG}/envpack").expanduser()


def size(folder: Path) -> int:
    """Bytes on the disk; files that are linked more than once count once."""
    files = (file.lstat() for file in folder.rglob("*"))
    return sum({entry.st_ino: entry.st_blocks * 512 for entry in files}.values())


if CACHE.is_dir():
    print(f"The cache stays: {CACHE} has {size(CACHE) / 1e6:.0f} MB of environments, packages and stubs.")
    print(f"Other checkouts and installations of envpack use it too. To remove it: rm -rf {CACHE}")

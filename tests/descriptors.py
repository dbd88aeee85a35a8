"""What this process holds open, without what other threads of the tests open and close meanwhile."""

import os
from pathlib import Path


def open_in(folder: Path) -> list[str]:
    """The files and folders below ``folder`` that are open, once for each descriptor."""
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    targets = (os.path.realpath(link) for link in links if link.is_symlink())  # one has read the list itself
    return sorted(target for target in targets if Path(target).is_relative_to(folder.resolve()))

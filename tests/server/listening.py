"""The ports that a server has bound itself."""

import contextlib
from pathlib import Path

_LISTENING = "0A"


def listening_ports(pid):
    """TCP ports on which a process listens."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            sockets.add(str(descriptor.readlink()))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENING and f"socket:[{inode}]" in sockets:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports

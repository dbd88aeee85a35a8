"""Measures how long a stub takes to grow its shared-memory region by one MiB, at several sizes of the region.

    python benchmarks/region_growth.py

The server waits meanwhile if it needs the region. Without a server: the peer of the native tests creates the region.
"""

from __future__ import annotations

import subprocess

from bench import native
from bench.preparation import prepare

PROGRAM = "region_growth"


def main() -> None:
    program = native.build(prepare(), PROGRAM)
    done = subprocess.run([program], stdout=subprocess.PIPE, check=True, text=True)
    for line in done.stdout.splitlines():
        size, milliseconds = line.split()
        print(f"{size:>4} MiB: {milliseconds} ms for 1 MiB more")


if __name__ == "__main__":
    main()

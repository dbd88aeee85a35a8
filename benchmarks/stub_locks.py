"""Counts how often our stub and the release's own lock a mutex for each echoed request.

    python benchmarks/stub_locks.py [--bytes 16] [--requests 1000] [--against STUB]

A preloaded library counts the calls of pthread_mutex_lock in the stub's process, those of Python included. Without a
server: the peer of the native tests sends the requests. The figure is the difference between a short and a long run,
without what the start costs. --against replaces the release's own stub by another executable.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench import native
from bench.preparation import MODELS, prepare

COUNTER = "stub_locks.so"
SHORT_RUN = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=16, help="size of a request")
    parser.add_argument("--requests", type=int, default=1000, help="how many more requests the long run has")
    parser.add_argument("--against", type=Path, metavar="STUB", help="compare with this stub, not the release's own")
    options = parser.parse_args()
    preparation = prepare()
    program, counter = native.build(preparation), native.build(preparation, COUNTER)
    found = {}
    for variant, stub in {"ours": preparation.stub, "release": options.against or native.release_stub()}.items():
        counts = []
        for requests in (SHORT_RUN, SHORT_RUN + options.requests):
            with tempfile.NamedTemporaryFile(prefix="envpack-benchmark-") as file:
                file.truncate(8)
                variables = {"LD_PRELOAD": str(counter), "ENVPACK_LOCK_COUNT": file.name}
                native.clock(
                    program,
                    preparation,
                    stub,
                    MODELS / "echo.py",
                    requests=requests,
                    size=options.bytes,
                    variables=variables,
                )
                counts.append(int.from_bytes(Path(file.name).read_bytes(), "little"))
        found[variant] = (counts[1] - counts[0]) / options.requests
        print(f"{variant:8} {found[variant]:8.1f} locks for each request of {options.bytes} bytes")
    print(f"release / ours: {found['release'] / found['ours']:.2f}")


if __name__ == "__main__":
    main()

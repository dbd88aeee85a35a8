"""Measures how long a model is away after a crash in execute().

    python benchmarks/restart.py [--repeat 20] [--start warm]

Prints the seconds from the request that crashes the model until its error has arrived, and until the next request has
been answered, with our stub; and whether the next request is answered at all with the release's own stub.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.preparation import Preparation, prepare

from envpack.server import find_server
from envpack.server.kserve import Client, RequestError
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import Tensor

CONFIG = """\
max_batch_size: 0
input [ { name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]
"""
GOALS = {"cold": 1.0, "warm": 0.3}  # seconds until the next request is answered


def ask(client: Client, model: str, first: int) -> str:
    """Returns the error, or an empty text."""
    try:
        client.infer(model, [Tensor("IN", "UINT8", (4,), (first, 2, 3, 4))])
    except RequestError as error:
        return error.message or "no response"
    return ""


def measure(preparation: Preparation, repeat: int, start: str) -> tuple[list[float], list[float], str]:
    """Seconds until the errors and until the next answers of our stub, and the next error of the release's own."""
    with tempfile.TemporaryDirectory() as folder:
        for name, stub in (("ours", preparation.stub), ("release", None)):
            preparation.place(Path(folder) / name, "crash", CONFIG, stub)
        variables = {"ENVPACK_RESTARTS": str(repeat + 1), "ENVPACK_START": start}
        runtime = ProcessRuntime(find_server(), environment=variables)
        with runtime.start(Path(folder)) as server:
            client = Client(server.url, timeout=30)
            for name in ("ours", "release"):
                client.load(name, timeout=60)
            errors, answers = [], []
            for _ in range(repeat):
                begun = time.monotonic()
                if "was killed by signal 11" not in ask(client, "ours", 1):
                    raise SystemExit("the response does not name the crash")
                errors.append(time.monotonic() - begun)
                if error := ask(client, "ours", 0):
                    raise SystemExit(f"the request after the crash was not answered: {error}")
                answers.append(time.monotonic() - begun)
            ask(client, "release", 1)
            theirs = ask(client, "release", 0)
            server.stop(force=True)
    return errors, answers, theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="number of crashes (default: %(default)s)")
    parser.add_argument("--start", choices=list(GOALS), default="cold", help="how our stub starts the model")
    given = parser.parse_args()
    errors, answers, theirs = measure(prepare(), given.repeat, given.start)
    for what, seconds in (("error", errors), ("next answer", answers)):
        print(f"{what:12} median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s")
    print(f"release's own stub, next request: {theirs or 'answered'}")
    return 0 if statistics.median(answers) <= GOALS[given.start] else 1


if __name__ == "__main__":
    sys.exit(main())

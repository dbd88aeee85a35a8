"""``python -m envpack.fleet.child TASK PRODUCT PARENT``: carries out one task in a process of its own.

Both files are pickles, which the worker that starts this program writes and reads. Each step is one line of JSON on
standard output. The program ends, with everything that it started, when its worker does.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import sys
import time
from pathlib import Path

from envpack.fleet.tasks import Product, Task
from envpack.support.errors import EnvpackError, system_error
from envpack.support.interruption import once_interruptible
from envpack.support.processes import end_with
from envpack.support.progress import NoProgress


class LineProgress(NoProgress):
    """A `Progress` that writes a line of JSON for each step and each detail."""

    def __init__(self) -> None:
        self._task, self._started = "", 0.0

    def begin(self, task: str) -> None:
        self._task, self._started = task, time.monotonic()
        self._write(begin=task)

    def detail(self, text: str) -> None:
        self._write(detail=text)

    def end(self, outcome: str) -> None:
        self._write(end=self._task, outcome=outcome, seconds=time.monotonic() - self._started)

    def _write(self, **fields: object) -> None:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def main(task_file: Path, product_file: Path, parent: int) -> None:
    end_with(parent)
    task: Task = pickle.loads(task_file.read_bytes())  # noqa: S301 - the worker wrote it
    started = time.monotonic()
    try:
        with once_interruptible():  # programs that were started end before this one does
            product = Product(**vars(task.carry_out(LineProgress())))
    except Exception as error:
        explained = error if isinstance(error, EnvpackError) else system_error(error)
        if explained is None:
            raise
        product = Product(error=explained)
    product = dataclasses.replace(product, seconds=time.monotonic() - started)
    product_file.write_bytes(pickle.dumps(product))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))

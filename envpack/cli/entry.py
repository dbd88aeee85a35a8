"""What the command imports first: it handles Ctrl-C before everything else is imported."""

from __future__ import annotations

import gc

from envpack.cli import interrupts


def main() -> None:
    interrupts.install()
    gc.set_threshold(50_000)  # most of a short command is imports, which leave no garbage
    from envpack.cli.main import main as run

    run()

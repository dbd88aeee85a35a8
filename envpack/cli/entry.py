"""What the command imports first: it handles Ctrl-C before everything else is imported."""

from __future__ import annotations

import gc
import os
import sys

from envpack.cli import interrupts


def main() -> None:
    interrupts.install()
    gc.set_threshold(50_000)  # most of a short command is imports, which leave no garbage
    try:
        from envpack.cli.main import main as run

        run()
    except Exception as error:  # not of a command: it can be of the packages that show errors
        from envpack.support.installation import wrong_package

        found = None if os.environ.get("ENVPACK_TRACEBACK") else wrong_package(error)
        if found is None:
            raise
        sys.stderr.write(f"error: {found.message} ({found.kind})\n  fix: {found.hint}\n")
        sys.exit(found.exit_code)

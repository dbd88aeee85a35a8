"""What the command imports first: it handles Ctrl-C before everything else is imported."""

from __future__ import annotations

from envpack.cli import interrupts


def main() -> None:
    """Run the command line and exit with its code."""
    interrupts.install()
    from envpack.cli.main import main as run

    run()

"""Damage that a test does to files which envpack made read-only."""

from pathlib import Path


def overwrite(file: Path, content: bytes) -> None:
    """Write into a file in place, as a user may who is not root; its hard links change too, its mode does not."""
    mode = file.stat().st_mode
    file.chmod(0o600)
    file.write_bytes(content)
    file.chmod(mode & 0o7777)

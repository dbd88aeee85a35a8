"""The text of a file that a user wrote, or that only looks like one."""

from __future__ import annotations

from pathlib import Path

from envpack.requirements.problem import Location

_LARGEST = 32 << 20


def read_text(path: Path, *, named_at: Location | None = None) -> str:
    """Read a file of UTF-8 text, with or without a byte order mark.

    Args:
        path: the file.
        named_at: the line that names the file, for the error when there is none.

    Raises:
        InputError: it is missing, no file, too large, or not UTF-8.

    """
    spot = Location(path)
    try:
        if not path.exists():
            if named_at:
                raise named_at.error(
                    f"there is no file {path.name}", hint="the path counts from the file that names it"
                )
            raise spot.error("requirements file not found", hint="create it, or correct its name in envpack.toml")
        if not path.is_file():
            raise spot.error("is no file", hint="name a file, such as requirements.txt")
        if path.stat().st_size > _LARGEST:
            raise spot.error("is larger than 32 MB", hint="no list of requirements is; name another file")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise spot.error(f"cannot be read: {reason}", hint="it must be a file of UTF-8 text") from error

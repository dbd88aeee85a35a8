"""A conda channel of this machine's interpreters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.conda.channels import ChannelPackage, add_interpreter, default_channel, read_channel
from envpack.conda.choice import interpreter_for
from envpack.conda.interpreters import interpreter_at
from envpack.settings.table import Settings
from envpack.support.progress import Progress


@dataclass(frozen=True, kw_only=True)
class AddedPython:
    """An interpreter in a channel."""

    channel: str
    package: ChannelPackage
    changed: bool


def add_python(python: str, place: Path | None, folder: Path | None, said: Settings, progress: Progress) -> AddedPython:
    """Put an interpreter into a channel."""
    if place:
        interpreter = interpreter_at(place, python)
    else:
        interpreter = interpreter_for(python, preference=said.settled().python_preference, progress=progress)
    channel = _channel(folder)
    package, changed = add_interpreter(interpreter, channel, progress=progress)
    progress.begin(f"Python {package.version} of {interpreter.prefix}")
    progress.end("added" if changed else "up to date")
    return AddedPython(channel=channel.as_uri(), package=package, changed=changed)


def list_channel(folder: Path | None) -> tuple[str, Sequence[ChannelPackage]]:
    """The address of a channel, by default envpack's own, and its packages."""
    channel = _channel(folder)
    return channel.as_uri(), read_channel(channel)


def _channel(folder: Path | None) -> Path:
    return (folder or default_channel()).absolute()

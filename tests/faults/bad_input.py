"""One mistake of a user: a repository, a command line, and what must be said about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.broken_models import CONFIG, DOUBLE

MODEL = {"m/config.pbtxt": CONFIG, "m/1/model.py": DOUBLE, "m/requirements.txt": "numpy\n"}


@dataclass(frozen=True)
class BadInput:
    """One mistake.

    Attributes:
        name: what is wrong.
        command: words of the command; ``REPOSITORY`` stands for the repository.
        code: exit code.
        kind: kind of the error.
        says: what must be read in the error or its fix.
        files: content of the repository, by path.
        folder: name of the repository's folder.
    """

    name: str
    command: str
    code: int
    kind: str
    says: tuple[str, ...]
    files: dict[str, str | bytes] = field(default_factory=lambda: dict(MODEL))
    folder: str = "repository"

    def write(self, parent: Path) -> Path:
        repository = parent / self.folder
        repository.mkdir()
        for name, content in self.files.items():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            (repository / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return repository

    def arguments(self, repository: Path) -> list[str]:
        return [word.replace("REPOSITORY", str(repository)) for word in self.command.split()]


def usage(name: str, command: str, *says: str) -> BadInput:
    """A command line that the program does not take."""
    return BadInput(name, command, 2, "usage", says)

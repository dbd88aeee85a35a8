"""An entry of the catalogue, and the changes that it can make to a good repository."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from envpack.verification.verdict import Step

KEYWORD = "$$TRITON_MODEL_DIRECTORY"
STUB = "triton_python_backend_stub"
ENVIRONMENT = "python3.10"
Runtime = Literal["process", "docker"]
ANY = "…"  # stands for text that differs between machines


@dataclass(frozen=True)
class Broken:
    """One broken repository.

    Attributes:
        id: its name, which is that of the broken model as well.
        what: what is broken, one sentence.
        change: breaks a good repository; what it returns is where the repository is now, if that has changed.
        kind: kind of the finding, failure or error.
        reason: required text of the reason, with `ANY` between its parts.
        fix: what must be advised, alike.
        found_by: the command that finds it.
        runtime: where ``verify`` runs the server.
        options: further options of the command.
        host: words before the command, which make the machine what the entry needs.
        variables: environment variables of the command.
        alone: whether ``verify`` gets a server for this entry alone, not one for all entries that are run alike.
        step: the step of the command that finds it, see `found_in`.
        also: kinds of the further reports, each of which is right: a consequence, or a second fault of the same change.
    """

    id: str
    what: str
    change: Callable[[Site], Path | None]
    kind: str
    reason: str
    fix: str
    found_by: Literal["inspect", "verify"] = "inspect"
    runtime: Runtime = "process"
    options: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    alone: bool = False
    step: Step | None = None
    also: tuple[str, ...] = ()

    @property
    def found_in(self) -> Step:
        """What the command does when it finds the fault; ``verify`` finds most of them when it loads the model."""
        return self.step or ("files" if self.found_by == "inspect" else "load")

    @property
    def own_server(self) -> bool:
        """Whether ``verify`` starts a server that serves few others, which takes seconds."""
        return self.found_by == "verify" and bool(self.options or self.host or self.alone)

    @property
    def tools(self) -> tuple[str, ...]:
        """Programs that are not on every machine."""
        return (*self.host[:1], *(["zstd"] if "zstd" in self.id else []))

    @property
    def model(self) -> str:
        """Name of the broken model."""
        return self.id.replace("-", "_")


@dataclass(frozen=True)
class Kit:
    """The parts of entries.

    Attributes:
        model: a good model, its environment outside of it.
        environment: its environment, a folder.
        numpy2: another environment, with NumPy 2.
        upstream: the server's own stubs, by Python.
        one_release: builds a stub that serves one release only.
    """

    model: Path
    environment: Path
    numpy2: Path
    upstream: dict[str, Path]
    one_release: Callable[[str], Path] = field(repr=False)


@dataclass(frozen=True)
class Site:
    """One good repository, to be broken.

    Attributes:
        repository: folder of the repository.
        model: folder of the model that shall be broken.
        kit: what else there is.
    """

    repository: Path
    model: Path
    kit: Kit

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the model, never through a hard link."""
        file = self.model / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def code(self, text: str) -> None:
        """Replace the model's code."""
        self.write("1/model.py", text)

    def configure(self, old: str, new: str) -> None:
        """Replace a part of the model's configuration."""
        text = (self.model / "config.pbtxt").read_text()
        assert old in text, text
        self.write("config.pbtxt", text.replace(old, new))

    def append(self, text: str) -> None:
        """Add to the model's configuration."""
        self.write("config.pbtxt", (self.model / "config.pbtxt").read_text() + text)

    def own(self, name: str) -> Path:
        """A file of the model that no other shares, so that it can be changed, not by root alone."""
        file = self.model / name
        content, mode = file.read_bytes(), file.stat().st_mode
        file.unlink()
        file.write_bytes(content)
        file.chmod(mode | stat.S_IWUSR)
        return file

    def own_environment(self, environment: Path | None = None) -> Path:
        """An environment in the model's folder, which the model names; its files are hard links, see `own`."""
        folder = self.model / ENVIRONMENT
        shutil.copytree(environment or self.kit.environment, folder, copy_function=os.link, symlinks=True)
        self.name_environment(f"{KEYWORD}/{ENVIRONMENT}")
        return folder

    def name_environment(self, place: str) -> None:
        """Make the model name another environment."""
        self.configure(f'"{self.kit.environment}"', f'"{place}"')

    def upstream_stub(self, python: str) -> None:
        """Put the server's own stub in place of ours."""
        (self.model / STUB).unlink()
        shutil.copy(self.kit.upstream[python], self.model / STUB)
        (self.model / STUB).chmod(0o755)

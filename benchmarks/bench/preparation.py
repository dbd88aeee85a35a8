"""Prepares an environment, our stub, and models that run with it or with the release's own stub."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.repository.config_editor import set_execution_environment
from envpack.requirements.model import Requirements
from envpack.stub.build import build_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import target_from_prefix
from envpack.support.placed_files import STUB_NAME
from tests.built import build_environment, copied_environment

MODELS = Path(__file__).parent / "models"
PYTHON = "3.10"  # the version that the release's own stub embeds
NUMPY = "numpy==1.26.4"  # the release's own stub returns empty tensors with NumPy 2


@dataclass(frozen=True)
class Preparation:
    """An environment and a stub for it.

    Attributes:
        environment: folder of the execution environment.
        stub: our stub executable.

    """

    environment: Path
    stub: Path

    def place(self, folder: Path, code: str, config: str, stub: Path | None) -> None:
        """Create a model.

        Args:
            folder: folder of the model.
            code: name of a file in ``bench/models``.
            config: content of config.pbtxt, except backend and environment.
            stub: the stub to place; without one the server starts its own.

        """
        (folder / "1").mkdir(parents=True)
        shutil.copy(MODELS / f"{code}.py", folder / "1/model.py")
        if stub:
            shutil.copy(stub, folder / STUB_NAME)
        file = folder / "config.pbtxt"
        text = f'backend: "python"\n{config}\n'
        file.write_text(set_execution_environment(text, str(self.environment), file))


def prepare(packages: Sequence[str] = (), prefix: Path | None = None) -> Preparation:
    """Build the environment and the stub, or reuse those in envpack's cache.

    Args:
        packages: pip requirements, in addition to NumPy.
        prefix: an existing environment with them, for the Python of the release's own stub, to take over instead.

    """
    if prefix:
        environment = copied_environment(prefix, python=PYTHON)
    else:
        requirements = Requirements(conda=(), pip=(NUMPY, *packages), python=PYTHON, source=None)
        environment = build_environment(requirements, python=PYTHON)
    stub = build_stub(Cell(target_from_prefix(environment.prefix)))
    return Preparation(environment.prefix, stub.path)

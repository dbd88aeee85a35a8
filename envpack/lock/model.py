"""A lock: every package of an environment, each by its hash, for one target."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from envpack.requirements import CondaPackage, PipPackage, Target

RECIPE = 2  # counts the changes of what is made from a lock


@dataclass(frozen=True)
class Lock:
    """Every package of an environment.

    Attributes:
        target: what they were chosen for.
        channels: where conda packages were looked for, without secrets.
        conda: conda packages, sorted by name.
        pip: wheels, sorted by name; they are installed after the conda packages.
        requirements_digest: digest of the requirements that it was resolved from, see the function of that name.

    """

    target: Target
    channels: tuple[str, ...]
    conda: tuple[CondaPackage, ...]
    pip: tuple[PipPackage, ...]
    requirements_digest: str = ""

    @property
    def key(self) -> str:
        """Names what is made from it. Where packages are does not count, what they are does."""
        told = {
            "recipe": RECIPE,
            "target": dataclasses.asdict(self.target),
            "conda": sorted([one.name, one.version, one.build, one.sha256 or one.md5] for one in self.conda),
            "pip": sorted([one.name, one.version, one.sha256] for one in self.pip),
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]

    def environment_key(self, *, strip: bool) -> str:
        """Names the environment that is made from it, in the store."""
        return f"{self.key}-stripped" if strip else self.key

"""conda-pack's library, for users who need its archives. docs/explanation/archives.md lists how they differ."""

from __future__ import annotations

import warnings
from pathlib import Path

from envpack.support.errors import EnvironmentBuildError


def conda_pack_version() -> str:
    """The version that is installed."""
    import importlib.metadata

    return importlib.metadata.version("conda-pack")


def pack_with_conda_pack(prefix: Path, file: Path, form: str) -> None:
    """Let conda-pack write an archive of a conda prefix.

    Raises:
        EnvironmentBuildError: kind ``conda-pack-failed``: the prefix is none that conda-pack accepts.
        OSError: reading or writing failed.

    """
    from conda_pack.core import CondaEnv, CondaPackException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that our records name no package cache, which is on purpose
            found = CondaEnv.from_prefix(str(prefix), on_missing_cache="ignore", ignore_missing_files=True)
            found.pack(output=str(file), format=form, force=True)
    except CondaPackException as error:
        raise EnvironmentBuildError(
            f"conda-pack refuses the environment: {error}",
            kind="conda-pack-failed",
            where=str(prefix),
            hint="leave --packer out: envpack's own packer takes it",
        ) from error

"""envpack: from what a model requires to a Triton server that demonstrably serves it.

Everything that the command line does is here as well:

>>> from envpack import BuildOptions, Choice, build_model, open_project, verify
>>> project = open_project(Path("repository"))            # doctest: +SKIP
>>> build_model(project, "model_a", BuildOptions(Choice(python="3.10")))  # doctest: +SKIP
>>> verify(project.repository, ["model_a"]).ok            # doctest: +SKIP
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.first_use import imported_at_first_use

__version__ = "0.1.0"

if TYPE_CHECKING:
    from envpack.building import BuildOptions, BuiltModel, build_model
    from envpack.cache import list_cache, prune_cache
    from envpack.deployment import Deployment, assemble, build_image, plan_deployment
    from envpack.doctor import examine
    from envpack.errors import EnvpackError
    from envpack.inspection import inspect_repository
    from envpack.locking import Choice, LockedModel, lock_model
    from envpack.project import Project, open_project
    from envpack.releases import Release, find_release
    from envpack.stub import Stub, build_stub, find_pythons, inspect_stub, plan_matrix
    from envpack.stubs import build_matrix
    from envpack.verification import Verdict, VerifyOptions, verify

# Where each public name lives. Importing all of them takes longer than `--help`.
_HOMES = {
    "BuildOptions": "envpack.building",
    "BuiltModel": "envpack.building",
    "Choice": "envpack.locking",
    "Deployment": "envpack.deployment",
    "EnvpackError": "envpack.errors",
    "LockedModel": "envpack.locking",
    "Project": "envpack.project",
    "Release": "envpack.releases",
    "Stub": "envpack.stub",
    "Verdict": "envpack.verification",
    "VerifyOptions": "envpack.verification",
    "assemble": "envpack.deployment",
    "build_image": "envpack.deployment",
    "build_matrix": "envpack.stubs",
    "build_model": "envpack.building",
    "build_stub": "envpack.stub",
    "examine": "envpack.doctor",
    "find_pythons": "envpack.stub",
    "find_release": "envpack.releases",
    "inspect_repository": "envpack.inspection",
    "inspect_stub": "envpack.stub",
    "list_cache": "envpack.cache",
    "lock_model": "envpack.locking",
    "open_project": "envpack.project",
    "plan_deployment": "envpack.deployment",
    "plan_matrix": "envpack.stub",
    "prune_cache": "envpack.cache",
    "verify": "envpack.verification",
}

__all__ = [
    "BuildOptions",
    "BuiltModel",
    "Choice",
    "Deployment",
    "EnvpackError",
    "LockedModel",
    "Project",
    "Release",
    "Stub",
    "Verdict",
    "VerifyOptions",
    "assemble",
    "build_image",
    "build_matrix",
    "build_model",
    "build_stub",
    "examine",
    "find_pythons",
    "find_release",
    "inspect_repository",
    "inspect_stub",
    "list_cache",
    "lock_model",
    "open_project",
    "plan_deployment",
    "plan_matrix",
    "prune_cache",
    "verify",
]

__getattr__ = imported_at_first_use(__name__, _HOMES)

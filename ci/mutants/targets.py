"""The code into which `python.py` puts faults, in two groups with a sample each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

# What reads and writes files of others, decides verdicts, or deletes.
_CORE = (
    "envpack/archive",
    "envpack/lock",
    *(f"envpack/inspection/{name}.py" for name in ("facts", "preflight")),
    *(f"envpack/repository/{name}.py" for name in ("config", "config_editor", "model", "placement")),
    "envpack/verification/explanations.py",
    "envpack/verification/loading.py",
    "envpack/verification/fault_catalogue.py",
    "envpack/verification/package_faults.py",
    "envpack/verification/judge.py",
    "envpack/verification/versions.py",
    "envpack/verification/samples.py",
    "envpack/verification/checks",
    "envpack/fleet/kubernetes_build.py",
    "envpack/fleet/kubernetes_verify.py",
    "envpack/fleet/pods.py",
    "envpack/server/container.py",
    "envpack/server/made_objects.py",
    "envpack/server/proc.py",
    "envpack/server/stale_runs.py",
    "envpack/server/supervisor.py",
    "envpack/server/supervisor_child.py",
    "envpack/server/tensors.py",
    "envpack/environment/store.py",
    "envpack/environment/relocation.py",
    "envpack/support/entry_locks.py",
    "envpack/support/replacement.py",
    "envpack/support/folders.py",
    "envpack/stub/recipe.py",
    "envpack/workflow/cache.py",
    "envpack/workflow/placement.py",
)
# Of these files, the functions that delete or that decide what is deleted.
DELETING = {
    "envpack/environment/build.py": ("build_once",),
    "envpack/environment/prefix_copy.py": ("copy_files",),
    "envpack/server/process.py": ("keep", "stop", "_end", "start", "_start_on_free_port", "_wait_until_live"),
    "envpack/workflow/stubs.py": ("_placed", "_folder"),
}
# What connects envpack with stores, registries, clusters, and the model's author; except what is in the core.
_OUTER = (
    "envpack/store",
    "envpack/deployment",
    "envpack/fleet",
    "envpack/local",
    "envpack/development",
    "envpack/testing",
    "envpack/workflow",
)
# Loaded into the model's process, under any supported Python; no unit test runs there.
_IN_MODEL_PROCESS = ("envpack/local/python", "envpack/development/python")
GROUPS = ("core", "outer")


def target_files(root: Path, group: str) -> list[Path]:
    """The files of a group. A file of `DELETING` can be in both, with different functions."""
    core = python_files(root / target for target in (*_CORE, *DELETING))
    if group == "core":
        return core
    whole = {*core, *python_files(root / target for target in _IN_MODEL_PROCESS)} - {root / file for file in DELETING}
    return [file for file in python_files(root / target for target in _OUTER) if file not in whole]


def is_target(group: str, file: str, function: str) -> bool:
    """Whether a function in a file of a group belongs to the group."""
    return file not in DELETING or (function in DELETING[file]) == (group == "core")


def python_files(roots: Iterable[Path]) -> list[Path]:
    """Python files, and those in folders."""
    return sorted({file for root in roots for file in (root.rglob("*.py") if root.is_dir() else [root])})

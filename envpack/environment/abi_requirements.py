"""Determines what the files of an execution environment require of a system, and caches the result per package.

Parsing a library takes longer than reading it, and most packages are part of several environments.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from envpack.environment.inventory import Entry
from envpack.environment.store import Package
from envpack.support.bounded_reading import read_json
from envpack.support.elf import AbiRequirements, RequiredVersion, is_elf, newer_version, required_abi
from envpack.support.entry_locks import mark_used
from envpack.support.replacement import replaced_file

_CUDA = re.compile(
    r"(?:^|/)(lib(?:cudart|cublas|cublasLt|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse|cupti|nccl|nvinfer\w*|nvrtc\w*"
    r"|nvToolsExt|nvJitLink)\.so(?:\.[\d.]+)?)$"
)
# Libraries that the server or its image also contains. The stub finds those in the environment's `lib` first.
_SYSTEM = re.compile(r"^lib/(lib(?:crypto|ssl|curl|gcc_s|stdc\+\+|tinfo|z|cudart|nccl)\.so(?:\.[\d.]+)?)$")
_RECIPE = 1  # raised when the way of reading files changes


def environment_needs(prefix: Path, entries: Iterable[Entry], cache: Path) -> AbiRequirements:
    """The newest symbol versions that any file of an environment requires."""
    glibc = glibcxx = RequiredVersion()
    for _, package in itertools.groupby(
        sorted(entries, key=lambda entry: entry.package), key=lambda entry: entry.package
    ):
        needs = _package_needs(prefix, list(package), cache)
        glibc, glibcxx = newer_version(glibc, needs.glibc), newer_version(glibcxx, needs.glibcxx)
    return AbiRequirements(glibc, glibcxx)


def _package_needs(prefix: Path, entries: Sequence[Entry], cache: Path) -> AbiRequirements:
    key_parts = [_RECIPE, [[entry.path, entry.sha256] for entry in entries]]
    path = cache / f"{hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()[:32]}.json"
    requirements = _read(path, prefix)
    if requirements is not None:
        mark_used(path)
    else:
        files = (prefix / entry.path for entry in entries if entry.kind in ("file", "program"))
        requirements = required_abi(file for file in files if is_elf(file))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(path, durable=False) as partial:
            partial.write_text(
                json.dumps([_written(need, prefix) for need in (requirements.glibc, requirements.glibcxx)])
            )
    return requirements


def _written(need: RequiredVersion, prefix: Path) -> list[str]:
    return [need.version, need.file.relative_to(prefix).as_posix() if need.file else ""]


def _read(path: Path, prefix: Path) -> AbiRequirements | None:
    try:
        versions = read_json(path)
        glibc, glibcxx = (RequiredVersion(str(version), prefix / file if file else None) for version, file in versions)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return AbiRequirements(glibc, glibcxx)


def numpy_abi(packages: Iterable[Package]) -> str:
    """The major version of NumPy, which identifies its binary interface; ``""`` without NumPy."""
    return next((package.version.partition(".")[0] for package in packages if package.name == "numpy"), "")


def cuda_libraries(entries: Sequence[Entry]) -> list[str]:
    """File names of the CUDA libraries in an environment, in any folder."""
    return sorted({match[1] for entry in entries if (match := _CUDA.search(entry.path))})


def hidden_libraries(entries: Sequence[Entry]) -> list[str]:
    """File names of system libraries that an environment has in ``lib``, where the loader looks first."""
    return sorted({match[1] for entry in entries if (match := _SYSTEM.search(entry.path))})

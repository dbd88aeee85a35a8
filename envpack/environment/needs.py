"""What an environment needs of a system: asked of the files of each package once, and kept.

Looking into every library takes longer than reading them all, and most packages come again in the next environment.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from envpack.atomic import replaced_file
from envpack.environment.elf import Need, SystemNeeds, is_elf, newer, system_needs
from envpack.environment.inventory import Entry

_RECIPE = 1  # counts the changes of how files are asked


def environment_needs(prefix: Path, entries: Iterable[Entry], kept: Path) -> SystemNeeds:
    """The newest symbol versions that any file of an environment needs.

    Args:
        prefix: root of the environment.
        entries: its files.
        kept: folder where the answers are kept for the next environment; a damaged one is asked for again.

    Raises:
        OSError: a file cannot be read, or an answer cannot be kept.

    """
    glibc = glibcxx = Need()
    for _, package in itertools.groupby(sorted(entries, key=lambda one: one.package), key=lambda one: one.package):
        needs = _package_needs(prefix, list(package), kept)
        glibc, glibcxx = newer(glibc, needs.glibc), newer(glibcxx, needs.glibcxx)
    return SystemNeeds(glibc, glibcxx)


def _package_needs(prefix: Path, entries: Sequence[Entry], kept: Path) -> SystemNeeds:
    told = [_RECIPE, [[entry.path, entry.sha256] for entry in entries]]
    place = kept / f"{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]}.json"
    known = _read(place, prefix)
    if known is None:
        files = (prefix / entry.path for entry in entries if entry.kind in ("file", "program"))
        known = system_needs(file for file in files if is_elf(file))
        place.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(place, durable=False) as partial:
            partial.write_text(json.dumps([_written(need, prefix) for need in (known.glibc, known.glibcxx)]))
    return known


def _written(need: Need, prefix: Path) -> list[str]:
    return [need.version, need.file.relative_to(prefix).as_posix() if need.file else ""]


def _read(place: Path, prefix: Path) -> SystemNeeds | None:
    try:
        told = json.loads(place.read_bytes())
        glibc, glibcxx = (Need(str(version), prefix / file if file else None) for version, file in told)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return SystemNeeds(glibc, glibcxx)

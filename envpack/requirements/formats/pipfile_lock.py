"""``Pipfile.lock`` of pipenv: the packages of the section ``default``, each with its version and hashes."""

from __future__ import annotations

import re
from typing import Any

from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pip_file import PipReader, index_options
from envpack.requirements.model import Requirements
from envpack.support.bounded_reading import parse_json
from envpack.support.tables import Location, quote

_HINT = "write it again: pipenv lock"


@reads("Pipfile.lock", order=15)
def read_pipfile_lock(source: Source) -> Requirements:
    """`Pipfile.lock` (pipenv)

    Read: versions and hashes of the section `default`, `sources`, `python_version`

    Refused: version control. Left out: `develop`
    """
    location, text, path = source.location, source.text, source.path
    try:
        content = parse_json(text)
        packages, meta = dict(content["default"]), dict(content["_meta"])
        # pipenv replaces $NAME, too.
        sources = [re.sub(r"\$([A-Z0-9_]+)", r"${\1}", str(source["url"])) for source in meta.get("sources", [])]
        python = str(dict(meta.get("requires") or {}).get("python_version", ""))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise location.error("not a lock of pipenv", hint=_HINT) from error
    reader = PipReader()
    for option in index_options(sources):
        reader.read_lines(option, source.place('"sources"'))
    start = text.find('"default"')
    for name, entry in packages.items():
        place = location.at(text.count("\n", 0, text.find(f'"{name}"', start)) + 1)
        reader.read_lines(_line(name, entry, place), place)
    reader.places["python"] = str(source.place('"python_version"'))
    return reader.requirements(
        python=python, python_range=f"=={python}.*" if python else "", source=path, files=(path, *reader.files)
    )


def _line(name: str, entry: Any, location: Location) -> str:
    """A package as a line of a requirements file."""
    if not isinstance(entry, dict):
        raise location.error(f"{quote(name)} has no version", hint=_HINT)
    extras = f"[{','.join(map(str, entry['extras']))}]" if entry.get("extras") else ""
    marker = f" ; {entry['markers']}" if entry.get("markers") else ""
    hashes = "".join(f" --hash={digest}" for digest in entry.get("hashes", []))
    place = entry.get("file") or entry.get("path")
    if place:
        return f"{name}{extras} @ {place}{marker}"
    if "git" in entry:
        return f"{name} @ git+{entry['git']}"
    version = str(entry.get("version", ""))
    if not version.startswith("=="):
        raise location.error(f"{quote(name)} has no version", hint=_HINT)
    return f"{name}{extras}{version}{marker}{hashes}"

"""``Pipfile.lock`` of pipenv: the packages of the section ``default``, each with its version and hashes."""

from __future__ import annotations

import re
from dataclasses import replace

from packaging.utils import canonicalize_name

from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pip_file import PipReader, index_options
from envpack.requirements.location import read_text
from envpack.requirements.model import Requirements
from envpack.requirements.outdated_locks import refuse_unlocked
from envpack.requirements.pip_requirement import reduced_marker
from envpack.requirements.target import Target, single_minor
from envpack.support.bounded_reading import parse_json
from envpack.support.tables import Location, Table, Value, quote, table_of

_HINT = "write the lock again: pipenv lock"
_KEYS = r'^[ \t]*"([^"\n]+)"[ \t]*:'
_VERSION = re.compile(r"(?P<major>\d{1,3})(?:\.(?P<minor>\d{1,3})(?:\.\w+)?)?")


@reads("Pipfile.lock", order=15)
def read_pipfile_lock(source: Source) -> Requirements:
    """`Pipfile.lock` (pipenv)

    Read: versions and hashes of the section `default`, `sources`, `python_version`, `python_full_version`

    Refused: version control. Left out: `develop`
    """
    location = source.location
    try:
        content = parse_json(source.text)
    except ValueError as error:
        raise location.error("not a lock of pipenv", hint=_HINT) from error
    if not isinstance(content, dict) or not {"default", "_meta"} <= set(content):
        raise location.error("not a lock of pipenv", hint=_HINT)
    table = table_of(content, location)
    meta, packages = table.table("_meta"), table.table("default")
    _refuse_outdated(source, packages)
    reader = PipReader()
    # pipenv replaces $NAME, too.
    sources = [
        (table.text("name", ""), re.sub(r"\$([A-Z0-9_]+)", r"${\1}", table.text("url")))
        for table in meta.tables("sources")
    ]
    first, addresses = [address for _, address in sources][:1], dict(sources)
    for option in index_options(first):
        reader.read_lines(option, source.place('"sources"'))
    places = source.places(_KEYS, start=source.text.find('"default"'))
    of_python = source.place('"python_')
    pythons = _python_range(meta.table("requires"), of_python)
    python = source.target.python or (single_minor(pythons) if pythons else "")
    if not python and source.choose:
        python = source.choose(reader.requirements(source.path, pythons, of_python))
    target = replace(source.target, python=python)
    for name in packages.values:
        place = places.get(name, location)
        if not isinstance(content["default"][name], dict):
            raise place.error(f"{quote(name)} has no version", hint=_HINT)
        entry = table_of(content["default"][name], place)
        reader.read_lines(_line(name, entry, target), place)
        index = entry.text("index", "")
        if index and addresses.get(index, "") not in ("", *first):
            reader.take_from(addresses[index], name, place)
    return reader.requirements(source.path, pythons, of_python)


def _refuse_outdated(source: Source, packages: Table) -> None:
    """Refuse a lock that lacks a package of the ``Pipfile`` beside it, or has another version of it."""
    path = source.path.with_name("Pipfile")
    if not path.is_file():
        return
    pipfile = replace(source, path=path, text=read_text(path))
    named = pipfile.toml.get("packages", {})
    locked = {canonicalize_name(name): _locked_versions(entry) for name, (entry, _) in packages.values.items()}
    for key, entry in named.items() if isinstance(named, dict) else ():
        name = key.partition("[")[0]  # a name may have extras behind it
        wanted = entry.get("version", "") if isinstance(entry, dict) else entry
        specifier = wanted if isinstance(wanted, str) and wanted != "*" else ""
        refuse_unlocked(name, specifier, locked, pipfile.place(key), source.location, "pipenv lock")


def _locked_versions(entry: Value) -> tuple[str, ...]:
    version = entry.text("version", "") if isinstance(entry, Table) else ""
    return (version.removeprefix("=="),) if version.startswith("==") else ()


def _python_range(requires: Table, location: Location) -> str:
    """The range of the Python that a lock is for; only its minor version counts."""
    text = requires.text("python_full_version", "") or requires.text("python_version", "")
    if text in ("", "*"):
        return ""
    version = _VERSION.fullmatch(text)
    if not version:
        hint = f"correct it in the Pipfile, like 3.12, and {_HINT}"
        raise location.error(f"{quote(text)} is not a version of Python", hint=hint)
    return f"=={'.'.join(filter(None, version.groups()))}.*"


def _line(name: str, entry: Table, target: Target) -> str:
    extras = ",".join(text for text, _ in entry.texts("extras"))
    extras = f"[{extras}]" if extras else ""
    text = entry.text("markers", "")
    try:
        marker = reduced_marker(text, target)
    except ValueError:  # which the reader reports
        marker = text
    hashes = "".join(f" --hash={digest}" for digest, _ in entry.texts("hashes"))
    if place := entry.text("file", "") or entry.text("path", ""):  # a folder cannot have a marker
        return "" if marker is None else f"{name}{extras} @ {place}{marker and f' ; {marker}'}{hashes}"
    for tool in ("git", "hg", "svn", "bzr"):
        if address := entry.text(tool, ""):
            return f"{name} @ {tool}+{address.removeprefix(f'{tool}+')}"
    version = entry.text("version", "")
    if version == "*":  # which pipenv writes if the system or Python that it runs on cannot have the package
        if marker is None:
            return ""
        hint = f"remove {name} from the Pipfile if only another system or Python has it, and {_HINT}"
        raise entry.location.error(f"{quote(name)} has no version", hint=hint)
    if not version.startswith("=="):
        raise entry.location.error(f"{quote(name)} has no version", hint=_HINT)
    return f"{name}{extras}{version}{text and f' ; {text}'}{hashes}"

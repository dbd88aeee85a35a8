"""``setup.cfg`` of setuptools: ``install_requires`` and ``python_requires``."""

from __future__ import annotations

import configparser
import re

from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pip_file import PipReader
from envpack.requirements.model import Requirements
from envpack.requirements.target import single_minor
from envpack.support.tables import HINT

_SECTION = "options"


@reads("setup.cfg", order=41, holds=lambda _, text: bool(re.search(r"^install_requires\b", text, re.MULTILINE)))
def read_setup_cfg(source: Source) -> Requirements:
    """`setup.cfg` (setuptools)

    Read: `install_requires`, `python_requires`

    Refused: requirements in another file, `file:`
    """
    location, path, text = source.location, source.path, source.text
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        line = getattr(error, "lineno", None) or 0
        raise location.at(line).error("not a configuration file of setuptools", hint=HINT) from error
    place = source.place("install_requires")
    requires = parser.get(_SECTION, "install_requires", fallback="").strip()
    if requires.startswith("file:"):
        name = requires.removeprefix("file:").strip()
        raise place.error(f"the requirements are in {name}", hint=f"name {name} in envpack.toml, as requirements")
    reader = PipReader()
    reader.read_lines(requires, place.at(place.line + 1 if "\n" in requires else place.line))
    allowed = parser.get(_SECTION, "python_requires", fallback="").strip()
    where = source.place("python_requires")
    try:
        minor = single_minor(allowed) if allowed else ""
    except ValueError as error:
        raise where.error("python_requires is not a range of versions", hint='write it like ">=3.10"') from error
    reader.places["python"] = str(where)
    return reader.requirements(python=minor, python_range=allowed, source=path, files=(path, *reader.files))

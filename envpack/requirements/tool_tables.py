"""The tables of ``[tool]`` in a ``pyproject.toml`` that decide where packages come from, and which versions of them."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from envpack.requirements.format import Source
from envpack.requirements.formats.pip_file import index_options
from envpack.requirements.location import is_url, read_text
from envpack.support.errors import InputError
from envpack.support.folders import real_path
from envpack.support.tables import Location, parse_toml, quote

EXPORT_COMMAND = "uv export --no-emit-project --format pylock.toml --output-file pylock.toml"
_PDM_COMMAND = "pdm lock, then pdm export --format pylock --output pylock.toml"
_COMPILE_COMMAND = "uv pip compile pyproject.toml --output-file requirements.txt, and name that file"
_LOCKED_BY_UV = (
    *("override-dependencies", "exclude-dependencies", "dependency-metadata", "prerelease-package"),
    *("no-sources", "no-sources-package", "conflicts", "workspace"),
)
# Settings of tools that decide which packages are installed, each with the command that writes a lock that is read.
_LOCKED_BY = (
    *((("uv", key), "uv lock") for key in _LOCKED_BY_UV),
    (("poetry", "source"), "poetry lock"),
    (("pixi", "dependencies"), "pixi lock"),
    (("pixi", "pypi-dependencies"), "pixi lock"),
    (("pixi", "feature"), "pixi lock"),
    (("pixi", "target"), "pixi lock"),
    (("pdm", "resolution"), _PDM_COMMAND),
    (("pdm", "overrides"), _PDM_COMMAND),
    (("conda-lock", "dependencies"), "conda-lock --file pyproject.toml, and name its conda-lock.yml in envpack.toml"),
    (("rye", "sources"), "rye lock, and name its requirements.lock in envpack.toml"),
)
# Settings of uv with the same name as an option of its resolver, and their values.
_CHOICES = {
    "resolution": ("highest", "lowest", "lowest-direct"),
    "prerelease": ("disallow", "allow", "if-necessary", "explicit", "if-necessary-or-explicit"),
    "index-strategy": ("first-index", "unsafe-first-match", "unsafe-best-match"),
}
_OF_PACKAGES = {
    *("index", "index-url", "extra-index-url", "find-links", "no-index", "exclude-newer", "exclude-newer-package"),
    *("constraint-dependencies", *_LOCKED_BY_UV, *_CHOICES),
} - {"workspace"}
_CONDITIONS = {"marker", "extra", "group", "subdirectory"}  # of sources
_DATE = re.compile(r"\w[\w:+. -]{0,63}")  # a date, a time or a duration
_DATE_HINT = 'write it like "2024-01-31"'


def _matches(path: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    return fnmatch.fnmatchcase(path, pattern) and ("**" in pattern or path.count("/") == pattern.count("/"))


class ToolTables:
    """The settings of uv, PDM, Poetry and pixi in a ``pyproject.toml``."""

    def __init__(self, source: Source) -> None:
        tools = source.toml.get("tool", {})
        self._tools: Mapping[str, Any] = tools if isinstance(tools, dict) else {}
        self._source = source

    def refuse_unread(self) -> None:
        """Refuse settings that decide which packages are installed and that only their tool applies."""
        for (tool, key), command in _LOCKED_BY:
            table = self._tools.get(tool)
            if isinstance(table, dict) and table.get(key):
                raise self._unread(f"[tool.{tool}] {key}", command, key)
        self._refuse_workspace()
        self._refuse_settings_elsewhere()
        of_uv_pip = self._named("uv").get("pip")
        if isinstance(of_uv_pip, dict) and (keys := _OF_PACKAGES.intersection(of_uv_pip)):
            what = f"[tool.uv.pip] {min(keys)} is for the commands of uv pip alone, and is not read"
            raise self._error(what, "write it into [tool.uv]", "[tool.uv.pip")
        flit = self._named("flit").get("metadata", {})
        if isinstance(flit, dict) and flit.get("requires"):
            raise self._unread("[tool.flit.metadata] requires", _COMPILE_COMMAND, "[tool.flit.metadata")
        if set(self._poetry_dependencies()) - {"python"}:
            raise self._unread("[tool.poetry.dependencies]", "poetry lock", "[tool.poetry.dependencies")

    def _refuse_settings_elsewhere(self) -> None:
        """Refuse a ``uv.toml``, which uv reads in place of ``[tool.uv]``; without both, it reads those above."""
        own, *above = self._source.path.absolute().parents
        for folder in (own, *(() if "uv" in self._tools else above)):
            file, project = folder / "uv.toml", None if folder == own else self._project_in(folder)
            if file.is_file():
                decides = _OF_PACKAGES.intersection([*parse_toml(read_text(file), Location(file)), *self._named("uv")])
            elif project and "uv" in project._tools:  # noqa: SLF001 - of the same class
                file, decides = folder / "pyproject.toml", {*project.options(), *project.choices()}
            else:
                continue
            if decides:
                what = "decides which packages uv installs for the project, and is not read"
                fix = "run uv lock in the project: envpack reads the uv.lock that it writes"
                raise Location(file).error(what, hint=fix)
            return

    def _project_in(self, folder: Path) -> ToolTables | None:
        file = folder / "pyproject.toml"
        return ToolTables(replace(self._source, path=file, text=read_text(file))) if file.is_file() else None

    def _refuse_workspace(self) -> None:
        """Refuse a member of a workspace whose root decides about the packages of all members."""
        for folder in self._source.path.absolute().parents[1:]:
            root = self._project_in(folder)
            if root and root._has_member(self._source.path.parent):  # noqa: SLF001 - of the same class
                what = f"is a member of a workspace whose settings decide which packages are installed: {folder}"
                raise self._error(what, f"run here: {EXPORT_COMMAND}", "name")

    def _has_member(self, folder: Path) -> bool:
        """Whether a folder is a member of the workspace, with settings about packages that hold for all members."""
        uv = self._named("uv")
        workspace = uv.get("workspace")
        if not isinstance(workspace, dict) or not {*_OF_PACKAGES, "sources"}.intersection(uv):
            return False
        member = folder.absolute().relative_to(self._source.path.parent.absolute()).as_posix()
        patterns = {key: found for key in ("members", "exclude") if isinstance(found := workspace.get(key), list)}
        named, excluded = (
            any(_matches(member, str(pattern)) for pattern in patterns.get(key, ())) for key in ("members", "exclude")
        )
        return named and not excluded

    def options(self) -> list[str]:
        """The indexes of uv and PDM as options of a requirements file, and uv's folders of wheels."""
        uv = self._named("uv")
        tables = [table for table in self._index_tables() if not table.get("explicit")]
        default = [str(table["url"]) for table in tables if table.get("default")]
        default += [index] if (index := self._text("index-url")) else []
        others = [str(table["url"]) for table in tables if not table.get("default")]
        others += self._texts("extra-index-url")
        for table in self._tables(self._named("pdm").get("source", []), "[tool.pdm.source]"):
            if {"include_packages", "exclude_packages"} & set(table) or table.get("type", "index") != "index":
                raise self._unread("[[tool.pdm.source]] with more than an index", _PDM_COMMAND, "[[tool.pdm.source")
            (default if table.get("name") == "pypi" else others).append(str(table["url"]))
        options = index_options(default[:1]) if default else []
        options += [f"--extra-index-url {url}" for url in others]
        folder = self._source.path.parent
        places = self._texts("find-links")
        options += [f"--find-links {place if is_url(place) else shlex.quote(str(folder / place))}" for place in places]
        return [*options, *(["--no-index"] if uv.get("no-index") else [])]

    def index_names(self) -> dict[str, str]:
        tables = self._named("uv").get("index", [])
        named = [table for table in tables if isinstance(table, dict) and {"name", "url"} <= set(table)]
        return {str(table["url"]): str(table["name"]) for table in named}

    def constraints(self) -> list[str]:
        return self._texts("constraint-dependencies")

    def choices(self) -> list[str]:
        """What else decides which versions uv chooses, as its options."""
        found = []
        for key, known in _CHOICES.items():
            value = self._text(key)
            if value and value not in known:
                raise self._error(f"tool.uv.{key} is unknown: {quote(value)}", f"known: {', '.join(known)}", key)
            found += [f"--{key} {value}"] if value else []
        found += [f"--exclude-newer {self._date(value)}"] if (value := self._text("exclude-newer")) else []
        dates = self._named("uv").get("exclude-newer-package", {})
        if not isinstance(dates, dict):
            raise self._error("tool.uv.exclude-newer-package must be a table", _DATE_HINT, "exclude-newer-package")
        of_packages = {canonicalize_name(name): "false" if date is False else date for name, date in dates.items()}
        return found + [f"--exclude-newer-package {name}={self._date(date)}" for name, date in of_packages.items()]

    def source(self, name: str) -> tuple[str, str]:
        """The source of a package: ``("index", URL)``, ``("place", path or URL)``, or ``("", "")`` if none is named."""
        source = self._sources().get(name)
        if source is None:
            return "", ""
        if isinstance(source, dict) and not _CONDITIONS.intersection(source):
            place = source.get("path") or source.get("url")
            if isinstance(place, str):
                return "place", place
            for table in self._index_tables():
                if source.get("index") and table.get("name") == source["index"]:
                    url, folder = str(table["url"]), self._source.path.parent
                    return "index", url if is_url(url) else real_path(folder / url).as_uri()
        raise self._unread(f"the source of {name} in [tool.uv.sources]", "uv lock", name)

    def index_of(self, name: str) -> str:
        """The index that is the only source of a package in ``[tool.uv.sources]``, ``""`` if another or none is."""
        source = self._sources().get(name)
        index = source.get("index") if isinstance(source, dict) and not _CONDITIONS.intersection(source) else None
        return next((url for url, named in self.index_names().items() if named == index), "")

    def has_source(self, name: str) -> bool:
        return name in self._sources()

    def _sources(self) -> Mapping[str, Any]:
        sources = self._named("uv").get("sources", {})
        return {canonicalize_name(name): sources[name] for name in sources} if isinstance(sources, dict) else {}

    def poetry_python(self) -> str:
        """The range of Python in Poetry's syntax, ``""`` if Poetry's table names none."""
        python = self._poetry_dependencies().get("python", "")
        if not isinstance(python, str):
            raise self._error("python of [tool.poetry.dependencies] must be text", 'write python = ">=3.10"', "python")
        return python

    def _poetry_dependencies(self) -> Mapping[str, Any]:
        table = self._named("poetry").get("dependencies", {})
        return table if isinstance(table, dict) else {}

    def _named(self, name: str) -> Mapping[str, Any]:
        table = self._tools.get(name, {})
        if not isinstance(table, dict):
            raise self._error(f"tool.{name} must be a table", f"write it as [tool.{name}]", name)
        return table

    def _text(self, key: str) -> str:
        value = self._named("uv").get(key, "")
        if not isinstance(value, str):
            raise self._error(f"tool.uv.{key} must be text", f'write it like {key} = "…"', key)
        return value

    def _texts(self, key: str) -> list[str]:
        value = self._named("uv").get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self._error(f"tool.uv.{key} must be a list of texts", f'write it like {key} = ["…"]', key)
        return list(value)

    def _date(self, value: object) -> str:
        if not isinstance(value, str) or not _DATE.fullmatch(value):
            raise self._error(f"{quote(str(value))} is not a date for uv", _DATE_HINT, "exclude-newer")
        return value

    def _index_tables(self) -> list[Mapping[str, Any]]:
        tables = self._tables(self._named("uv").get("index", []), "[[tool.uv.index]]")
        if any(table.get("format", "simple") != "simple" or "exclude-newer" in table for table in tables):
            raise self._unread("[[tool.uv.index]] with format or exclude-newer", "uv lock", "[[tool.uv.index")
        return tables

    def _tables(self, value: object, name: str) -> list[Mapping[str, Any]]:
        if not isinstance(value, list) or not all(
            isinstance(table, dict) and isinstance(url := table.get("url"), str) and url for table in value
        ):
            raise self._error(f"{name} must be a list of tables, each with a url", 'write url = "https://…"', name)
        return list(value)

    def _unread(self, what: str, command: str, needle: str) -> InputError:
        lock = command.split(maxsplit=1)[0] + ".lock"
        reads = "" if "," in command else f", which writes {lock}: envpack reads it"
        return self._error(
            f"{what} is not read, and would decide which packages are installed", f"{command}{reads}", needle
        )

    def _error(self, message: str, hint: str, needle: str) -> InputError:
        return self._source.place(needle).error(quote(message)[1:-1], hint=hint)

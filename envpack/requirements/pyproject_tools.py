"""What tools add to a ``pyproject.toml``: indexes, sources of packages, and dependencies that only they resolve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.utils import canonicalize_name

from envpack.requirements.format import Source
from envpack.requirements.formats.pip_file import index_options
from envpack.support.errors import InputError
from envpack.support.tables import quote

# Settings of tools that decide which packages are installed, each with the command that writes a lock that is read.
_LOCKED_BY = (
    (("uv", "override-dependencies"), "uv lock"),
    (("uv", "conflicts"), "uv lock"),
    (("uv", "workspace"), "uv lock"),
    (("poetry", "source"), "poetry lock"),
    (("pixi", "dependencies"), "pixi lock"),
    (("pixi", "pypi-dependencies"), "pixi lock"),
    (("pixi", "feature"), "pixi lock"),
    (("pixi", "target"), "pixi lock"),
    (("pdm", "resolution"), "pdm lock, then pdm export --format pylock --output pylock.toml"),
)
_PDM_COMMAND = "pdm lock, then pdm export --format pylock --output pylock.toml"


class ToolTables:
    """The tables of ``[tool]`` that decide where packages come from."""

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
        if set(self._poetry_dependencies()) - {"python"}:
            raise self._unread("[tool.poetry.dependencies]", "poetry lock", "[tool.poetry.dependencies")

    def options(self) -> list[str]:
        """The indexes of uv and PDM as options of a requirements file, and uv's folders of wheels."""
        uv = self._named("uv")
        tables = [table for table in self._index_tables() if not table.get("explicit")]
        default = [str(table["url"]) for table in tables if table.get("default")]
        default += [str(uv["index-url"])] if uv.get("index-url") else []
        others = [str(table["url"]) for table in tables if not table.get("default")]
        others += map(str, uv.get("extra-index-url", ()))
        for table in self._tables(self._named("pdm").get("source", []), "[tool.pdm.source]"):
            if {"include_packages", "exclude_packages"} & set(table) or table.get("type", "index") != "index":
                raise self._unread("[[tool.pdm.source]] with more than an index", _PDM_COMMAND, "[[tool.pdm.source")
            (default if table.get("name") == "pypi" else others).append(str(table["url"]))
        options = index_options(default[:1]) if default else []
        options += [f"--extra-index-url {url}" for url in others]
        options += [f"--find-links {self._source.path.parent / str(place)}" for place in uv.get("find-links", ())]
        return [*options, *(["--no-index"] if uv.get("no-index") else [])]

    def constraints(self) -> list[str]:
        """The constraints of uv."""
        return [str(text) for text in self._named("uv").get("constraint-dependencies", ())]

    def source(self, name: str) -> tuple[str, str]:
        """Where ``[tool.uv.sources]`` has a package from.

        Returns:
            ``("index", URL)``, ``("place", path or URL)``, or ``("", "")`` if it names the package not.
        """
        sources = self._named("uv").get("sources", {})
        sources = sources if isinstance(sources, dict) else {}
        source = next((value for key, value in sources.items() if canonicalize_name(key) == name), None)
        if source is None:
            return "", ""
        if isinstance(source, dict) and not source.get("marker") and not source.get("extra"):
            place = source.get("path") or source.get("url")
            if place and not source.get("subdirectory"):
                return "place", str(place)
            for table in self._index_tables():
                if source.get("index") and table.get("name") == source["index"]:
                    return "index", str(table["url"])
        raise self._unread(f"the source of {name} in [tool.uv.sources]", "uv lock", name)

    def _poetry_dependencies(self) -> Mapping[str, Any]:
        table = self._named("poetry").get("dependencies", {})
        return table if isinstance(table, dict) else {}

    def _named(self, name: str) -> Mapping[str, Any]:
        table = self._tools.get(name, {})
        if not isinstance(table, dict):
            raise self._error(f"tool.{name} must be a table", f"write it as [tool.{name}]", name)
        return table

    def _index_tables(self) -> list[Mapping[str, Any]]:
        return self._tables(self._named("uv").get("index", []), "[[tool.uv.index]]")

    def _tables(self, value: object, name: str) -> list[Mapping[str, Any]]:
        if not isinstance(value, list) or not all(isinstance(table, dict) and table.get("url") for table in value):
            raise self._error(f"{name} must be a list of tables, each with a url", 'write url = "https://…"', name)
        return list(value)

    def _unread(self, what: str, command: str, needle: str) -> InputError:
        lock = command.split(maxsplit=1)[0] + ".lock"
        reads = "" if "export" in command else f", which writes {lock}: envpack reads it"
        return self._error(
            f"{what} is not read, and would decide which packages are installed", f"{command}{reads}", needle
        )

    def _error(self, message: str, hint: str, needle: str) -> InputError:
        return self._source.place(needle).error(quote(message)[1:-1], hint=hint)

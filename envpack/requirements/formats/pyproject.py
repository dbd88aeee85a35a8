"""The dependencies of a project: ``pyproject.toml``, with the extras and groups that ``[tool.envpack]`` selects, and
``setup.cfg`` of setuptools.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envpack.requirements.conda_spec import poetry_range
from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pip_file import PipReader
from envpack.requirements.model import Requirements
from envpack.requirements.pip_requirement import reduced_marker
from envpack.requirements.target import common_range, single_minor
from envpack.requirements.tool_tables import ToolTables
from envpack.support import bounded_reading
from envpack.support.errors import InputError
from envpack.support.tables import HINT, quote

_SELECTION_KEYS = {"extras", "groups"}
_TOOLS = ("poetry", "pixi", "flit", "envpack")
_ROOT = "${PROJECT_ROOT}"
_HINT = 'write it like dependencies = ["numpy<2"]'


def _holds_requirements(_: str, text: str) -> bool:
    content = bounded_reading.parse_toml(text)
    tools = content.get("tool", {})
    return "project" in content or (isinstance(tools, dict) and any(name in tools for name in _TOOLS))


@reads(
    "pyproject.toml",
    order=40,
    recognises=lambda source: (
        source.is_toml
        and (source.path.name == "pyproject.toml" or "project" in source.toml or "dependency-groups" in source.toml)
    ),
    holds=_holds_requirements,
)
def read_pyproject(source: Source) -> Requirements:
    """`pyproject.toml`

    Read: `[project]` `dependencies`, also those that setuptools has in files; `requires-python`; extras and groups,
    indexes and sources, see [below](#pyprojecttoml)

    Refused: with the command that makes a lock: other dynamic dependencies, sources in version control, `[tool.poetry]`
    and `[tool.pixi]` dependencies, overrides. The project itself is not installed
    """
    return _Reader(source).requirements()


def read_selection(project: Source) -> tuple[list[str], list[str]]:
    """The extras and groups that ``[tool.envpack]`` selects."""
    return _Reader(project).selection()


def read_required(project: Source) -> list[str]:
    """What a project requires, with the extras and groups that it selects if they are no tables of another tool."""
    reader = _Reader(project)
    try:
        return reader.dependencies(*reader.selection())
    except InputError:
        return reader.dependencies([], [])


class _Reader:
    def __init__(self, source: Source) -> None:
        self._content = content = source.toml
        self._line, self._path, self._target = source.place, source.path, source.target
        self._project = self._table(content, "project", "project")
        self._selection = self._table(self._table(content, "tool", "tool"), "envpack", "tool.envpack")
        self._tools = ToolTables(source)
        self._pip = PipReader()

    def selection(self) -> tuple[list[str], list[str]]:
        if unknown := sorted(set(self._selection) - _SELECTION_KEYS):
            raise self._error(f"unknown key {quote(unknown[0])} in [tool.envpack]", "known: extras, groups", unknown[0])
        extras = self._texts(self._selection, "extras", "tool.envpack.extras")
        return extras, self._texts(self._selection, "groups", "tool.envpack.groups")

    def dependencies(self, extras: list[str], groups: list[str]) -> list[str]:
        found = self._texts(self._project, "dependencies", "project.dependencies") + self._extras(extras)
        for text in self._groups(groups):
            nested = self._own_extras(text)
            found += [text] if nested is None else self._extras(nested)
        return found

    def requirements(self) -> Requirements:
        extras, groups = self.selection()
        self._tools.refuse_unread()
        self._read_dynamic()
        dependencies = dict.fromkeys(self.dependencies(extras, groups))
        for text in dependencies:
            self._add(text)
        self._pip.index_names |= self._tools.index_names()
        for option in self._tools.options():
            self._pip.read_lines(option, self._line(option.split()[-1]))
        self._pip.options += self._tools.choices()
        for constraint in self._tools.constraints():
            self._pip.read_lines(constraint, self._line(constraint), constraint=True)
        return self._pip.requirements(self._path, self._python_range(), self._line("requires-python"))

    def _add(self, text: str) -> None:
        location, folder = self._line(text), str(self._path.parent.absolute())
        # PDM's word for the folder of the project.
        text = text.replace(f"file:///{_ROOT}", f"file://{folder}").replace(_ROOT, folder)
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            requirement = None  # the reader raises the error
        if requirement is None or requirement.url:
            self._pip.read_lines(text, location)
            return
        name = canonicalize_name(requirement.name)
        kind, place = self._tools.source(name)
        if kind == "place":
            extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
            marker = f" ; {requirement.marker}" if requirement.marker else ""
            text = f"{name}{extras} @ {place}{marker}"
        self._pip.read_lines(text, location)
        if kind == "index":
            self._pip.take_from(place, name, self._line(place))

    def _read_dynamic(self) -> None:
        """Read dependencies that setuptools has in other files."""
        if "dependencies" not in self._texts(self._project, "dynamic", "project.dynamic"):
            return
        try:
            files = self._content["tool"]["setuptools"]["dynamic"]["dependencies"]["file"]
        except (LookupError, TypeError):
            self._refuse_dynamic("dependencies")
            return
        files = [files] if isinstance(files, str) else files
        if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
            raise self._error("file must be a list of texts", 'write it like file = ["requirements.txt"]', "file")
        for file in files:
            self._pip.read_file(self._path.parent / file, named_at=self._line(file))

    def _error(self, message: str, hint: str, needle: str = "") -> InputError:
        return self._line(needle).error(message, hint=hint)

    def _table(self, parent: dict[str, Any], key: str, name: str) -> dict[str, Any]:
        value = parent.get(key, {})
        if not isinstance(value, dict):
            raise self._error(f"{name} must be a table", f"write it as [{name}]", key)
        return value

    def _texts(self, parent: dict[str, Any], key: str, name: str) -> list[str]:
        value = parent.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self._error(f"{name} must be a list of texts", _HINT, key)
        return list(value)

    def _refuse_dynamic(self, key: str) -> None:
        if key in self._texts(self._project, "dynamic", "project.dynamic"):
            extras, groups = self.selection()
            selected = "".join([*(f" --extra {name}" for name in extras), *(f" --group {name}" for name in groups)])
            raise self._error(
                f"the project computes its {key} when it is built, so they cannot be read",
                f"uv pip compile pyproject.toml{selected} --output-file requirements.txt, and name that file",
                "dynamic",
            )

    def _extras(self, names: list[str]) -> list[str]:
        """The requirements of extras, including those of other extras of the same project that they name."""
        table = self._table(self._project, "optional-dependencies", "project.optional-dependencies")
        known = {canonicalize_name(key): self._texts(table, key, f"the extra {quote(key)}") for key in table}
        found: list[str] = []
        seen, pending = set(), names[::-1]
        while pending:
            name = canonicalize_name(pending.pop())
            if name in seen:
                continue
            seen.add(name)
            self._refuse_dynamic("optional-dependencies")
            if name not in known:
                names_known = ", ".join(sorted(known)) or "none"
                raise self._error(f"there is no extra {quote(name)}", f"known: {names_known}", name)
            for text in known[name]:
                nested = self._own_extras(text)
                pending += nested or []
                found += [text] if nested is None else []
        return found

    def _own_extras(self, text: str) -> list[str] | None:
        """The extras of a requirement on the project itself, last first; ``None`` for other requirements."""
        own_name = self._project.get("name")
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            return None  # `_requirement` raises the error, with its line
        if not isinstance(own_name, str) or canonicalize_name(requirement.name) != canonicalize_name(own_name):
            return None
        applies = reduced_marker(str(requirement.marker or ""), self._target) is not None
        return sorted(requirement.extras, reverse=True) if applies else []

    def _groups(self, names: list[str]) -> list[str]:
        table = self._table(self._content, "dependency-groups", "dependency-groups")
        if not names:
            return []
        try:
            return _of_groups(table, names)
        except ExceptionGroup as errors:
            reason = " ".join(str(errors.exceptions[0]).split())
        except (ValueError, LookupError, TypeError) as error:
            reason = " ".join(str(error).split())
        except RecursionError:
            reason = "groups include each other too deeply"
        raise self._error(f"dependency-groups: {quote(reason)[1:-1]}", "correct the group, or tool.envpack.groups")

    def _python_range(self) -> str:
        text = self._project.get("requires-python", "")
        try:
            if isinstance(text, str):
                single_minor(text)
                return self._with_range_of_poetry(text)
        except ValueError:
            pass
        raise self._error("requires-python is not a range of versions", 'write it like ">=3.10"', "requires-python")

    def _with_range_of_poetry(self, requires: str) -> str:
        """The Python versions that the project and ``[tool.poetry.dependencies]`` allow, as Poetry reads both."""
        python = self._tools.poetry_python()
        try:
            return common_range([requires, poetry_range(python)]) if python else requires
        except ValueError as error:
            raise self._error(
                f"python = {quote(python)} of [tool.poetry.dependencies] is not a range in that of requires-python",
                'write it like python = ">=3.10"',
                "[tool.poetry.dependencies",
            ) from error


def _of_groups(table: dict[str, Any], names: list[str]) -> list[str]:
    """The requirements of dependency groups, each group once: groups can include others in many ways."""
    from packaging.dependency_groups import DependencyGroupResolver

    resolver = DependencyGroupResolver(table)
    found: list[str] = []
    done: set[str] = set()

    def expand(name: str, above: tuple[str, ...]) -> None:
        group = canonicalize_name(name)
        if group in above:
            raise ValueError(f"{name} includes itself")
        if group in done:
            return
        for item in resolver.lookup(group):
            if isinstance(item, Requirement):
                found.append(str(item))
            else:
                expand(item.include_group, (*above, group))
        done.add(group)

    for name in names:
        expand(name, ())
    return found


_SECTION = "options"


@reads("setup.cfg", order=41, holds=lambda _, text: bool(re.search(r"^install[-_]requires\b", text, re.MULTILINE)))
def read_setup_cfg(source: Source) -> Requirements:
    """`setup.cfg` (setuptools)

    Read: `install_requires`, `python_requires`

    Refused: requirements in another file, `file:`
    """
    import configparser

    source = replace(source, text=re.sub(r"(?m)^(install|python)-(?=requires\b)", r"\1_", source.text))
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(source.text)
    except configparser.Error as error:
        line = getattr(error, "lineno", None) or 0
        raise source.location.at(line).error("not a configuration file of setuptools", hint=HINT) from error
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
        return reader.requirements(source.path, allowed, where)
    except ValueError as error:
        raise where.error("python_requires is not a range of versions", hint='write it like ">=3.10"') from error

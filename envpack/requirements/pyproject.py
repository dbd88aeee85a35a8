"""``pyproject.toml``: the dependencies of a project, with the extras and groups that it chooses for envpack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envpack.requirements.model import Requirements
from envpack.requirements.pip_requirement import PipLine, Project, read_requirement
from envpack.requirements.problem import Location, shown
from envpack.requirements.python_version import only_minor
from envpack.requirements.toml_file import line_of
from envpack.support.errors import InputError

_CHOICE = {"extras", "groups"}
_EXAMPLE = 'write it like dependencies = ["numpy<2"]'


def read_pyproject(content: dict[str, Any], text: str, path: Path) -> Requirements:
    """Read ``[project]`` dependencies, and the extras and groups that ``[tool.envpack]`` names.

    The project itself is not among them: a model's code is in its own folder.

    Args:
        content: the file.
        text: the same as it is written, for lines.
        path: its name.

    Raises:
        InputError: a dependency is none, is dynamic, or comes from a place that only another tool knows.

    """
    return _Reader(content, text, Location(path)).requirements()


class _Reader:
    def __init__(self, content: dict[str, Any], text: str, spot: Location) -> None:
        self._content = content
        self._text = text
        self._spot = spot
        self._project = self._table(content, "project", "project")
        self._choice = self._table(self._table(content, "tool", "tool"), "envpack", "tool.envpack")

    def requirements(self) -> Requirements:
        unknown = sorted(set(self._choice) - _CHOICE)
        if unknown:
            raise self._error(f"unknown key {shown(unknown[0])} in [tool.envpack]", "known: extras, groups", unknown[0])
        extras = self._texts(self._choice, "extras", "tool.envpack.extras")
        groups = self._texts(self._choice, "groups", "tool.envpack.groups")
        if not self._project and not groups:
            raise self._without_project()
        self._refuse_dynamic("dependencies")
        wanted = self._texts(self._project, "dependencies", "project.dependencies")
        wanted += self._extras(extras) + self._groups(groups)
        pip, projects = [], []
        for one in dict.fromkeys(wanted):
            found = self._requirement(one)
            if isinstance(found, Project):
                projects.append(found.folder)
            if text := found.extras if isinstance(found, Project) else found:
                pip.append(text)
        path = self._spot.path
        return Requirements(pip=tuple(pip), python=self._python(), source=path, projects=tuple(projects), files=(path,))

    def _error(self, message: str, hint: str, needle: str = "") -> InputError:
        return self._spot.at(line_of(self._text, needle)).error(message, hint=hint)

    def _table(self, inside: dict[str, Any], key: str, name: str) -> dict[str, Any]:
        value = inside.get(key, {})
        if not isinstance(value, dict):
            raise self._error(f"{name} must be a table", f"write it as [{name}]", key)
        return value

    def _texts(self, inside: dict[str, Any], key: str, name: str) -> list[str]:
        value = inside.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._error(f"{name} must be a list of texts", _EXAMPLE, key)
        return list(value)

    def _without_project(self) -> InputError:
        if "poetry" in self._table(self._content, "tool", "tool"):
            return self._error(
                "the dependencies are in [tool.poetry], which only Poetry reads",
                "poetry export --output requirements.txt, and name that file; or move them to [project]",
                "[tool.poetry",
            )
        return self._error("there is neither [project] nor a group in [tool.envpack]", _EXAMPLE)

    def _refuse_dynamic(self, key: str) -> None:
        if key in self._texts(self._project, "dynamic", "project.dynamic"):
            raise self._error(
                f"the project computes its {key} when it is built, so they cannot be read",
                "write them into the file, or name requirements.txt with the project's folder in it",
                "dynamic",
            )

    def _extras(self, names: list[str]) -> list[str]:
        """The requirements of extras, which may name others of the same project."""
        table = self._table(self._project, "optional-dependencies", "project.optional-dependencies")
        known = {canonicalize_name(key): self._texts(table, key, f"the extra {shown(key)}") for key in table}
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
                raise self._error(f"there is no extra {shown(name)}", f"known: {names_known}", name)
            for text in known[name]:
                inner = self._own_extras(text)
                pending += inner or []
                found += [text] if inner is None else []
        return found

    def _own_extras(self, text: str) -> list[str] | None:
        """The extras that a requirement names, last first, if it is the project itself; else ``None``."""
        own = self._project.get("name")
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            return None  # refused later, with its line
        if not isinstance(own, str) or canonicalize_name(requirement.name) != canonicalize_name(own):
            return None
        return sorted(requirement.extras, reverse=True)

    def _groups(self, names: list[str]) -> list[str]:
        table = self._table(self._content, "dependency-groups", "dependency-groups")
        if not names:
            return []
        try:
            return list(resolve_dependency_groups(table, *names))
        except ExceptionGroup as errors:
            reason = " ".join(str(errors.exceptions[0]).split())
        except (ValueError, LookupError, TypeError) as error:
            reason = " ".join(str(error).split())
        except RecursionError:
            reason = "groups include each other too deeply"
        raise self._error(f"dependency-groups: {shown(reason)[1:-1]}", "correct the group, or tool.envpack.groups")

    def _requirement(self, text: str) -> str | Project:
        spot = self._spot.at(line_of(self._text, text))
        found = read_requirement(text, PipLine(spot, shown(text)))
        if isinstance(found, str):
            self._refuse_redirected(found, spot)
        return found

    def _refuse_redirected(self, requirement: str, spot: Location) -> None:
        """Refuse what uv takes from another place than the index: a package of the same name may be another there."""
        uv = self._table(self._table(self._content, "tool", "tool"), "uv", "tool.uv")
        sources = {canonicalize_name(key) for key in self._table(uv, "sources", "tool.uv.sources")}
        name = Requirement(requirement).name
        if canonicalize_name(name) in sources:
            raise spot.error(
                f"{name} has a place of its own in [tool.uv.sources], which only uv reads",
                hint="uv export --format pylock.toml --output-file pylock.toml, and name that file",
            )

    def _python(self) -> str:
        text = self._project.get("requires-python", "")
        try:
            if isinstance(text, str):
                return only_minor(text) if text else ""
        except ValueError:
            pass
        raise self._error("requires-python is not a range of versions", 'write it like ">=3.10"', "requires-python")

"""Environment files: ``environment.yml`` of conda, and ``conda.yaml`` and ``python_env.yaml`` of MLflow."""

from __future__ import annotations

import re

from envpack.requirements.conda_spec import CondaSpec, parse_spec, python_range, tidy_spec, without_build
from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pip_file import PipReader
from envpack.requirements.location import CREDENTIALS_HINT, is_url, local_path
from envpack.requirements.model import Requirements
from envpack.requirements.pip_requirement import PipLine, check_length
from envpack.requirements.target import (
    Target,
    common_range,
    only_system,
    selector_of,
    selects,
    single_minor,
    system_of_prefix,
)
from envpack.support.redaction import has_secret
from envpack.support.tables import Location, Table, Value, quote

_CONDA_KEYS = {"name", "channels", "dependencies", "prefix", "variables", "platforms"}
_PYTHON_ENV_KEYS = {"python", "build_dependencies", "dependencies"}
_NAMES = ("environment.yml", "environment.yaml", "conda.yaml", "conda.yml")
_DEPENDENCIES = re.compile(r"^dependencies\s*:", re.MULTILINE)
_SETUPTOOLS = re.compile(r"setuptools\s*(?:[<>=!~;\[@]|$)", re.IGNORECASE)
# The address of a package: channel, name, version, build.
_ADDRESS = re.compile(
    r"((?:https?|file)://[^#]{1,1000})/[\w-]+/([^/]{1,200})-([^-/]+)-([^-/]+)\.(?:conda|tar\.bz2)(?:#\w*)?"
)
_MOST_PYTHONS = 20  # different ones; each is tried with a hundred versions
_HINT = "write it like dependencies: [python=3.10, numpy, {pip: [pillow]}]"


def _is_python_env(source: Source) -> bool:
    """Whether a YAML file is MLflow's ``python_env.yaml``; conda's files list Python among the dependencies."""
    of_conda = source.path.name in _NAMES or (source.is_yaml and "channels" in source.yaml)
    return source.is_yaml and not of_conda and ("python" in source.yaml or "build_dependencies" in source.yaml)


@reads(
    *_NAMES,
    order=20,
    recognises=lambda source: source.is_yaml and source.path.suffix != ".lock" and not _is_python_env(source),
    similar=r"(?:[\w.-]*[-_.])?(?:conda[-_]?)?(?:env|environment|conda)s?(?:[-_.\d][\w.-]*)?\.ya?ml",
    holds=lambda name, text: name in _NAMES or _DEPENDENCIES.search(text) is not None,
)
def read_conda_environment(source: Source) -> Requirements:
    """`environment.yml` (conda), `conda.yaml` (MLflow)

    Read: `dependencies`, its list `pip` with everything that `requirements.txt` may contain, `channels`, `platforms`;
    Python, see [below](#python); match specs in every form that conda reads, see [below](#environmentyml)

    Left out with a warning: `variables` ([below](#variables)), unknown keys. Left out: `name`, pip itself, `nodefaults`
    (no channel is ever added)
    """
    return _Reader(source.yaml, source.text, source.target).requirements()


class _Reader:
    def __init__(self, content: Table, text: str, target: Target) -> None:
        self._content, self._target = content, target
        self._lines, self._selectors = text.splitlines(), dict[int, str]()
        self._system = system_of_prefix(content.text("prefix", ""))  # where the file was exported, if not on Linux
        self._of_system, self._other_builds = list[str](), list[str]()  # packages; specs with builds of that system
        self._pip, self._conda, self._pythons = PipReader(), list[str](), dict[str, Location]()

    def requirements(self) -> Requirements:
        self._check_keys()
        self._name_variables()
        _check_platforms(self._content, self._target)
        for value, location in self._content.items("dependencies"):
            if isinstance(value, Table):
                self._read_pip(value)
                continue
            if isinstance(value, str):
                check_length(value, PipLine(location, quote(value)))
            if self._is_for_target(value, location):
                self._read_spec(value, location)
        self._name_what_only_system_has()
        return self._pip.requirements(
            self._content.location.path,
            self._python_range(),
            conda=tuple(self._conda),
            channels=_channels(self._content),
        )

    def _check_keys(self) -> None:
        """Name keys that are not read, as conda does; without any dependencies, one of them may be misspelled."""
        if "dependencies" not in self._content:
            self._content.refuse_unknown(_CONDA_KEYS)
        for key, (_, location) in self._content.values.items():
            if key not in _CONDA_KEYS:
                self._pip.warnings.append(f"{location}: the key {quote(key)} is not read")

    def _name_variables(self) -> None:
        """Name the variables that an activation would set: servers from 25.08 on do not run it."""
        if names := ", ".join(map(quote, self._content.table("variables").values)):
            what = f"{self._content.get('variables')[1]}: variables are left out: {names}"
            self._pip.warnings.append(f"{what}; set them in the model's initialize(), or where the server is started")

    def _is_for_target(self, value: Value, location: Location) -> bool:
        """Whether the target needs an entry; one that is for another platform is left out, and named."""
        selector, reason = self._selector(location.line), ""
        if selector:
            try:
                reason = "" if selects(selector, self._target.platform) else f"its selector is [{selector}]"
            except ValueError:
                self._pip.warnings.append(f"{location}: the comment {quote(f'[{selector}]')} selects no known system")
        if self._system and isinstance(value, str) and only_system(parse_spec(value).name) == self._system:
            self._of_system.append(value)
            return False
        if reason:
            self._pip.warnings.append(f"{location}: {quote(str(value))} is left out: {reason}")
        return not reason

    def _name_what_only_system_has(self) -> None:
        """One warning for each kind, since an export has a build for each of its packages."""
        if not self._system:
            return
        exported = f"{self._content.get('prefix')[1]}: the file was exported on {self._system}: "
        if self._of_system:
            names = ", ".join(map(quote, self._of_system))
            self._pip.warnings.append(f"{exported}what Linux does not have is left out: {names}")
        if self._other_builds:
            spec, others = self._other_builds[0], len(self._other_builds) - 1
            read = f"{quote(spec)} is read as {quote(without_build(spec))}"
            likewise = f", {others} others likewise" if others > 1 else ", another one likewise" if others else ""
            self._pip.warnings.append(f"{exported}builds of packages are not read: {read}{likewise}")

    def _selector(self, line: int) -> str:
        if line not in self._selectors:
            self._selectors[line] = selector_of(self._lines[line - 1]) if 0 < line <= len(self._lines) else ""
        return self._selectors[line]

    def _read_spec(self, value: Value, location: Location) -> None:
        if isinstance(value, str) and (address := _ADDRESS.fullmatch(value)):
            value = "{}::{}=={}={}".format(*address.groups())
        spec = parse_spec(value) if isinstance(value, str) else None
        if not isinstance(value, str) or spec is None or not spec.name or "{" in value:
            what = quote(value) if isinstance(value, str) else "an entry that is neither text nor a list called pip"
            raise location.error(f"{what} is not the name of a package", hint=_HINT)
        if " - " in value:  # YAML joins the lines of a text
            hint = "write - pip: with a colon, and give all other entries the same indentation"
            raise location.error(f"{quote(value)} is one entry, since the next lines are indented further", hint=hint)
        if has_secret(spec.channel):
            raise location.error("the channel contains a password or a token", hint=CREDENTIALS_HINT)
        if spec.name == "python":
            self._add_python(value, spec, location)
        elif spec.name != "pip":  # uv installs the pip part, so pip itself is not needed
            self._conda.append(self._without_foreign_build(value))
            self._pip.places[self._conda[-1]] = str(location)

    def _add_python(self, value: str, spec: CondaSpec, location: Location) -> None:
        if len(self._pythons) >= _MOST_PYTHONS:
            raise location.error(
                f"more than {_MOST_PYTHONS} entries for python", hint="write one range: python>=3.9,<3.12"
            )
        self._pythons.setdefault(_python(value, spec.version, location), location)
        self._pip.places["python"] = str(location)
        if spec.channel:  # the version follows from the target, the channel does not
            self._conda.append(f"{spec.channel}::python")
            self._pip.places[self._conda[-1]] = str(location)

    def _python_range(self) -> str:
        """What all entries for Python allow together."""
        try:
            return common_range(self._pythons)
        except ValueError as error:
            location = list(self._pythons.values())[-1]
            raise location.error(
                f"no version of Python is allowed by {quote(' and '.join(filter(None, self._pythons)))}",
                hint="correct the ranges",
            ) from error

    def _without_foreign_build(self, value: str) -> str:
        """A match spec without its build, if the file was exported on a system whose builds Linux does not have."""
        spec = tidy_spec(value)
        without = without_build(spec) if self._system else spec
        self._other_builds += [spec] if without != spec else []
        return without

    def _read_pip(self, entry: Table) -> None:
        if set(entry.values) != {"pip"}:
            raise entry.location.error("a table in dependencies must be a list called pip", hint=_HINT)
        if isinstance(entry.get("pip")[0], str):
            hint = "write each of its requirements on a line of its own below - pip:, after a -"
            raise entry.location.error("pip must be a list", hint=hint)
        for text, location in entry.texts("pip"):
            if self._is_for_target(text, location):
                self._pip.read_lines(text, location)


def _check_platforms(content: Table, target: Target) -> None:
    platforms = [name for name, _ in content.texts("platforms")]
    if platforms and target.platform not in platforms:
        raise content.get("platforms")[1].error(
            f"the file is not for {target.platform}, only for {quote(', '.join(platforms))}",
            hint="add the platform, or build for one of these",
        )


def _channels(content: Table) -> tuple[str, ...]:
    """Channels in their order, without ``nodefaults``: envpack never adds channels of its own."""
    found = []
    for name, location in content.texts("channels"):
        if has_secret(name):
            raise location.error("the channel contains a password or a token", hint=CREDENTIALS_HINT)
        if name.startswith(("./", "../")) and not is_url(name):
            found.append(str(local_path(name, location.path.parent.absolute())))
        elif not name.strip() or "{" in name:
            raise location.error(f"{quote(name)} is not a channel", hint="write it like channels: [conda-forge]")
        elif name != "nodefaults":
            found.append(name.strip())
    return tuple(dict.fromkeys(found))


def _python(text: str, version: str, location: Location) -> str:
    try:
        found = python_range(version)
        single_minor(found)
    except ValueError as error:
        raise location.error(
            f"{quote(text)} does not name a version of Python", hint="write it like python=3.10"
        ) from error
    return found


@reads("python_env.yaml", order=21, recognises=_is_python_env)
def read_python_env(source: Source) -> Requirements:
    """`python_env.yaml` (MLflow)

    Read: `python`, `dependencies`, with `-r requirements.txt`

    Refused: unknown keys. Left out: `build_dependencies` but setuptools, which older packages import (`pkg_resources`)
    """
    content = source.yaml
    content.refuse_unknown(_PYTHON_ENV_KEYS)
    version = content.text("python", "").strip()
    match = re.fullmatch(r"(\d+\.\d+)(\.\d+)?", version)
    if version and not match:
        raise content.get("python")[1].error("python must be one version", hint="write it like python: 3.10.13")
    reader = PipReader()
    for text, location in content.texts("dependencies"):
        reader.read_lines(text, location)
    for text, location in content.texts("build_dependencies"):  # MLflow installs them into the environment, too
        if _SETUPTOOLS.match(text) and not any(map(_SETUPTOOLS.match, reader.pip)):
            reader.read_lines(text, location)
    return reader.requirements(source.path, f"=={match[1]}.*" if match else "", content.get("python")[1])

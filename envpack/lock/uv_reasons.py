"""What uv writes when requirements cannot be resolved: packages without wheels, chains of dependencies, conflicts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envpack.requirements import only_system, package_of
from envpack.support.text import normalise_name

_NAME = r"[A-Za-z0-9][\w.-]*"
_VERSIONS = r"(?:[<>=!~]=?=?[^\s,]+(?:,[<>=!~]=?=?[^\s,]+)*)?"
_REQUIRED = re.compile(rf"you require ({_NAME})")
_NO_WHEEL = re.compile(rf"({_NAME}){_VERSIONS}(?: and [^\n]{{1,200}}?)? ha(?:s|ve) no (?:usable wheels|wheels with)")
_WHEELS_REQUIRED = re.compile(rf"Wheels are required for `({_NAME})`")
_DEPENDS = re.compile(rf"({_NAME}){_VERSIONS} depends on ({_NAME}){_VERSIONS}")
_PLATFORMS = re.compile(r"Wheels are available for `[^`]+`[^\n]* on the following platforms?: ([^\n]+)")
_UNKNOWN_VERSION = re.compile(rf"no version of ({_NAME})==(\S+?)\+(\S+?)[ ,.]")
_UNKNOWN_PACKAGE = re.compile(rf"({_NAME}) was not found in the package registry")


def required_names(message: str) -> list[str]:
    """Normalised names of the requirements that a failed resolution rests on, in the order of the message."""
    return list(dict.fromkeys(normalise_name(name) for name in _REQUIRED.findall(_flat(message))))


def without_wheel(message: str) -> str:
    """The normalised name of the package that has no wheel, ``""`` if none is named."""
    flat = _flat(message)
    match = _WHEELS_REQUIRED.search(flat) or _NO_WHEEL.search(flat)
    return normalise_name(match[1]) if match else ""


def chain(message: str, root: str, leaf: str) -> list[str]:
    """The names from a requirement to one of its dependencies, both included; only these two if the path is unknown."""
    parents: dict[str, str] = {}
    for parent, child in _DEPENDS.findall(_flat(message)):
        parents.setdefault(normalise_name(child), normalise_name(parent))
    found = [leaf]
    while found[0] != root and parents.get(found[0]) and parents[found[0]] not in found:
        found.insert(0, parents[found[0]])
    return found if found[0] == root else [root, leaf]


def wheel_hint(message: str, name: str, sources: Sequence[str] = ()) -> str:
    """What to do about a package without a wheel for the target."""
    proposed = package_of(name)
    if proposed != name:
        return f"the package is called {proposed}"
    match = _PLATFORMS.search(message)
    platforms = re.findall(r"`([^`]+)`", match[1]) if match else []
    system = only_system(name)
    if platforms and all(platform.startswith("win") for platform in platforms):
        system = "Windows"
    elif platforms and all(platform.startswith("macosx") for platform in platforms):
        system = "macOS"
    if system:
        marker = {"Windows": "win32", "macOS": "darwin"}[system]
        return f"only {system} has it: remove it, or write {name} ; sys_platform == {marker!r}"
    allowed = " ".join(f"--allow-source {package}" for package in (*sources, name))
    return f"choose a version that has a wheel for this Python, or build it from source: {allowed}"


def unresolvable_hint(message: str, requirements: Sequence[str]) -> str:
    """What to do about requirements that no set of packages meets."""
    flat = _flat(message)
    if local := _UNKNOWN_VERSION.search(flat):
        name, version, label = local.groups()
        index = f"https://download.pytorch.org/whl/{label}" if label.startswith(("cu", "cpu", "rocm")) else "URL"
        return (
            f"the index has no builds with +{label}: write {name}=={version}, or name the index that has them in a line"
            f" of its own: --extra-index-url {index}"
        )
    if unknown := _UNKNOWN_PACKAGE.search(flat):
        name = unknown[1]
        proposed = package_of(name) if package_of(name) != normalise_name(name) else ""
        if proposed:
            return f"the package is called {proposed}"
        return f"check the name {name}; a private package needs the index that has it: --extra-index-url URL"
    if len(requirements) > 1:
        unbuilt = without_wheel(message)
        source = f"; or build {unbuilt} from source: --allow-source {unbuilt}" if unbuilt else ""
        return f"change one of them: {' or '.join(requirements)}{source}"
    return "check the version: the index has none that fits this Python"


def _flat(message: str) -> str:
    return " ".join(message.split())

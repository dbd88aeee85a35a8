"""Match specs as the embedded engine takes them: channels by their address, and names for what failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from envpack.conda.settings import CondaSettings
from envpack.requirements import only_system, package_of, parse_spec, tidy_spec, without_build
from envpack.support.text import normalise_name

_SUBDIR = re.compile(r"/(?P<subdir>noarch|(?:linux|osx|win|emscripten)-\w+)$")


def spec_channels(specs: Sequence[str]) -> tuple[str, ...]:
    """The channels that match specs name, as they write them, each once and without a platform."""
    named = (_SUBDIR.sub("", parse_spec(spec).channel) for spec in specs)
    return tuple(dict.fromkeys(channel for channel in named if channel))


def specs_with_addresses(specs: Sequence[str], settings: CondaSettings) -> list[list[str]]:
    """Each match spec with the addresses of its channel; ``defaults`` is a name for several."""
    return [_with_addresses(spec, settings) for spec in specs]


def _with_addresses(spec: str, settings: CondaSettings) -> list[str]:
    channel = parse_spec(spec).channel
    if not channel:
        return [spec]
    rest = tidy_spec(spec).rpartition("::")[2]
    subdir = _SUBDIR.search(channel)
    folder = subdir.group() if subdir else ""
    return [f"{url}{folder}::{rest}" for url in settings.resolve([channel.removesuffix(folder)]).urls]


def describe_specs(specs: Sequence[str], places: Mapping[str, str]) -> str:
    """Name the requirements that cannot be met, for an error."""
    if not specs:
        return "the conda requirements cannot be met together, and it is not known which of them"
    if len(specs) == 1:
        return f"conda requirement {specs[0]!r} cannot be resolved"
    lines = [f"{spec!r}{_line(places.get(spec, ''))}" for spec in specs]
    return f"conda requirements {' and '.join(lines)} cannot be met together"


def spec_hint(specs: Sequence[str]) -> str:
    """What to do about match specs that cannot be met."""
    if len(specs) > 1:
        return f"change one of them: {' or '.join(map(repr, specs))}"
    spec = parse_spec(specs[0]) if specs else None
    if spec and only_system(spec.name):
        return f"only {only_system(spec.name)} has {spec.name}: remove it"
    if spec and package_of(spec.name) != normalise_name(spec.name):
        return f"{spec.name} is the name of a module; its package is {package_of(spec.name)}: name that under pip:"
    if specs and re.search(r"\[[^=\]]+\]$", specs[0]):
        return "a package of conda has no extras: name it under pip:"
    if specs and without_build(specs[0]) != specs[0]:
        return (
            f"write {without_build(specs[0])}, without the build: channels remove builds, and other systems have others"
        )
    return "check name and version, or name a channel that has it; PyPI packages belong under pip:"


def _line(place: str) -> str:
    number = place.rpartition(":")[2]
    return f" (line {number})" if number.isdigit() else ""

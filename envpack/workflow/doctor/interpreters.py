"""The probe of the Pythons: those of this machine, and those that uv can fetch."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from envpack.conda import SUPPORTED, FetchError, available_interpreters, fetchable, interpreter_here, unreadable_folders
from envpack.settings import Project
from envpack.support.errors import EnvpackError
from envpack.workflow.doctor.observation import Observation
from envpack.workflow.doctor.services import is_set, unreachable

_LIST_SECONDS = 3.0


def pythons(project: Project) -> Iterator[Observation]:
    """The interpreters from which environments and stubs can be built."""
    found = available_interpreters()
    usable = {one.minor: one.version for one in found if one.library}  # they are ordered by version
    static = sorted({one.minor for one in found} - usable.keys(), key=SUPPORTED.index)
    remarks = [f"without shared library: {', '.join(static)}"] if static else []
    fetched: list[str] = []
    if project.of().python_preference != "only-system":
        fetched, remark = _fetched([minor for minor in SUPPORTED if minor not in usable])
        remarks += [remark] if remark else []
    absent = [minor for minor in SUPPORTED if minor not in {*usable, *static, *fetched}]
    remarks += [f"not installed: {', '.join(absent)}"] if absent else []
    closed = unreadable_folders()
    remarks += [f"{folder} cannot be read" for folder in closed]
    what = "; ".join([", ".join(usable.values()) or "none with a shared library", *remarks])
    if closed:
        yield Observation("Pythons", "warn", what, "let this user read the folder, or unset the variable")
    elif usable or fetched:
        yield Observation("Pythons", "ok", what)
    else:
        yield Observation("Pythons", "missing", what, _fix([*static, *absent][0]))


def _fetched(lacking: list[str]) -> tuple[list[str], str]:
    """Those of the lacking minor versions that uv can fetch, and a remark about them."""
    if is_set("UV_OFFLINE"):
        return [], "UV_OFFLINE forbids uv to fetch others"
    try:
        every = fetchable(_LIST_SECONDS)
    except FetchError as error:
        return [], f"uv cannot fetch others: {error.reason}"
    offered = [minor for minor in lacking if minor in every]
    if not offered:
        return [], ""
    url = every[offered[-1]]
    place = urlsplit(url).hostname or url
    reason = unreachable(url)
    if reason:
        return [], f"uv cannot fetch others from {place}{reason}"
    return offered, f"fetched from {place} when needed: {', '.join(offered)}"


def _fix(minor: str) -> str:
    try:
        interpreter_here(minor)
    except EnvpackError as error:
        return error.hint
    return ""

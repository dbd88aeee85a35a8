"""Files that a model needs, and that are missing, or that its server does not have or may not read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from envpack.inspection.files import ACTIVATE, content_findings, module_findings, pointer_findings
from envpack.inspection.stubs import mode_fix
from envpack.repository.model import Model
from envpack.server.interface import Server
from envpack.support.placed_files import CONFIG_NAME, STUB_NAME
from envpack.verification.verdict import Failure

_WRITTEN_PATH = re.compile(r"(?<![\w.:/])/[^\s'\":,;()<>\[\]]{1,1024}")
_MOST_SEARCHED = 64 << 10  # characters of an error


def find_missing_file(model: Model) -> Failure | None:
    """The failure of a model of another backend that no server can load; None if its files are there."""
    finding = next(content_findings(model), None)
    return Failure(finding.kind, f"{finding.where}: {finding.what}", (), finding.fix) if finding else None


def explain_hidden(server: Server, model: Model, failure: Failure) -> Failure:
    """The failure with a file as its cause that the server cannot read, or with a module that the model does not get
    as its fix; the same failure if it can read all it needs.

    The server of a container sees only what is mounted, and may be another user.
    """
    repository = model.folder.parent
    moved = fix_of_written_path(failure.reason, repository, server.server_path(repository), server.unreadable)
    unfetched = fix_of_pointer(model.folder) if failure.kind == "load-failed" else ""
    if fix := moved or unfetched or _fix_of_module(model, failure.reason):
        return replace(failure, fix=fix)
    details = (failure.reason, *failure.details)
    stub = model.folder / STUB_NAME
    if failure.kind == "noexec-mount" and stub.is_file():
        if os.statvfs(stub).f_flag & os.ST_NOEXEC:  # where nothing runs, the server has changed the mode
            return failure
        if stub.stat().st_mode & 0o111 != 0o111:
            return Failure("stub-not-executable", f"the server may not run {stub}", details, mode_fix(stub))
    places = {place: path for path, place in _places(server, model, "\n".join(details))}
    place = PurePosixPath(server.unreadable(tuple(places)))
    hidden = places.get(str(place))
    if hidden is None or place.name not in server.list_folder(str(place.parent)):
        return failure  # what is not there is no matter of links and modes
    if hidden.is_symlink():
        reason = f"{hidden} is a link to {hidden.readlink()}, which the server does not have or may not read"
        fix = "replace the link by what it leads to, as `envpack layout` does, or add --runtime process"
        if not hidden.exists():
            reason = f"{hidden} is a link to {hidden.readlink()}, which does not exist"
            fix = "correct the link, or remove it"
        return Failure("broken-link", reason, details, fix)
    reason = f"{hidden} can only be read by its owner or group, and the server runs as another user"
    is_all_of_it = hidden == model.folder.parent  # other models are none of this one's business
    closed = hidden if is_all_of_it or not hidden.is_relative_to(model.folder) else model.folder
    return Failure("not-for-everybody", reason, details, f"chmod {'' if is_all_of_it else '-R '}a+rX {closed}")


def _fix_of_module(model: Model, reason: str) -> str:
    findings = module_findings(model).items() if model.has_stub else ()
    return next((f"{one.where}: {one.what}; {one.fix}" for name, one in findings if f"'{name}'" in reason), "")


def fix_of_pointer(folder: Path) -> str:
    """What to do about a file that git-lfs did not fetch, which an unknown error may be due to."""
    finding = next(pointer_findings(folder, None), None)
    return f"{finding.where}: {finding.what}; {finding.fix}" if finding else ""


def why_hidden(server: Server, model: Model, said: str) -> tuple[str, ...]:
    """The cause and the fix of `explain_hidden` for what a server says of a model; nothing if it can read all."""
    failure = Failure("load-failed", said)
    explained = explain_hidden(server, model, failure)
    reason = () if explained.reason == said else (explained.reason,)
    return () if explained is failure else (*reason, explained.fix)


def fix_of_written_path(said: str, repository: Path, there: str, unreadable: Callable[[Sequence[str]], str]) -> str:
    """What to do about a path that names a file of the repository, which the model has at ``there`` instead."""
    there = os.path.normpath(there)
    for path in _WRITTEN_PATH.findall(said[:_MOST_SEARCHED]):
        _, *parts = PurePosixPath(path).parts
        for at in range(1, len(parts) - 1):
            prefix, below = "/" + "/".join(parts[:at]), "/".join(parts[at:])
            is_file = prefix != there and ".." not in parts and (repository / below).exists()
            if is_file and unreadable((path,)):
                served_from = "" if prefix == "/models" else f" --set served_from={prefix}"
                other = f"serve the repository at {prefix}: envpack verify --runtime docker{served_from}"
                return f"the file is at {there}/{below}: begin its path with one of Path(__file__).parents; or {other}"
    return ""


def _places(server: Server, model: Model, said: str) -> Iterator[tuple[Path, str]]:
    """What the server needs to load a model, and what its failure mentions: here, and on the server, parents first."""
    repository = model.folder.parent
    yield repository, server.server_path(repository)
    yield model.folder, _place(server, model.folder)
    environments = [model.environment] if model.environment else []
    environments += [place / ACTIVATE for place in environments]
    beside = filter(Path.is_symlink, repository.iterdir())  # a server looks at all of the repository
    for path in [*beside, *_entries(model.folder, environments), *environments]:
        place = _place(server, path)
        is_first = path.is_symlink() or path.name.isdecimal() or path.name == CONFIG_NAME
        is_needed = path in environments or (is_first and path.parent == model.folder)
        if (is_needed or place in said) and os.path.lexists(path) and "\n" not in place:
            yield path, place


def _place(server: Server, path: Path) -> str:
    return f"{server.server_path(path.parent)}/{path.name}"


def _entries(folder: Path, without: list[Path]) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        yield from (Path(here, name) for name in sorted((*folders, *files)))
        folders[:] = [name for name in folders if Path(here, name) not in without and name != "__pycache__"]

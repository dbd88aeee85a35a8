"""Checks of the server as a whole: other folders in the repository, a second load of all models together, a clean
unload; and what those of several servers say together.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import wait
from functools import partial
from pathlib import Path

from envpack.inspection.files import folder_findings
from envpack.repository.folders import Stamps, source_stamps
from envpack.repository.model import Model
from envpack.server.interface import Runtime, Server
from envpack.server.kserve import Client, RequestError
from envpack.server.log import FILES_LIMIT, failures_to_finalize, faults_of_unloaded, read_model_error, restarts
from envpack.server.made_objects import SHARED_MEMORY
from envpack.server.stale_runs import OWN_FILES, VARIABLE
from envpack.support.placed_files import STUB_NAME
from envpack.support.pool import in_background
from envpack.support.text import printable
from envpack.verification.checks.compared import LEFT_BEHIND
from envpack.verification.explanations import explain
from envpack.verification.fault_catalogue import WRITE_ELSEWHERE
from envpack.verification.loading import locate, request_load, suggest_fix
from envpack.verification.stub_processes import is_template, living_stubs, model_of
from envpack.verification.verdict import Check, Failure, check, failed, passed, unchecked, warning

_UNLOAD_SECONDS = 10.0
_TEMPLATE_SECONDS = 40.0  # a template waits 30 seconds for an instance after it has completed a configuration
_POLL_SECONDS = 0.1
_PART, _LONGEST_LINE = 2 << 20, 64 << 10  # bytes of a log
_LEAST_HIDDEN = 4 << 20  # bytes
_MOST_FILES = 20_000  # that are listed of all that models have written
_NOT_AT_HOME = (
    "put what it downloads beside its code, else each start of a server needs the network; write other files below /tmp"
)
_SHARED_MEMORY_OF_CONTAINERS = 64 << 20  # bytes


@check("runtime", of="server", step="start")
def check_runtime(runtime: Runtime) -> Check | None:
    """Only where a daemon cannot be used, or lacks the image: a warning that the server of this machine was used"""
    reason = runtime.instead_of
    if reason is None:
        return None
    return warning("runtime", f"{reason.what}, so a server of this machine was used", reason.fix)


@check("published", of="server", step="start")
def check_published(fault: tuple[str, str] | None) -> Check:
    """Only where nothing records what was published at an address, because another program put it there, or somebody
    removed the record: not checked; and where the copy serves, but no server reads the address: a warning
    """
    if fault:
        return warning("published", *fault)
    return unchecked(
        "published",
        "nothing records what was published there, so that a changed file would not be noticed",
        "publish it with `envpack publish`, and leave its record there",
    )


def stamps_of(models: Sequence[Model], pattern: str = "*.py") -> Stamps:
    """What ``envpack build`` or an author replaces: configurations, code, environments, stubs, as they are now."""
    found = set[tuple[str, int, int]]().union(*(source_stamps(model.folder, pattern) for model in models))
    for place in (place for model in models for place in (model.environment, model.folder / STUB_NAME) if place):
        with contextlib.suppress(OSError, ValueError):
            found.add((str(place), place.stat().st_ino, 0))  # the server changes the mode, and a model may add files
            packages = place.glob("lib/python3*/site-packages") if pattern == "*" else ()
            found |= {(str(folder), folder.stat().st_mtime_ns, 0) for folder in packages}
    return frozenset(found)


@check("unchanged", of="server", step="unload")
def check_unchanged(models: Sequence[Model], before: Stamps) -> Check | None:
    """Only if code, a configuration, an environment or a stub was replaced meanwhile: not checked, since the server
    had read what was there before
    """
    changed = sorted({path for path, *_ in before - stamps_of(models)})
    if not changed:
        return None
    more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
    return unchecked(
        "unchanged",
        f"{changed[0]} was changed while it was verified{more}; what is there now was not checked",
        "verify again while no other program builds or edits the models",
    )


@check("written", of="server", step="unload")
def check_written(models: Sequence[Model], before: Stamps) -> Check | None:
    """Only if a model has written files beside its code: a warning, because many servers have the repository read-only,
    as that of a container has it here
    """
    named = {path for path, *_ in stamps_of(models)}  # by `unchanged`: a person edits them
    written = sorted({path for path, *_ in stamps_of(models, "*") - before} - named)
    if not written:
        return None
    more = f", and {len(written) - 1} more" if len(written) > 1 else ""
    what = f"a model wrote {written[0]}{more}, which fails where the repository is mounted read-only"
    return warning("written", what, WRITE_ELSEWHERE)


@check("shared-memory", of="server", step="unload")
def check_shared_memory(server: Server) -> Check | None:
    """Only shown where the server is a process, if it and its models use more shared memory than the 64 MB that a
    container has unless it is given more: a warning
    """
    used = 0
    for name in server.shared_memory():
        with contextlib.suppress(FileNotFoundError):  # a model removes one now, or a container has it
            used += Path(SHARED_MEMORY, name).stat().st_blocks * 512
    if used <= _SHARED_MEMORY_OF_CONTAINERS:
        return None
    what = f"the models use {used >> 20} MiB of /dev/shm, of which a container has 64 unless it is given more"
    return warning("shared-memory", what, f"start the container with --shm-size={2 * used >> 20}m")


@check("home", of="server", step="unload")
def check_home(server: Server) -> Check | None:
    """Only shown where the server is a process, if models write to their home folder, which is their working folder
    here and empty before: files with plain names, or more than 4 MiB in a hidden folder, where libraries keep what they
    download; a warning
    """
    home = Path(next((server.variables(stub.pid).get(VARIABLE, "") for stub in living_stubs(server)), ""))
    entries = list[Path]()
    with contextlib.suppress(OSError):  # a model removes files now
        found = itertools.chain(home.glob("[!.]*"), home.glob(".*/*")) if home.is_absolute() else ()
        entries = sorted(itertools.islice(found, _MOST_FILES))
    left = iter(range(_MOST_FILES))
    for entry in entries:
        size = 0
        with contextlib.suppress(OSError):
            files = itertools.chain((entry,), () if entry.is_symlink() else entry.rglob("*"))
            size = sum(file.lstat().st_size for file, _ in zip(files, left, strict=False) if file.is_file())
        if size >= _LEAST_HIDDEN if entry.parent != home else entry.name not in OWN_FILES:
            what = f"a model wrote {entry.relative_to(home)} ({size / 1e6:.1f} MB) to its home or working folder"
            return warning("home", f"{what}; another server begins without it, and may not write there", _NOT_AT_HOME)
    return None


@check("repository", of="server", step="start")
def check_repository(repository: Path) -> Check:
    """It contains nothing but models; a warning, because only a server that loads everything at its start exits because
    of it
    """
    findings = tuple(folder_findings(repository))
    if not findings:
        return passed("repository", "every folder is a model, as a server requires that loads all models at its start")
    names = ", ".join(finding.where.name for finding in findings)
    evidence = f"a server that loads all models at its start fails because of {names}: {findings[0].what}"
    return warning("repository", evidence, findings[0].fix)


_ENDS_BADLY = "look at finalize, and at what libraries do when the process ends"
_COMPETE = "each loads alone, so they compete for memory, GPU memory, a port, or a file that both write"


@check("together", of="server", step="together", kind="together")
def check_together(client: Client, models: Sequence[str], timeout: float) -> Check:
    """All models load at the same time, as at the start of a server in production, and answer as before; the
    warnings of `again` are given here, too

    Each model can be served by itself, but not when all are loaded at the same time, as a server does when it
    starts. They conflict over something: memory, GPU memory, a port, a file that both write or lock. Or one loads
    and answers otherwise than before: see `again`. The line names the model that failed, and why.
    """
    started = time.monotonic()
    loads = {name: in_background(partial(request_load, client, name, timeout), f"load {name}") for name in models}
    while wait(loads.values(), _POLL_SECONDS).not_done:  # Ctrl-C ends it
        pass
    broken = {name: error.message for name, load in loads.items() if (error := load.result())}
    try:
        entries = client.index()
    except RequestError as error:
        if error.status:
            what = f"with all models loaded, the server cannot list them any more: {error.message}"
            return failed("together", what, FILES_LIMIT)
        fix = "look for what ends the server when all models run: too little memory, or a model that ends processes"
        return failed("together", f"with all models loaded, the server does not answer: {error.message}", fix)
    ready = {entry.name for entry in entries if entry.state == "READY"}
    states = {entry.name: entry.state for entry in entries if entry.state}
    broken = {name: f"its state is {states.get(name)}" for name in models if name not in ready} | broken
    if broken:
        name, reason = next(iter(broken.items()))
        return failed("together", f"loaded at the same time, {name} fails: {reason.splitlines()[0]}", _COMPETE)
    return passed("together", f"all {len(models)} loaded at the same time in {time.monotonic() - started:.1f} s")


@check("again", of="server", step="together", kind="again")
def check_again(client: Client, model: str, timeout: float) -> Check:
    """Only of a single model, or where all do not load together: it loads a second time and answers as before, as where
    a server starts again; an answer that is only another one is a warning, and so is a first one that takes two seconds
    and ten times as long as the next

    A model loads once and not again, or answers otherwise then. Something is left of its first load: a file or a
    folder that it makes and that may not exist, a lock, a port. Let `finalize` remove it, or let `initialize` accept
    it: a server that was killed and starts again does not call `finalize`.
    """
    started = time.monotonic()
    if error := request_load(client, model, timeout):
        what = f"loaded a second time, {model} fails: {error.message.splitlines()[0]}"
        return failed("again", what, LEFT_BEHIND)
    return passed("again", f"{model} loaded a second time in {time.monotonic() - started:.1f} s")


def failed_together(model: str, failure: Failure) -> Check:
    """The check for a model that ended the server, or had no file left, while others were loaded, and alone did not."""
    what = "could open no further file" if failure.kind == "too-many-files" else "ended"
    evidence = f"the server {what} when {model} was loaded beside the models before it"
    return failed("together", evidence, failure.fix or _COMPETE)


@check("shutdown", of="server", step="unload", kind="shutdown")
def unload_all(client: Client, server: Server, models: Sequence[str]) -> Check:
    """All are unloaded, and ten seconds later no process and no shared memory is left; a template without an instance
    may take forty

    A model was unloaded and its process, or its shared memory, still exists after ten seconds. Check `finalize`,
    and the threads and processes that the model starts: they must be daemons, or `finalize` must end them.
    """
    # Ensembles are unloaded before their members.
    started = time.monotonic()
    try:
        for name in reversed(models):
            client.unload(name)
        unloaded = time.monotonic()
        left, limit = _left(client, server, models)
        while left and time.monotonic() < unloaded + limit:
            time.sleep(_POLL_SECONDS)
            left, limit = _left(client, server, models)
    except RequestError as error:
        fix = "check its finalize, and whether it ends the server"
        return failed("shutdown", f"a model cannot be unloaded: {error.message}", fix)
    if left:
        fix = (
            "a model does not end what it has started: check its finalize, and the threads and processes that it starts"
        )
        return failed("shutdown", f"{limit:g} s after unloading all models the server still has {left}", fix)
    return passed("shutdown", f"unloaded in {time.monotonic() - started:.1f} s: no process, no shared memory left")


@check("restarts", of="server", step="unload", kind="stub-died")
def check_restarts(server: Server) -> Check | None:
    """Only shown if it fails: no process of a model ended after its answers, which envpack's stub reports"""
    found: dict[str, str] = {}
    for start in range(0, server.log_size(), _PART):  # a long log as a whole is without its middle
        found |= restarts(server.log(start, start + _PART + _LONGEST_LINE))
    ended = [f"{instance} was started again: {reason}" for instance, reason in found.items()]
    fix = "find what ends the process after its answer: a thread, a timer, or a library that works in the background"
    return failed("restarts", "; ".join(ended), fix) if ended else None


@check("finalize", of="server", step="unload")
def check_finalize(server: Server, models: Sequence[Model], log: str) -> Check | None:
    """Only shown if `finalize` of a model raised an exception, or its process crashed or hung then, which only the
    server's log reports: a warning
    """
    fixes = dict[str, str]()
    for text in failures_to_finalize(log):
        errors = ((model.name, read_model_error(text, server.server_path(model.folder))) for model in models)
        named = next((entry for entry in errors if entry[1].frames), None)
        if named is None and "At:" in text:  # of a model that is not verified
            continue
        name, error = named or (models[0].name if len(models) == 1 else "a model", read_model_error(text, ""))
        what = f"{name} raised an exception in finalize: {error.reason}"
        fixes[what] = locate(explain(error.text, "load-failed")[1], error.frames) or suggest_fix(error.frames)
    found = [*fixes, *faults_of_unloaded(log)]
    fix = next(iter(fixes.values()), _ENDS_BADLY)
    return warning("finalize", "; ".join(found), fix) if found else None


def _left(client: Client, server: Server, models: Sequence[str]) -> tuple[str, float]:
    """What remains of the models, in words, ``""`` if nothing does; and for how many seconds after an unload it may."""
    loaded = [entry.name for entry in client.index() if entry.name in models and entry.state == "READY"]
    if loaded:
        return f"the model {loaded[0]}", _UNLOAD_SECONDS
    if stubs := living_stubs(server):
        return f"process {stubs[0].pid} of {model_of(stubs[0])}", _UNLOAD_SECONDS
    orphans = server.orphans()
    others = [orphan for orphan in orphans if not is_template(orphan)]
    if others:
        what = printable(" ".join(others[0].arguments)) or others[0].name
        return f"process {others[0].pid} ({what})", _UNLOAD_SECONDS
    if regions := server.shared_memory():
        return f"shared memory {regions[0]}", _UNLOAD_SECONDS
    return (f"process {orphans[0].pid}, a template", _TEMPLATE_SECONDS) if orphans else ("", 0.0)

"""The server of a session: loads in a thread, failures with lines of a model's code, and what it counts for each."""

from __future__ import annotations

import contextlib
import linecache
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.development.debugger import WAITING, Debugger
from envpack.development.models import ModelState, in_lines
from envpack.repository.model import open_model
from envpack.server.interface import Server, StopResult
from envpack.server.kserve import Client, RequestError
from envpack.server.log import configuration_error, is_poll_failure, plain_lines, read_model_error, request_failures
from envpack.support.errors import EnvpackError
from envpack.support.processes import how_ended
from envpack.verification.hidden_files import why_hidden
from envpack.verification.loading import abort_and_read_frames
from envpack.verification.stub_processes import DeadStubTimer, dead_stubs, instances

_DEAD_SECONDS = 4.0  # in which the server notices that the process of a model that it loads has ended
_MOST_DEATHS = 10  # of the stubs of a model
_LOG_BYTES = 64 << 10
_ENDING_SECONDS = (
    5.0  # in which the instances of an earlier load, or of one that failed, are not counted as the model's
)


@dataclass
class _Counts:
    """What a server had counted for a model at the last look."""

    at: float = 0.0
    requests: int = 0
    nanoseconds: int = 0


class Served:
    """Models on a running server."""

    def __init__(
        self,
        server: Server,
        repository: Path,
        states: Mapping[str, ModelState],
        changed: Callable[[], None],
        prepare: Callable[[str], None],
        *,
        ended: Callable[[str], None],
        timeout: float,
    ) -> None:
        self._server, self._repository, self._states = server, repository, states
        self._changed, self._prepare, self._load_ended = changed, prepare, ended
        self._timeout = timeout
        self._client = Client(server.url)
        self._counts: dict[str, _Counts] = {}
        self._ending: dict[str, tuple[float, frozenset[int]]] = {}  # stubs that have to end, until this time
        self._stubs_of: dict[str, frozenset[int]] = {}  # the stubs that serve each model
        self._deaths: dict[str, int] = {}  # how often these have ended since the model changed
        self._log_start = 0
        self._log_read = 0
        self._reading = threading.RLock()  # of failures
        self._ended: StopResult | None = None
        self._dead_before: frozenset[int] = frozenset()
        self._dying = DeadStubTimer(time.monotonic())
        # The model whose load never ends because its process has: servers up to Triton 24.10 wait for it for ever.
        self.lost = self.last_output = ""
        self.has_died = False  # whether the server has ended by itself
        self._loader = Loader(self._load)

    def load(self, names: Sequence[str], started: float) -> None:
        """Load models that have changed, one after the other, after those that wait already."""
        for name in names:
            self._deaths.pop(name, None)
        self._loader.put(names, started)

    def unload(self, name: str) -> None:
        self._loader.discard(name)
        self._states[name].serves = False
        with contextlib.suppress(RequestError):  # it may never have been loaded
            self._client.unload(name)

    def release(self, debugger: Debugger) -> None:
        """Let the next instance of a model wait for a debugger; raises what `Debugger.release` does."""
        state = self._states.get(debugger.model)
        if state is not None:
            state.serves = False
        debugger.release(self._client, self._server)

    def is_blocked(self, seconds: float) -> bool:
        return self._loader.is_blocked(seconds)

    def look(self) -> None:
        """Read what the server has counted, and whether it still runs; raises what a load has raised."""
        self._loader.check()
        dead = frozenset(dead_stubs(self._server))
        for name, state in list(self._states.items()):
            if state.serves:
                self._count(name, state)
                until, ending = self._ending.get(name, (0.0, frozenset()))
                every = time.monotonic() > until
                found = [each for each in instances(self._server, name) if every or each.stub.pid not in ending]
                state.memory = tuple(self._server.memory_bytes(instance.worker.pid) for instance in found)
            if state.phase == "ready" and dead & self._stubs_of.get(name, frozenset()):
                self._load_after_death(name, state)
            if state.phase == "loading" and WAITING in self._server.log(self._log_start):
                state.phase = "attaching"
        self._read_failures()
        self._look_for_the_dead(dead)
        self.has_died = self._server.ended()

    def _load_after_death(self, name: str, state: ModelState) -> None:
        """Load a model again whose stub has ended, since the server starts no other one."""
        self._deaths[name] = deaths = self._deaths.get(name, 0) + 1
        rest = "" if deaths < _MOST_DEATHS else f" {deaths} times; save one of its files to load it again"
        lines = plain_lines(self._server.log(self._log_start))
        state.phase, state.serves = "failed", False
        state.error = "\n".join((f"the model's process ended{rest}", *lines))
        self._changed()
        if not rest:
            self._loader.put([name], time.monotonic())

    def _look_for_the_dead(self, dead: frozenset[int]) -> None:
        """Give up a load that cannot end any more."""
        name = self._loader.loading
        self._dying.update(dead - self._dead_before if name else frozenset(), time.monotonic())
        state = self._states.get(name)
        if state is not None and self._dying.seconds > _DEAD_SECONDS:
            lines = plain_lines(self._server.log(self._log_start))
            state.phase, state.error = "failed", "\n".join(("the model's process ended during the load", *lines))
            self.lost = name
            self._changed()

    def is_over(self) -> bool:
        return self._server.ended()

    def written_files(self, name: str) -> frozenset[Path]:
        """Files of this machine that the processes of a model have open for writing."""
        pids = {pid for each in instances(self._server, name) for pid in (each.stub.pid, each.worker.pid)}
        found = (self._server.host_path(file) for pid in pids for file in self._server.written_files(pid))
        return frozenset(file for file in found if file is not None)

    def log(self) -> str:
        return self._server.log(max(0, self._server.log_size() - _LOG_BYTES))

    def end(self, *, now: bool) -> None:
        self.has_died = self._server.ended()
        self.last_output = self.log()
        idle = self._loader.is_idle()
        self._loader.close()
        self._ended = self._server.stop(force=now or not idle)

    def join(self) -> None:
        self._loader.join()

    @property
    def end_in_words(self) -> str:
        return how_ended(self._ended.exit_code if self._ended is not None else 0)

    def _load(self, name: str, started: float) -> None:
        """Load one model; called in the thread of the loader."""
        state = self._states.get(name)
        if state is None:
            return
        state.phase, state.error = "loading", ""
        self._log_start = self._server.log_size()
        self._dead_before = frozenset(dead_stubs(self._server))
        self._changed()
        before = self._stubs(name)
        try:
            if name in self._deaths:
                self._client.unload(name)  # a server loads nothing again that has not changed
            self._prepare(name)
            self._client.load(name, timeout=self._timeout)
        except RequestError as error:
            if self._server.ended() or not (error.status or error.timed_out):
                return  # not the model's fault, and reported by who notices the end
            folder, log = self._repository / name, self._server.log(self._log_start)
            on_server = self._server.server_path(folder)
            frames = self._end_load(folder, before) if error.timed_out else ()
            self._ending[name] = time.monotonic() + _ENDING_SECONDS, self._stubs(name) - before
            if error.timed_out:
                places = [line for frame in frames for line in _place(frame, folder, on_server)]
                ended = f"not loaded after {self._timeout:g} s, and ended"
                state.error = "\n".join([ended, *places, "--timeout allows more time"])
            else:
                state.error = self._with_cause(load_failure(error.message, folder, on_server, log), folder)
            state.phase = "failed"
        except EnvpackError as error:
            state.phase, state.error = "failed", in_lines(error)
        else:
            state.loads += 1
            self._stubs_of[name] = self._stubs(name) - before
            self._ending[name] = time.monotonic() + _ENDING_SECONDS, before
            state.serves, state.phase = True, "ready"
            state.requests, state.failures, self._counts[name] = 0, 0, _Counts(time.monotonic())
            with self._reading:
                self._read_failures()  # of what ran before
                state.request_error = ""
        finally:
            self._load_ended(name)
        state.seconds = time.monotonic() - started
        self._changed()

    def _with_cause(self, failure: str, folder: Path) -> str:
        """What a failed load says, with the file that the server cannot read, if there is one."""
        try:
            return "\n".join((failure, *why_hidden(self._server, open_model(folder), failure)))
        except EnvpackError:  # its files are being changed
            return failure

    def _end_load(self, folder: Path, before: frozenset[int]) -> tuple[str, ...]:
        """End the processes of a model that takes too long to load, not those from before; returns where they stood."""
        try:
            return abort_and_read_frames(self._server, open_model(folder), before)
        except EnvpackError:  # its files are being changed
            return ()

    def _stubs(self, name: str) -> frozenset[int]:
        return frozenset(instance.stub.pid for instance in instances(self._server, name))

    def _read_failures(self) -> None:
        """Read the errors of requests that envpack's stubs have written since the last look."""
        with self._reading:
            size = self._server.log_size()
            log = self._server.log(max(self._log_read, size - _LOG_BYTES))
            self._log_read = size
            for instance, message in request_failures(log).items():
                name = self._model_of(instance, message)
                state = self._states.get(name)
                if state is not None:
                    folder = self._repository / name
                    state.request_error = load_failure(message, folder, self._server.server_path(folder), "")

    def _model_of(self, instance: str, message: str) -> str:
        """The model of an instance, whose name may be chosen by its configuration; ``""`` if it is unknown."""
        names = list(self._states)  # another thread can change it
        folders = {name: self._server.server_path(self._repository / name) for name in names}
        in_trace = [name for name, folder in folders.items() if f"{folder}/" in message]
        named = [name for name in names if instance.startswith(f"{name}_")]
        return in_trace[0] if len(in_trace) == 1 else max(named, key=len, default="")

    def _count(self, name: str, state: ModelState) -> None:
        try:
            (entry, *_) = self._client.statistics(name)["model_stats"]
        except (RequestError, KeyError, ValueError):
            return
        now, before = time.monotonic(), self._counts.get(name, _Counts())
        totals = entry.get("inference_stats", {}).get("success", {})
        requests, nanoseconds = int(totals.get("count", 0)), int(totals.get("ns", 0))
        new = max(0, requests - before.requests)
        state.requests = requests
        state.failures = int(entry.get("inference_stats", {}).get("fail", {}).get("count", 0))
        state.per_second = new / max(now - before.at, 1e-3)
        state.latency = (nanoseconds - before.nanoseconds) / new / 1e9 if new else 0.0
        self._counts[name] = _Counts(now, requests, nanoseconds)


_SYNTAX = re.compile(r"\((?P<file>\w+\.py), line (?P<line>\d+)\)$")
_TRACE = "At:"  # begins the list of frames
_FRAME = re.compile(r"(?P<file>/.+):(?P<line>\d+) in (?P<function>.+)")


def load_failure(message: str, folder: Path, on_server: str, log: str) -> str:
    """What a failed load or request says, in lines."""
    error = read_model_error(message, on_server)
    frames = [*reversed(error.frames)] or _syntax_frame(error.reason, folder, on_server)
    places = [line for frame in frames for line in _place(frame, folder, on_server)]
    details = [line.rstrip() for line in error.text.splitlines()[1:] if line.strip()]
    if places:  # without what these lines repeat
        details = [line for line in details if f"{on_server}/" not in line]
        details = details if details != [_TRACE] else []
    reason = error.reason
    if is_poll_failure(message) and (better := configuration_error(log)):
        reason = better
    return "\n".join([reason, *places, *details])


def _syntax_frame(reason: str, folder: Path, on_server: str) -> list[str]:
    """The place that a syntax error names; a server passes on no more of it than the file's name and the line."""
    found = _SYNTAX.search(reason)
    if found is None:
        return []
    files = sorted(folder.glob(f"[0-9]*/**/{found['file']}"))
    return [f"{on_server}/{files[0].relative_to(folder)}:{found['line']} in <module>"] if len(files) == 1 else []


def _place(frame: str, folder: Path, on_server: str) -> list[str]:
    found = _FRAME.fullmatch(frame)
    if found is None:
        return [frame]
    file = folder / found["file"].removeprefix(f"{on_server}/")
    linecache.checkcache(str(file))
    code = linecache.getline(str(file), int(found["line"])).strip()
    shown = f"{folder.name}/{file.relative_to(folder)}:{found['line']} in {found['function']}"
    return [shown, f"    {code}"] if code else [shown]


_END_SECONDS = 5.0


class Loader:
    """Loads models one after the other."""

    def __init__(self, load: Callable[[str, float], None]) -> None:
        self._load = load
        self._pending: dict[str, float] = {}
        self._current, self._since = "", 0.0
        self._closed = False
        self._error: Exception | None = None
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)
        self._thread.start()

    def put(self, names: Sequence[str], started: float) -> None:
        """Load these models, in this order; one that is being loaded is loaded once more."""
        with self._change:
            for name in names:
                self._pending.setdefault(name, started)
            self._change.notify()

    def discard(self, name: str) -> None:
        with self._change:
            self._pending.pop(name, None)

    @property
    def loading(self) -> str:
        return self._current

    def is_idle(self) -> bool:
        with self._change:
            return not self._current and not self._pending

    def is_blocked(self, seconds: float) -> bool:
        """Whether a model that has changed since has been loading for longer than this."""
        with self._change:
            return self._current in self._pending and time.monotonic() - self._since > seconds

    def check(self) -> None:
        """Raise what a load has raised."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Load nothing more. A load that is under way ends with the server."""
        with self._change:
            self._closed = True
            self._pending.clear()
            self._change.notify()

    def join(self) -> None:
        """Wait for the end of the last load, after the server's."""
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while True:
            with self._change:
                self._current = ""
                self._change.wait_for(lambda: self._pending or self._closed)  # no limit: put() and close() end it
                if self._closed:
                    return
                name = self._current = next(iter(self._pending))
                started, self._since = self._pending.pop(name), time.monotonic()
            try:
                self._load(name, started)
            except Exception as error:
                self._error = error
                return

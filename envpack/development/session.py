"""A server on which models are loaded again whenever they change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from envpack.development.changes import Change, FileFinder, OwnWrites, Snapshot, wait_for_changes
from envpack.development.debugger import UTILITIES, Debugger
from envpack.development.models import ModelState, Phase, ServedModels, in_lines
from envpack.development.served import Served
from envpack.local.running import python_of
from envpack.repository.placement import backends_folder
from envpack.server.choice import OF_EVERY_SERVER, ServerSpec, choose_runtime
from envpack.server.interface import Runtime
from envpack.server.log import last_lines
from envpack.settings.project import Project, open_project
from envpack.settings.table import RuntimeName
from envpack.support.errors import EnvpackError, InputError, ServerError
from envpack.support.interruption import caught
from envpack.support.progress import Progress
from envpack.workflow.build import build_model

_LOOK_SECONDS = 1.0
_WRITE_SECONDS = 0.03
_MOST_WRITES = 10  # a model may write into its own folder all the time
_MOST_LOOKS = 10  # for files that were lost to come back, or to be all that is lost
_PATIENCE = 5.0  # seconds that a load may take after which a change of its model ends it
_LOAD_WITH_DEBUGGER = 7 * 24 * 3600.0  # seconds: it can hold a model for any time, until a change of it, or Ctrl-C
_LONG_LIFE = 60.0  # seconds after which the end of a server has nothing to do with its start
_MOST_DEATHS = 3  # of servers, one after the other


class Session:
    """Models on a server, which are built and loaded again when they change."""

    def __init__(
        self,
        project: Project,
        names: Sequence[str],
        runtime: RuntimeName,
        *,
        show: Callable[[], None],
        progress: Progress,
        timeout: float = 120.0,
        debugger: Debugger | None = None,
    ) -> None:
        self._project = project
        self._said, self._backends = project.of().saying(runtime=runtime), backends_folder(project)  # of all servers
        self._show, self._progress, self._debugger = show, progress, debugger
        self._timeout = timeout if debugger is None else _LOAD_WITH_DEBUGGER
        self._showing = threading.RLock()
        self._finder = FileFinder(project)
        self._own = OwnWrites()
        self._models = ServedModels(project.repository, names)
        self._built: dict[str, Path | None] = {}  # environments of the models that have been built
        self._served: Served | None = None
        self._completes = self._must_complete = False
        self._deaths = 0
        self._lost: set[str] = set()  # models whose process ends at every load, until they change
        self.states = {name: ModelState(name) for name in self._models.order()}
        self._fault = self._death = ""  # of the settings; of the server
        self.url = ""

    def run(self, stop: threading.Event) -> None:
        """Build and load all models, then follow changes until `stop` is set or Ctrl-C is pressed."""
        self._seen = self._finder.snapshot(self.states)
        try:
            for name in self._models.order():
                self._build(name)
            while not stop.is_set():
                self._serve(stop)
        except KeyboardInterrupt as error:  # the usual end
            caught(error)

    @property
    def trouble(self) -> str:
        """What is wrong beside a model, in lines; ``""`` for nothing."""
        return "\n".join(filter(None, (self._fault, self._death)))

    def log(self) -> str:
        return self._served.log() if self._served is not None else ""

    def _serve(self, stop: threading.Event) -> None:
        self._completes = self._must_complete = self._completes or any(
            model.may_complete for model in self._models.models()
        )
        for state in self.states.values():
            state.serves, state.memory, state.per_second, state.latency = False, (), 0.0, 0.0
        started = time.monotonic()
        with self._runtime().start(self._project.repository) as server:
            self._served = served = Served(
                server,
                self._project.repository,
                self.states,
                self._changed,
                self._prepare,
                ended=self._own.load_ends,
                timeout=self._timeout,
            )
            self.url = server.url
            try:
                served.load([name for name in self._models.order() if self._may_load(name)], started)
                self._follow(served, stop)
            except KeyboardInterrupt as error:
                caught(error)
                stop.set()
            finally:
                served.end(now=not stop.is_set() or self._debugger is not None)  # which can hold a request for any time
        served.join()
        self._served = None
        self._lost |= {served.lost} - {""}
        if served.has_died and not stop.is_set():
            self._count_death(served.end_in_words, served.last_output, time.monotonic() - started)

    def _runtime(self) -> Runtime:
        """The runtime of the next server, on the port of the one before."""
        said = self._said.only("runtime", "image", "triton", "served_from", *OF_EVERY_SERVER)
        completion = () if self._completes else ("--disable-auto-complete-config",)
        spec = ServerSpec(
            said.saying(
                port=urlsplit(self.url).port or self._said.port,
                server_arg=("--log-verbose=0", *completion, *self._said.server_arg),
            ),
            backends=self._backends,
            variables={"ENVPACK_LOG_FAILURES": "1", **(self._debugger.variables() if self._debugger else {})},
            utilities=UTILITIES if self._debugger else None,
        )
        return choose_runtime(spec, self._project.repository, self._models.models())

    def _follow(self, served: Served, stop: threading.Event) -> None:
        """Carry out what changes of files require, until the server has to be started again."""
        while not stop.is_set():
            folders = self._folders()
            for _ in wait_for_changes(folders, stop, _LOOK_SECONDS):
                self._carry_out(served, stop)
                if (
                    served.has_died
                    or served.lost
                    or served.is_blocked(_PATIENCE)
                    or self._must_complete != self._completes
                ):
                    return
                served.look()
                self._changed()
                if self._folders() != folders:
                    break

    def _carry_out(self, served: Served, stop: threading.Event) -> None:
        started = time.monotonic()
        now = self._settled_snapshot(served, stop)
        self._leave_out_own_writes(served, now)
        if now.settings != self._seen.settings:
            settings = now.settings  # of a moment before they are read, so that no later change is taken for read
            self._read_settings()
            now = self._finder.snapshot(self.states)
            now.settings = settings
            changes = [Change(name, of_requirements=True) for name in self.states]
        else:
            changes = list(self._seen.changes_to(now))
        self._seen = now
        if changes or self._models.would_change():
            self._models.refresh()
        changes += self._take_note_of_models(served)
        changes = [change for change in changes if change.model in self.states]
        if not changes:
            return
        self._deaths, self._death = 0, ""
        self._lost -= {change.model for change in changes}
        built = {change.model for change in changes if self._wants_build(change)}
        ready = {change.model for change in changes if change.model not in built or self._build(change.model)}
        self._must_complete = self._completes or any(model.may_complete for model in self._models.models())
        if self._must_complete != self._completes:
            return  # the next server loads all models
        for name in filter(self._models.is_gone, ready):
            served.unload(name)
            self._built.pop(name, None)
        affected = {other for name in ready for other in self._models.affected_by(name)}
        served.load([name for name in self._models.order() if name in affected and self._may_load(name)], started)

    def _settled_snapshot(self, served: Served, stop: threading.Event) -> Snapshot:
        """The files when their writers are done, or have written for ten looks.

        If files are gone, nothing has changed for a second, since a folder may be being removed: a build would write
        into what is left of it.
        """
        now = self._finder.snapshot(self.states)
        for _ in range(_MOST_WRITES if any(self._seen.changes_to(now)) else 0):
            stop.wait(_WRITE_SECONDS)  # an editor empties a file before it writes the new content
            before, now = now, self._finder.snapshot(self.states)
            if now == before:
                break
        for _ in range(_MOST_LOOKS):
            if not self._seen.lost_in(now) or stop.wait(_LOOK_SECONDS) or served.is_over():
                break
            before, now = now, self._finder.snapshot(self.states)
            if now == before:
                break
        return now

    def _leave_out_own_writes(self, served: Served, now: Snapshot) -> None:
        """Let files be as they were before in a snapshot where their model has changed them."""
        for name, files in now.models.items():
            before = self._seen.models.get(name)
            if before is not None and files != before:
                folder = self._project.repository / name
                now.models[name] = self._own.without(name, folder, before, files, served.written_files(name))
            if name in self.states:
                self.states[name].own_writes = tuple(sorted(self._own.named.get(name, ())))

    def _take_note_of_models(self, served: Served) -> Iterator[Change]:
        names = self._models.order()
        for name in self.states.keys() - set(names):
            served.unload(name)
            self._built.pop(name, None)
            self._own.forget(name)
            del self.states[name]
        for name in names:
            if name in self.states:
                continue
            self.states[name] = ModelState(name)
            self._seen.models[name] = self._finder.files(name)
            yield Change(name, of_requirements=True)

    def _read_settings(self) -> None:
        """Read ``envpack.toml`` again; a wrong one changes nothing."""
        self._fault = ""
        try:
            self._project = self._finder.project = open_project(self._project.repository, self._project.said)
        except InputError as error:
            self._fault = in_lines(error)

    def _wants_build(self, change: Change) -> bool:
        """Whether a model has to be built: it never was, what it requires changed, or it lost its environment."""
        model = self._models.model(change.model)
        if change.of_requirements or change.model not in self._built:
            return True
        if model is None:
            return False
        place = model.environment
        was_removed = model.has_own_environment and place is not None and not place.exists()
        return was_removed or place != self._built[change.model]

    def _build(self, name: str) -> bool:
        model = self._models.model(name)
        if model is None:
            return True  # what is wrong is reported instead of a load
        if model.is_ensemble:
            self._built[name] = None
            return True
        self._built.pop(name, None)
        self._enter(name, "building")
        try:
            build_model(self._project, name, self._progress)
        except EnvpackError as error:
            self._enter(name, "failed", in_lines(error))
            return False
        self._models.refresh()  # a build writes config.pbtxt
        built = self._models.model(name)
        self._built[name] = built.environment if built is not None else None
        self._seen.models[name] = self._seen.models[name].with_sources(self._finder.files(name))
        self._enter(name, "waiting")
        return True

    def _may_load(self, name: str) -> bool:
        """Whether nothing that can be seen in its files makes a load of the model fail."""
        if name not in self.states:
            return False  # it has come during a build, and is built and loaded later
        if fault := self._models.fault(name):
            self._enter(name, "removed" if self._models.is_gone(name) else "failed", fault)
            return False
        return name in self._built and name not in self._lost

    def _prepare(self, name: str) -> None:
        """Do what has to be done before a load, in the thread that loads."""
        if name in self._seen.models:
            self._own.load_begins(name, self._seen.models[name])
        model, debugger = self._models.model(name), self._debugger
        if debugger is None or model is None or name != debugger.model or self._served is None:
            return
        self._served.release(debugger)
        debugger.prepare(model, lambda: python_of(self._project, model, self._progress), self._progress)

    def _folders(self) -> frozenset[Path]:
        found = frozenset(folder for files in self._seen.models.values() for folder in files.folders)
        return frozenset(filter(Path.is_dir, found)) | {self._project.repository}

    def _count_death(self, how: str, output: str, seconds: float) -> None:
        self._deaths = 1 if seconds > _LONG_LIFE else self._deaths + 1
        lines = "\n".join(last_lines(output))
        if self._deaths >= _MOST_DEATHS:
            raise ServerError(
                "server-ended",
                f"the server ended {self._deaths} times in a row, the last time {how}; its last lines:\n{lines}",
                "correct the model that it was loading; if it was killed, free memory",
            )
        self._death = f"the server ended {how}, and was started again; its last lines:\n{lines}"
        self._changed()

    def _enter(self, name: str, phase: Phase, error: str = "") -> None:
        state = self.states[name]
        state.phase, state.error = phase, error
        self._changed()

    def _changed(self) -> None:
        with self._showing:
            self._show()

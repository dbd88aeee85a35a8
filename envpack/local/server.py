"""Models that run without a server, and reach each other as they would on one."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from envpack.local.composition import Runnable, load_steps
from envpack.local.connection import Kind
from envpack.local.ensemble import LocalEnsemble, Stream
from envpack.local.limit import Limit
from envpack.local.local_model import LocalModel, ModelSource, Responses
from envpack.local.metrics import Metrics
from envpack.local.model_process import Afterwards, LogLine, ModelFailed, ModelProcess
from envpack.local.overrides import Override, Stamp, no_version, not_found, opened_override, stamp_of
from envpack.local.values import NOTHING, Reader, Request, Response, Writer
from envpack.repository import Model
from envpack.support.errors import EnvpackError

# Before, a stream whose first response is an error has no further ones.
_FIRST_WITH_ERRORS_IN_STREAMS = 2504

# How long models may take to end what was interrupted.
_GRACE_SECONDS = 5.0

if TYPE_CHECKING:
    from envpack.server import Client

Find = Callable[[str, "Override | None"], "ModelSource | Model | None"]


@dataclass
class _Loaded:
    """A model that runs.

    Attributes:
        model: the model.
        folder: its folder in the repository; None if its files are elsewhere.
        stamp: what the files there were when it was loaded.
        given: the files that it was given instead.
    """

    model: Runnable
    folder: Path | None = None
    stamp: Stamp = ()
    given: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def is_current(self) -> bool:
        """Whether loading it again would change nothing."""
        return self.folder is not None and self.stamp == stamp_of(self.folder)

    def stop(self) -> None:
        """Stop the model."""
        self.model.stop()
        self.given.close()


class LocalServer:
    """The models of one run. Each is started when it is first used, in a process of its own."""

    def __init__(
        self,
        find: Find,
        *,
        release: int,
        log: Callable[[LogLine], None],
        variables: Mapping[str, str] | None = None,
        output: int | IO[bytes] | None = None,
        remote: Client | None = None,
        timeout: float = 120.0,
    ) -> None:
        self.metrics = Metrics()
        self._find = find
        self._release = release
        self._log = log
        self._variables = variables
        self._output = output
        self._remote = remote
        self._limit = Limit(timeout)
        self._changing = threading.Lock()  # of what follows
        self._loading: dict[str, threading.RLock] = {}  # a model that is loaded may load others
        self._models: dict[str, _Loaded] = {}
        self._prepared: dict[str, LocalModel] = {}
        self._running: weakref.WeakSet[LocalModel] = weakref.WeakSet()
        self._found: dict[str, ModelSource | Model | None] = {}
        self._retired: list[threading.Thread] = []
        self._streams = itertools.count(1)
        self._open_streams: dict[int, Stream] = {}
        self._answers: dict[Kind, Callable[[Reader, Writer], None]] = {
            Kind.CREATE_METRIC_FAMILY: self._create_family,
            Kind.DELETE_METRIC_FAMILY: lambda content, _: self.metrics.delete_family(content.number()),
            Kind.CREATE_METRIC: self._create_metric,
            Kind.DELETE_METRIC: lambda content, _: self.metrics.delete_metric(content.number()),
            Kind.CHANGE_METRIC: lambda content, _: self.metrics.change(
                content.number(), content.number(), content.fraction()
            ),
            Kind.METRIC_VALUE: lambda content, answer: answer.fraction(self.metrics.value(content.number())),
            Kind.LOAD_MODEL: lambda content, _: self._load(content),
            Kind.UNLOAD_MODEL: lambda content, _: self._retire(self._pop(content.text())),
            Kind.IS_MODEL_READY: lambda content, answer: answer.number(content.text() in self._models),
            Kind.END_STREAM: lambda content, _: self._end_stream(content.number()),
            Kind.CANCEL_STREAM: lambda content, _: self._cancel_stream(content.number()),
        }

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop all models; after an interruption within some seconds, or at once if that is interrupted too."""
        end = threading.Timer(_GRACE_SECONDS, self.kill)
        end.daemon = True
        try:
            if kind is not None and not issubclass(kind, Exception):
                self.cancel()
                end.start()
            self.stop()
        except BaseException:
            self.kill()
            raise
        finally:
            end.cancel()

    def prepare(self, name: str) -> None:
        """Find out what a model runs on, make that if need be, and start its process, without waiting for it."""
        with self._lock(name):
            found = self._what(name)
            if isinstance(found, ModelSource) and name not in self._models and name not in self._prepared:
                self._prepared[name] = self._begun(found)

    def model(self, name: str) -> Runnable:
        """A model, started if it does not run."""
        with self._lock(name):
            if name not in self._models:
                self.prepare(name)
                self._models[name] = self._started(name, self._found[name], self._prepared.pop(name, None))
            return self._models[name].model

    def own_model(self, name: str) -> LocalModel | LocalEnsemble:
        """A model of this run, not of a server; started if it does not run."""
        model = self.model(name)
        if not isinstance(model, LocalModel | LocalEnsemble):
            raise ModelFailed(f"Request for unknown model: '{name}' is not found")
        return model

    def stream(self, request: Request) -> Stream:
        """Run a request to the model that it names; as `LocalModel.stream`."""
        return self.model(request.model).stream(request)

    def infer(self, request: Request) -> Response:
        """Run a request that has one response; an error is in the response."""
        responses = [response for response, _ in self.stream(request) if response is not NOTHING]
        if len(responses) != 1:
            raise ModelFailed(f"expected a single response, got {len(responses)}")
        return responses[0]

    def unload(self, name: str) -> None:
        """Stop a model, if it runs."""
        loaded = self._pop(name)
        if loaded is not None:
            loaded.stop()

    def forget(self, name: str) -> None:
        """Stop a model, if it runs; its next use finds out anew what its name stands for."""
        with self._lock(name):
            self._found.pop(name, None)
            begun = self._prepared.pop(name, None)
        if begun is not None:
            begun.kill()
        self.unload(name)

    def stop(self) -> None:
        """Stop all models."""
        while self._models:  # those that are answering may start others
            for name in list(self._models):
                self.unload(name)
        while self._prepared:
            self._prepared.popitem()[1].kill()
        while self._retired:
            self._retired.pop().join()

    def cancel(self) -> None:
        """Cancel all requests, which models can see."""
        for model in list(self._running):
            model.cancel()

    def kill(self) -> None:
        """End all models at once, also those that are being loaded."""
        for model in list(self._running):
            model.kill()

    def log(self, line: LogLine) -> None:
        """Take a line of a model's log."""
        self._log(line)

    def answer(self, process: ModelProcess, kind: Kind, content: Reader, answer: Writer) -> Afterwards:
        """Answer a query of a model."""
        if kind is Kind.INFER:
            return self._infer(process, content, answer)
        self._answers[kind](content, answer)
        return None

    def _lock(self, name: str) -> threading.RLock:
        with self._changing:
            return self._loading.setdefault(name, threading.RLock())

    def _started(self, name: str, found: ModelSource | Model | None, begun: LocalModel | None = None) -> _Loaded:
        if found is None and self._remote is not None:
            from envpack.local.remote import RemoteModel

            return _Loaded(RemoteModel(self._remote, name))
        if found is None:
            raise ModelFailed(f"Request for unknown model: '{name}' is not found")
        stamp = stamp_of(found.folder)
        if isinstance(found, Model):
            ensemble = LocalEnsemble(
                found.config, name, self.stream, lambda step: getattr(self.model(step), "config", None)
            )
            load_steps(ensemble.config, self._what, self.model, has_server=self._remote is not None)
            model: Runnable = ensemble
        else:
            model = _loaded(begun or self._begun(found))
        return _Loaded(model, found.folder, stamp)

    def _what(self, name: str) -> ModelSource | Model | None:
        """What a name stands for."""
        with self._lock(name):
            if name not in self._found:
                with self._limit.stopped():  # while its environment is made
                    self._found[name] = self._find(name, None)
            return self._found[name]

    def _begun(self, source: ModelSource) -> LocalModel:
        model = LocalModel(
            source,
            self,
            release=self._release,
            limit=self._limit,
            variables=self._variables,
            output=self._output,
        )
        self._running.add(model)
        return model

    def _pop(self, name: str) -> _Loaded | None:
        with self._lock(name):
            return self._models.pop(name, None)

    def _retire(self, loaded: _Loaded | None) -> None:
        """Stop a model once it has answered, without waiting for that: the request may come from this model."""
        if loaded is not None:
            thread = threading.Thread(target=loaded.stop)
            self._retired.append(thread)
            thread.start()

    def _infer(self, process: ModelProcess, content: Reader, answer: Writer) -> Afterwards:
        decoupled, request = content.flag(), content.request()
        with process.asking(request.model):
            responses = self._asked(request, decoupled=decoupled).stream(request)
            first, is_last = next(responses)
        if not decoupled:
            _write(answer, 0, first, is_last=True)
            return None
        stream = next(self._streams)
        is_last = is_last or (first.error is not None and self._release < _FIRST_WITH_ERRORS_IN_STREAMS)
        _write(answer, stream, first, is_last=is_last)
        self._open_streams[stream] = responses
        return None if is_last else lambda: self._pump(process, request.model, stream, responses)

    def _asked(self, request: Request, *, decoupled: bool) -> Runnable:
        """The model that another one sends a request to. The texts are those of a Triton 24.10 server."""
        name = request.model
        prefix = f"Model {name} - Error when running inference: "
        model = None
        try:
            model = self.model(name)
        except ModelFailed as error:
            self._log(LogLine("error", error.text, "", name))
        except EnvpackError as error:
            self._log(LogLine("error", str(error), "", name))
        if model is None or not model.serves(request.version):
            raise ModelFailed(f"{prefix}Failed for execute the inference request. Model '{name}' is not ready.")
        if model.decoupled and not decoupled:
            raise ModelFailed(
                f"{prefix}Model {name} is using the decoupled. The current BLS request call doesn't support models "
                "using the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or "
                "'async_exec' calls for decoupled models.'"
            )
        return model

    def _pump(self, process: ModelProcess, model: str, stream: int, responses: Stream) -> None:
        with process.asking(model), contextlib.suppress(ValueError):  # closed by another thread
            for response, is_last in responses:
                content = Writer()
                _write(content, stream, response, is_last=is_last)
                process.send_stream_response(content)

    def _end_stream(self, stream: int) -> None:
        responses = self._open_streams.pop(stream, None)
        if isinstance(responses, Iterator) and hasattr(responses, "close"):
            with contextlib.suppress(ValueError):
                responses.close()

    def _cancel_stream(self, stream: int) -> None:
        responses = self._open_streams.get(stream)
        if isinstance(responses, Responses):
            responses.cancel()

    def _create_family(self, content: Reader, answer: Writer) -> None:
        name, description, kind = content.text(), content.text(), content.number()
        answer.number(self.metrics.create_family(name, description, kind))

    def _create_metric(self, content: Reader, answer: Writer) -> None:
        family, labels, has_bounds = content.number(), content.text(), content.flag()
        bounds = tuple(content.fraction() for _ in range(content.number()))
        answer.number(self.metrics.create_metric(family, labels, bounds if has_bounds else None))

    def _load(self, content: Reader) -> None:
        """Load a model as a server does: if that fails, the one that runs is left alone."""
        name, config = content.text(), content.text()
        files = {content.text(): bytes(content.raw()) for _ in range(content.number())}
        with self._lock(name), contextlib.ExitStack() as made:
            running = self._models.get(name)
            override = made.enter_context(opened_override(name, config, files)) if config or files else None
            if override is None and running is not None and running.is_current():
                return
            self._found.pop(name, None)
            loaded = self._started_by_query(name, override)
            if override is not None and override.folder is not None:
                loaded = _Loaded(loaded.model, given=made.pop_all())
            self._models[name] = loaded
        self._retire(running)

    def _started_by_query(self, name: str, override: Override | None) -> _Loaded:
        try:
            with self._limit.stopped():
                found = self._find(name, override)
        except EnvpackError as error:
            self._log(LogLine("error", str(error), "", name))
            raise (no_version(name) if error.kind == "model-without-code" else not_found(name)) from error
        if found is None and (override is not None or self._remote is None):
            raise not_found(name)
        version = found.version if isinstance(found, ModelSource) else "1"
        try:
            return self._started(name, found)
        except ModelFailed as error:
            reason = f"version {version} is at UNAVAILABLE state: {error.status}: {error.text};"
            raise ModelFailed(f"load failed for model '{name}': {reason}\n") from error


def _loaded(model: LocalModel) -> LocalModel:
    try:
        model.load()
    except BaseException:
        model.kill()
        raise
    return model


def _write(content: Writer, stream: int, response: Response, *, is_last: bool) -> None:
    content.number(stream)
    content.number(is_last)
    content.response(response)

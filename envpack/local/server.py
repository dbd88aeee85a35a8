"""Models that run without a server, and reach each other as they would on one."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from envpack.local.admission import received, rewritten
from envpack.local.connection import MORE_TIME, Kind, Limit
from envpack.local.local_model import NEEDS_SERVER, LocalModel, Responses
from envpack.local.metrics import Metrics
from envpack.local.model_process import Afterwards, LogLine, ModelFailed, ModelProcess
from envpack.local.starting import ModelSource
from envpack.local.values import INTERNAL, NOT_FOUND, Reader, Request, Response, Writer
from envpack.repository.folders import Stamps, source_stamps
from envpack.support.errors import EnvpackError

# Before, a stream whose first response is an error has no further ones, and models see the code INTERNAL of all errors.
_FIRST_WITH_ERRORS_OF_MODELS = 2504

# What a server reads of a version, and the last one there can be.
_VERSION, _LAST_VERSION = re.compile(r"\s*\+?(\d{1,99})", re.ASCII), (1 << 63) - 1

# How long models may take to end what was interrupted.
_GRACE_SECONDS = 5.0

Find = Callable[[str], "ModelSource | None"]


@dataclass(frozen=True)
class _Loaded:
    """A model that runs, and what the files were that it was loaded from."""

    model: LocalModel
    source: ModelSource
    stamps: Stamps

    def is_current(self) -> bool:
        """Whether loading it again would change nothing."""
        return not self.model.process.has_ended and self.stamps == source_stamps(self.source.folder)


class LocalServer:
    """The models of one run. Each is started when it is first used, in a process of its own; again after a death."""

    def __init__(
        self,
        find: Find,
        *,
        release: int,
        log: Callable[[LogLine], None],
        output: int | IO[bytes] | None = None,
        timeout: float = 120.0,
    ) -> None:
        self.metrics = Metrics()
        self._find = find
        self._release = release
        self._log = log
        self._output = output
        self._limit = Limit(timeout)
        self._changing = threading.Lock()  # of what follows
        self._loading: dict[str, threading.RLock] = {}  # a model that is loaded may load others
        self._models: dict[str, _Loaded] = {}
        self._prepared: dict[str, LocalModel] = {}
        self._running: weakref.WeakSet[LocalModel] = weakref.WeakSet()
        self._found: dict[str, ModelSource | None] = {}
        self._unloaded: set[str] = set()  # by a model
        self._loaded_for: dict[str, str] = {}  # the model whose request let another one be loaded
        self._retired: list[threading.Thread] = []
        self._streams = itertools.count(1)
        self._open_streams: dict[int, Responses] = {}
        self._answers: dict[Kind, Callable[[Reader, Writer], None]] = {
            Kind.CREATE_METRIC_FAMILY: self._create_family,
            Kind.DELETE_METRIC_FAMILY: lambda content, _: self.metrics.delete(content.number()),
            Kind.CREATE_METRIC: self._create_metric,
            Kind.DELETE_METRIC: lambda content, _: self.metrics.delete(content.number()),
            Kind.CHANGE_METRIC: lambda content, _: self.metrics.change(
                content.number(), content.number(), content.fraction()
            ),
            Kind.METRIC_VALUE: lambda content, answer: answer.fraction(self.metrics.value(content.number())),
            Kind.LOAD_MODEL: lambda content, _: self._load(content),
            Kind.UNLOAD_MODEL: lambda content, _: self._unload(content.text()),
            Kind.IS_MODEL_READY: lambda content, answer: answer.number(
                self._is_ready(content.text(), version=content.text())
            ),
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
            if found is not None and name not in self._models and name not in self._prepared:
                self._prepared[name] = self._begun(found)

    def model(self, name: str) -> LocalModel:
        with self._lock(name):
            loaded = self._models.get(name)
            if loaded is not None and loaded.model.process.has_ended and not loaded.model.process.took_too_long:
                del self._models[name]
                loaded.model.kill()
            if name not in self._models:
                self.prepare(name)
                self._models[name] = self._started(name, self._found[name], self._prepared.pop(name, None))
            return self._models[name].model

    def started(self, name: str) -> LocalModel | None:
        """A model as it was started, even if its process has ended since; None if it is not loaded."""
        loaded = self._models.get(name)
        return loaded.model if loaded is not None else None

    def stream(self, request: Request) -> Responses:
        """Run a client's request to the model that it names; as `LocalModel.stream`."""
        return self.model(request.model).stream(received(request))

    def unload(self, name: str) -> None:
        model = self._pop(name)
        if model is not None:
            model.stop()

    def forget(self, name: str) -> None:
        """Stop a model, if it runs; its next use finds out anew what its name stands for."""
        with self._lock(name):
            self._found.pop(name, None)
            self._unloaded.discard(name)
            begun = self._prepared.pop(name, None)
        if begun is not None:
            begun.kill()
        self.unload(name)

    def stop(self) -> None:
        while self._models:  # those that are answering may start others
            for name in list(self._models):
                self.unload(name)
        while self._prepared:
            self._prepared.popitem()[1].kill()
        while self._retired:
            self._retired.pop().join()  # no limit: LocalModel.stop() ends what takes too long

    def cancel(self) -> None:
        for model in list(self._running):
            model.cancel()

    def kill(self) -> None:
        for model in list(self._running):
            model.kill()

    def answer(self, process: ModelProcess, kind: Kind, content: Reader, answer: Writer) -> Afterwards:
        if kind is Kind.INFER:
            return self._infer(process, content, answer)
        self._answers[kind](content, answer)
        return None

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Work on one model; a thread that waits for another one waits as long as a load may take."""
        with self._changing:
            lock = self._loading.setdefault(name, threading.RLock())
        if not self._limit.wait(self._limit.end(), lambda seconds: lock.acquire(timeout=seconds)):
            raise ModelFailed(f"{self._limit} passed while '{name}' was being loaded; {MORE_TIME}")
        try:
            yield
        finally:
            lock.release()

    def _started(self, name: str, found: ModelSource | None, begun: LocalModel | None = None) -> _Loaded:
        if found is None:
            raise ModelFailed(f"there is no model '{name}' in the repository", code=NOT_FOUND)
        stamps = source_stamps(found.folder)
        model = begun or self._begun(found)
        try:
            model.load()
        except BaseException:
            model.kill()
            raise
        return _Loaded(model, found, stamps)

    def _what(self, name: str) -> ModelSource | None:
        with self._lock(name):
            if name not in self._found:
                with self._limit.stopped():  # while its environment is made
                    self._found[name] = self._find(name)
            return self._found[name]

    def _begun(self, source: ModelSource) -> LocalModel:
        model = LocalModel(
            source, log=self._log, answer=self.answer, release=self._release, limit=self._limit, output=self._output
        )
        self._running.add(model)
        return model

    def _pop(self, name: str) -> LocalModel | None:
        with self._lock(name):
            loaded = self._models.pop(name, None)
            return loaded.model if loaded is not None else None

    def _unload(self, name: str) -> None:
        self._unloaded.add(name)
        self._retire(self._pop(name))

    def _retire(self, model: LocalModel | None) -> None:
        """Stop a model once it has answered, without waiting for that: the request may come from this model."""
        if model is not None:
            thread = threading.Thread(target=model.stop)
            self._retired.append(thread)
            thread.start()

    def _is_ready(self, name: str, version: str) -> bool:
        """Whether a model would get requests; one that was never used is loaded for that, as a server has done."""
        number = _VERSION.match(version)
        if version and (number is None or int(number[1]) > _LAST_VERSION):
            raise ModelFailed(f"{version!r} is no version of a model")
        try:
            model = self._usable(name)
        except (ModelFailed, EnvpackError):
            return False
        return number is None or int(number[1]) == int(model.version)

    def _usable(self, name: str) -> LocalModel:
        if name in self._unloaded:
            raise ModelFailed(f"model '{name}' was unloaded by a model")
        return self.model(name)

    def _infer(self, process: ModelProcess, content: Reader, answer: Writer) -> Afterwards:
        decoupled, request = content.flag(), content.request()
        request = dataclasses.replace(request, parameters=rewritten(request.parameters))
        with process.asking(request.model):
            if request.model != process.name and self._waits_for(request.model, process.name):
                text = f"'{process.name}' asks '{request.model}', which waits for it: neither can answer in execute()"
                self._log(LogLine("warning", text, "", process.name))
            responses = self._asked(process.name, request, decoupled=decoupled).stream(request)
            first, is_last = next(responses)
        if not decoupled:
            self._write(answer, 0, first, is_last=True)
            return None
        stream = next(self._streams)
        is_last = is_last or (first.error is not None and self._release < _FIRST_WITH_ERRORS_OF_MODELS)
        self._write(answer, stream, first, is_last=is_last)
        self._open_streams[stream] = responses
        return None if is_last else lambda: self._pump(process, request.model, stream, responses)

    def _waits_for(self, name: str, other: str) -> bool:
        """Whether a model waits for the answer of another one, by itself or through those that it asks."""
        seen, left = {name}, [name]
        while left:
            loaded = self._models.get(left.pop())
            asked = set(loaded.model.process.asked) - seen if loaded else set()
            seen |= asked
            left += asked
        return other in seen

    def _asked(self, asker: str, request: Request, *, decoupled: bool) -> LocalModel:
        name = request.model
        try:
            model = self._asked_for(asker, name)
        except (ModelFailed, EnvpackError) as error:
            self._log(LogLine("error", str(error), "", name))
            raise ModelFailed(f"the request needs model '{name}', which is not ready: {error}") from error
        if not model.serves(request.version):
            raise ModelFailed(f"the request needs version {request.version} of model '{name}', which is not ready")
        if model.decoupled and not decoupled:
            raise ModelFailed(f"model '{name}' is decoupled: give decoupled=True to exec() or async_exec()")
        return model

    def _asked_for(self, asker: str, name: str) -> LocalModel:
        """A model that another one uses; it is not ready for what it uses itself while it is loaded."""
        waiting = asker
        while waiting and name not in self._models:
            if waiting == name:
                raise ModelFailed(f"model '{name}' is being loaded")
            waiting = self._loaded_for.get(waiting, "")
        if name not in self._models:
            self._loaded_for[name] = asker
        try:
            return self._usable(name)
        finally:
            self._loaded_for.pop(name, None)

    def _pump(self, process: ModelProcess, model: str, stream: int, responses: Responses) -> None:
        with process.asking(model), contextlib.suppress(ValueError):  # closed by another thread
            for response, is_last in responses:
                content = Writer()
                self._write(content, stream, response, is_last=is_last)
                process.send_stream_response(content)

    def _write(self, content: Writer, stream: int, response: Response, *, is_last: bool) -> None:
        if self._release < _FIRST_WITH_ERRORS_OF_MODELS:
            response = dataclasses.replace(response, code=INTERNAL)
        content.number(stream)
        content.number(is_last)
        content.response(response)

    def _end_stream(self, stream: int) -> None:
        responses = self._open_streams.pop(stream, None)
        if responses is not None:
            with contextlib.suppress(ValueError):
                responses.close()

    def _cancel_stream(self, stream: int) -> None:
        responses = self._open_streams.get(stream)
        if responses is not None:
            responses.cancel()

    def _create_family(self, content: Reader, answer: Writer) -> None:
        name, _, kind = content.text(), content.text(), content.number()
        answer.number(self.metrics.create_family(name, kind))

    def _create_metric(self, content: Reader, answer: Writer) -> None:
        family, labels, _ = content.number(), content.text(), content.flag()
        buckets = [content.fraction() for _ in range(content.number())]
        answer.number(self.metrics.create_metric(family, labels, buckets))

    def _load(self, content: Reader) -> None:
        """Load a model as a server does: if that fails, the one that runs is left alone."""
        name, config, files = content.text(), content.text(), content.number()
        if config or files:
            raise ModelFailed(f"load_model() of '{name}' gives another configuration or files; {NEEDS_SERVER}")
        with self._lock(name):
            running = self._models.get(name)
            if running is not None and running.is_current():
                return
            self._found.pop(name, None)
            try:
                self._models[name] = self._started(name, self._what(name))
            except (ModelFailed, EnvpackError) as error:
                raise ModelFailed(f"load failed for model '{name}': {error}") from error
            self._unloaded.discard(name)
        self._retire(running.model if running is not None else None)

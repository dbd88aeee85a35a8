"""Models on a real server, from links to the user's repository, with environments for the models that have none."""

from __future__ import annotations

import contextlib
import copy
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.local.admission import sent_parameters
from envpack.local.connection import MORE_TIME
from envpack.local.running import check_placed_environment, python_of
from envpack.local.values import RawTensor, Request, Response, raw, readable
from envpack.repository.code import called_models
from envpack.repository.config_editor import EXECUTION_ENVIRONMENT
from envpack.repository.folders import version_folders
from envpack.repository.model import Model, open_model
from envpack.repository.placement import PYTHON_BACKEND, backends_folder
from envpack.repository.selection import needed_first
from envpack.server.interface import Runtime, Server
from envpack.server.kserve import Client, InferMessage, RequestError, unfinished
from envpack.server.log import STUB_REPORT, last_lines, plain_lines, unquoted
from envpack.server.tensors import Tensor
from envpack.server.together import infer_together
from envpack.settings.project import Project
from envpack.support.errors import InputError, UsageError
from envpack.support.folders import real_path, shell_fault
from envpack.support.installation import install_beside
from envpack.support.placed_files import CONFIG_NAME, STUB_NAME
from envpack.support.pool import found_within
from envpack.support.progress import Progress
from envpack.support.replacement import remove_folder
from envpack.support.temp_dirs import temp_dir
from envpack.testing.model import ModelError
from envpack.verification.hidden_files import explain_hidden
from envpack.verification.loading import abort_and_read_frames, load_model
from envpack.verification.stub_processes import dead_stubs

if TYPE_CHECKING:
    from envpack.store.shared import SharedStore

__tracebackhide__ = True  # pytest shows the line of the test instead
_QUIET_SECONDS = 0.1  # the server writes what a model logs after the model has answered
_MOST_QUIET_SECONDS = 1.0  # other models may log all the time
_FINALIZE_SECONDS = 15.0
# What a model printed without the end of a line, such as a progress bar, can precede it.
_LINE = re.compile(r"[IWEF]\d{4} [\d:.]+ \d+ (?P<file>[^:\s]+):\d+\] (?P<text>.*)$", re.MULTILINE)


class ServedModels:
    """Implements `envpack.testing.model.Models` by a server, which is started at once, and again if it ends."""

    def __init__(
        self,
        runtime: Runtime,
        project: Project,
        *,
        timeout: float,
        progress: Progress,
        store: SharedStore | None = None,
    ) -> None:
        self._runtime, self._timeout = runtime, timeout
        self._loaded: set[str] = set()
        self._needs: dict[str, tuple[str, ...]] = {}
        # Models whose processes were ended, or never answer; they are not tried again before they change.
        self._ended: dict[str, ModelError] = {}
        self._configs: dict[str, dict[str, Any]] = {}
        self._folders, self._running = contextlib.ExitStack(), contextlib.ExitStack()
        folder = self._folders.enter_context(temp_dir("served"))
        folder.chmod(0o755)  # the server of a container may be another user
        self._repository = ServedRepository(project, folder / "models", progress, store)
        try:
            self._start()
        except BaseException:
            self._folders.close()
            raise

    def load(self, model: str) -> None:
        if self._server.ended():
            self._start_again()
        if model in self._ended:
            raise self._ended[model]
        if model in self._loaded:
            return
        # A server loads no model because another one sends requests to it.
        self._needs[model] = self._repository.place(model, besides=self._loaded)
        *called, _ = self._needs[model]
        for needed in called:
            with contextlib.suppress(ModelError):  # an error only for a test that uses it
                self._load(needed)
        self._load(model)

    def forget(self, model: str) -> None:
        for other in [model, *(name for name, needs in self._needs.items() if model in needs)]:
            self._loaded.discard(other)
            self._ended.pop(other, None)
            self._configs.pop(other, None)

    def config(self, model: str) -> dict[str, Any]:
        if model not in self._configs:
            self.load(model)
            try:
                self._configs[model] = dict(self._client.config(model))
            except RequestError as error:
                raise self._failure(model, error, error.message) from None
        return self._configs[model]

    def infer(self, requests: Sequence[Request]) -> list[tuple[Response, ...]]:
        try:
            for request in requests:
                self.load(request.model)
        except ModelError as error:
            return [(Response(error=error.text),)] * len(requests)
        answers = infer_together(self._client, list(map(self._message, requests)), timeout=self._timeout)
        errors = {answer.message: answer for answer in answers if isinstance(answer, RequestError)}
        failures = {text: self._failure(requests[0].model, error, text) for text, error in errors.items()}
        return [
            (Response(error=failures[answer.message].text),)
            if isinstance(answer, RequestError)
            else (_response(answer, tuple(map(raw, answer))),)
            for answer in answers
        ]

    def stream(self, request: Request) -> Iterator[Response]:
        try:
            self.load(request.model)
            for outputs in stream_by_grpc(self._server, request, sent_parameters(request), self._timeout):
                yield _response(tuple(map(readable, outputs)), outputs)
        except RequestError as error:
            yield Response(error=self._failure(request.model, error, error.message).text)
        except ModelError as error:
            yield Response(error=self._repository.here(error.text))

    def has_ended(self, model: str) -> bool:
        return model in self._ended or self._server.ended()

    def position(self) -> int:
        return self._server.log_size()

    def logged(self, model: str, since: int) -> list[str]:
        # A line of the log names the file that logs, not the model; what a stub says of itself is not the model's.
        versions = version_folders(self._repository.folder / model)
        names = {source.name for version in versions for source in version.rglob("*.py")}
        lines = (unquoted(line["text"]) for line in _LINE.finditer(self._quiet_log(since)) if line["file"] in names)
        return [line for line in lines if not line.startswith(STUB_REPORT)]

    def printed(self, since: int) -> str:
        return self._repository.here("\n".join(plain_lines(self._quiet_log(since))))

    def close(self) -> None:
        """Unload the models, which finalizes them, and stop the server; it would take two seconds for its own end."""
        for model in self._loaded - self._ended.keys():
            with contextlib.suppress(RequestError):  # it is gone
                self._client.unload(model)
        seconds = 0 if self._ended or not self._loaded else _FINALIZE_SECONDS
        found_within(seconds, lambda: all(child.dead for child in self._server.children()), self._server.poll_seconds)
        self._server.stop(force=True)
        self._running.close()
        self._folders.close()

    def kill(self) -> None:
        self._loaded.clear()
        self._server.stop(force=True)

    def _start(self) -> None:
        self._server: Server = self._running.enter_context(self._runtime.start(self._repository.folder))
        self._client = Client(self._server.url, timeout=self._timeout)

    def _start_again(self) -> None:
        self._server.stop(force=True)
        self._running.close()
        for forgotten in (self._loaded, self._ended, self._configs):
            forgotten.clear()
        self._start()

    def _message(self, request: Request) -> InferMessage:
        inputs = tuple(map(readable, request.inputs))
        return self._client.infer_message(
            request.model,
            inputs,
            binary=True,
            parameters=sent_parameters(request),
            request_id=request.id,
            outputs=sorted(request.outputs),
        )

    def _load(self, model: str) -> None:
        if model in self._loaded:
            return
        dead = frozenset(dead_stubs(self._server))
        placed = self._repository.model(model)
        result = load_model(self._server, self._client, placed, timeout=self._timeout, ignore_dead=dead)
        if result.failure is None:
            self._loaded.add(model)
            return
        found = explain_hidden(self._server, placed, result.failure)
        error = ModelError(*map(self._repository.here, ("\n".join((found.reason, *found.details)), found.fix)))
        if result.stuck:  # the server waits for the model for ever
            self._start_again()
            self._ended[model] = error
        raise error

    def _failure(self, model: str, error: RequestError, text: str) -> ModelError:
        """What a test gets. A model that takes too long is ended, so that other tests do not wait for it."""
        if not error.timed_out:
            if error.connection_lost and self._ends():
                lines = "\n".join(last_lines(self._server.log()))
                return ModelError(f"the server ended; its last lines:\n{self._repository.here(lines)}")
            return ModelError(self._repository.here(text))
        frames = abort_and_read_frames(self._server, self._repository.model(model))
        running = f"; {self._repository.here(frames[0])} was running" if frames else ""
        self._ended[model] = ModelError(f"{text}{running}; {MORE_TIME}")
        return self._ended[model]

    def _ends(self) -> bool:
        """Whether the server has ended, or does so within a second: its connections end before it is known."""
        return found_within(_MOST_QUIET_SECONDS, self._server.ended, self._server.poll_seconds)

    def _quiet_log(self, since: int) -> str:
        """The log, once nothing has been added to it for a moment, or after a second."""
        size, until = -1, time.monotonic() + _MOST_QUIET_SECONDS
        while size != self._server.log_size() and time.monotonic() < until:
            size = self._server.log_size()
            time.sleep(_QUIET_SECONDS)
        return self._server.log(since)


Outputs = tuple[RawTensor, ...]


def _response(answer: Sequence[Tensor], outputs: Outputs) -> Response:
    """The outputs of a response, or what is wrong with the shape that the server gave one of them."""
    fault = next(filter(None, (tensor.size_fault for tensor in answer)), None)
    return Response(error=f"{fault}: its reshape in config.pbtxt does not fit it") if fault else Response(outputs)


def stream_by_grpc(
    server: Server, request: Request, parameters: Mapping[str, object], timeout: float
) -> Iterator[Outputs]:
    """Send a request and yield the outputs of each response; closing the iterator cancels the request."""
    other_ports = getattr(server, "other_ports", None)
    if other_ports is None:
        what = f"stream() of model {request.model!r} needs gRPC, which a server in a container does not offer here"
        fix = "install a server on this machine, or run the tests with --local"
        raise UsageError("grpc-missing", what, fix)
    try:
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc
    except ImportError as error:
        what = f"stream() of model {request.model!r} on a real server needs gRPC: {error}"
        fix = f"{install_beside('tritonclient[grpc]')}, or run the tests with --local"
        raise UsageError("grpc-missing", what, fix) from None
    port = next(iter(other_ports()), 0)  # none of a server that has ended, which a connection finds out
    message = service_pb2.ModelInferRequest(
        model_name=request.model,
        id=request.id,
        raw_input_contents=[bytes(tensor.content) for tensor in request.inputs],
    )
    for tensor in request.inputs:
        message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    for name in sorted(request.outputs):
        message.outputs.add(name=name)
    for name, value in parameters.items():
        _set(message.parameters[name], value)
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([message]), timeout=timeout)
        count = 0
        try:
            for answer in call:
                # The message of an error can be empty; only a response names the version of its model.
                if answer.error_message or not answer.infer_response.model_version:
                    raise ModelError(answer.error_message)
                count += 1
                yield _outputs(answer.infer_response)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise unfinished(count, timeout) from None
            kind = RequestError if error.code() == grpc.StatusCode.UNAVAILABLE else ModelError
            raise kind(str(error.details())) from None
        finally:
            call.cancel()


def _set(parameter: Any, value: object) -> None:
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param"}
    setattr(parameter, kinds.get(type(value), "string_param"), value)


def _outputs(response: Any) -> Outputs:
    return tuple(
        RawTensor(output.name, output.datatype, tuple(output.shape), content)
        for output, content in zip(response.outputs, response.raw_output_contents, strict=True)
    )


class ServedRepository:
    """A folder of links to the models of a project."""

    def __init__(self, project: Project, folder: Path, progress: Progress, store: SharedStore | None = None) -> None:
        self.folder = folder
        self._project, self._progress, self._store = project, progress, store
        folder.mkdir()
        for entry in project.repository.iterdir():  # a model may read what lies beside its folder
            (folder / entry.name).symlink_to(entry.absolute())

    def place(self, name: str, *, besides: Collection[str] = ()) -> tuple[str, ...]:
        """Place a model as it is now, and all that it needs, with environments; the names, the needed ones first."""
        models = {name: open_model(self._project.repository / name, foreign=True)}

        def needs(name: str) -> tuple[str, ...]:
            models.setdefault(name, open_model(self._project.repository / name, foreign=True))
            steps = [step for step in models[name].steps if (self._project.repository / step).is_dir()]
            return (*steps, *called_models(models[name].folder))

        ordered = needed_first([name], needs)
        for needed in ordered:
            if needed not in besides:  # a server has them loaded
                self._place(models[needed])
        return ordered

    def here(self, text: str) -> str:
        """A text of the server with the paths of the user's repository."""
        return text.replace(f"{self.folder}/", f"{self._project.repository.absolute()}/")

    def model(self, name: str) -> Model:
        return open_model(self.folder / name, foreign=True)

    def _place(self, model: Model) -> None:
        made = self.folder / model.folder.name
        if made.is_symlink():
            made.unlink()
        elif made.is_dir():
            remove_folder(made)
        made.mkdir()
        own = () if self._is_complete(model) else (CONFIG_NAME, STUB_NAME)
        for entry in model.folder.iterdir():
            if entry.name not in own:
                (made / entry.name).symlink_to(entry.absolute())
        if own:
            self._complete(model, made)

    def _is_complete(self, model: Model) -> bool:
        """Whether a server finds what the model needs: the environment that the configuration names, and a stub."""
        if model.is_ensemble or model.is_foreign:
            return True
        check_placed_environment(self._project, model)
        has_backend = model.backend != PYTHON_BACKEND and (backends_folder(self._project) / model.backend).is_dir()
        placed = model.environment
        if placed is None:
            return has_backend
        return placed.is_file() or (placed.exists() and (has_backend or model.backend == PYTHON_BACKEND))

    def _complete(self, model: Model, made: Path) -> None:
        """Let a model run on its environment in the cache, which is made if need be."""
        python = python_of(self._project, model, self._progress, self._store)
        if unfit := shell_fault(str(real_path(python.prefix))):  # a server would wait forever
            fix = "set ENVPACK_CACHE_DIR to a path of letters, digits, '/', '_', '-' and '.'"
            raise InputError("bad-path", f"the path of the cache {unfit}", fix, str(python.prefix))
        config = copy.deepcopy(model.config)
        config.backend = PYTHON_BACKEND
        config.parameters[EXECUTION_ENVIRONMENT].string_value = str(python.prefix)
        (made / CONFIG_NAME).write_text(str(config), encoding="utf-8")
        shutil.copy2(python.stub, made / STUB_NAME)

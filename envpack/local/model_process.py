"""The process of one model: our stub, with envpack at the other end of its connection instead of a server."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol, TypeVar

from envpack.local.connection import MORE_TIME, Connection, Kind, Limit, Message, connected, next_of
from envpack.local.starting import ModelSource, Output, start_stub
from envpack.local.values import INTERNAL, MALFORMED, Reader, Request, Response, Writer
from envpack.server.log import read_abort_frames
from envpack.server.proc import descendants, start_time
from envpack.support.pool import found_within
from envpack.support.processes import how_ended

_BACKEND = Path(__file__).with_name("python")
_STOP_SECONDS = 15.0
_ABORT_SECONDS = 2.0  # in which an aborted process writes its stack
_LEFT_SECONDS = 1.0  # in which what a process has started ends after it, as a tracker of resources does
_CLOSED_SECONDS = 2.0  # in which a process ends that has closed its connection
_COMMANDS = {Kind.COMPLETED, Kind.INITIALIZED, Kind.EXECUTED, Kind.FINALIZED}
_Result = TypeVar("_Result")
_THREADS = 1024  # queries that a model can have open at the same time; a thread is started when one is needed


class ModelFailed(Exception):  # noqa: N818 - not a fault of envpack
    """The model failed, or its process ended."""

    def __init__(self, text: str, *, code: int = INTERNAL) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


Answer = tuple[int, Response | None]
"""What a model answered to a request of a batch: Triton's flags, and a response if it returned one."""


@dataclass(frozen=True)
class LogLine:
    """A line that a model logs."""

    level: str  # "info", "warning", "error" or "verbose"
    text: str
    place: str  # file and line
    model: str


_LEVELS = ("info", "warning", "error", "verbose")


Afterwards = Callable[[], None] | None


# Writes the answer to a query of a process, in any number of threads at the same time; returns what to do when it has
# been sent.
Answering = Callable[["ModelProcess", Kind, Reader, Writer], Afterwards]


class Owner(Protocol):
    """What has a process."""

    log: Callable[[LogLine], None]  # called in the thread that receives messages

    def answer(self, process: ModelProcess, kind: Kind, content: Reader, answer: Writer) -> Afterwards:
        """Answer a query, as `Answering` does."""

    def ended(self, text: str) -> None:
        """The process has ended. Called in the thread that receives messages."""


class ModelProcess:
    """A running model."""

    took_too_long = False  # whether it was ended for that; what else has ended can be started again

    def __init__(
        self,
        source: ModelSource,
        *,
        release: int,
        host: Owner,
        limit: Limit,
        output: int | IO[bytes] | None = None,
    ) -> None:
        self.name = source.name
        self.asked: list[str] = []  # the models that it has sent requests to which have no final response yet
        self._folder = source.folder
        self._host = host
        self._limit = limit
        self._answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        stdout, stderr = (output, output) if output is not None else (1, 2)
        stdout = stdout if isinstance(stdout, int) else stdout.fileno()
        self._output = Output(stderr if isinstance(stderr, int) else stderr.fileno())
        with connected(limit.seconds) as (ours, theirs):
            self._child = start_stub(
                source.python, release, theirs, source.variables, stdout=stdout, output=self._output
            )
        from concurrent.futures import ThreadPoolExecutor  # while the process starts

        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=self.name)
        self._connection = Connection(ours)
        self._end = threading.Event()
        self._doing = "it started"
        self._ended_because = ""
        threading.Thread(target=self._await_end, name=f"{self.name}-end", daemon=True).start()
        self._receiver = threading.Thread(target=self._receive, name=f"{self.name}-receiver", daemon=True)
        self._receiver.start()
        start = Writer()
        for text in (str(source.file), str(_BACKEND), self.name):
            start.text(text)
        start.number(release)
        start.number(True)  # the model has an execution environment, which a server does not require
        self._send(Kind.START, start)

    @property
    def has_ended(self) -> bool:
        return self._end.is_set()

    @property
    def pid(self) -> int:
        return self._child.pid

    def peak_memory(self) -> int:
        """The most physical memory that the process has had, in bytes; 0 if that is unknown."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        except OSError:
            return 0
        peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "")
        return int(peak.split()[1]) * 1024 if peak else 0

    def complete(self, config: str) -> str:
        """Let the model complete its configuration; both are JSON."""
        content = Writer()
        content.text(config)
        return self._command(Kind.AUTO_COMPLETE, content, "the configuration was completed", _completed)

    def initialize(self, arguments: Mapping[str, str], *, decoupled: bool) -> None:
        content = Writer()
        content.number(decoupled)
        content.text(arguments["model_instance_name"])
        content.texts(arguments)
        self._command(Kind.INITIALIZE, content, "initialize() was running", _check)

    def execute(self, requests: Sequence[tuple[int, Request]]) -> list[Answer]:
        content = Writer()
        content.number(len(requests))
        for number, request in requests:
            content.request(number, request)
        return self._command(Kind.EXECUTE, content, "execute() was running", _executed(len(requests)), until=math.inf)

    def send_stream_response(self, content: Writer) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(Kind.STREAM_RESPONSE, content)

    def stop(self) -> None:
        """Finalize the model and end the process; kills it if finalize() takes too long. Logs what goes wrong."""
        if not self._end.is_set():
            with self._with_what_it_started():
                self._finalize()
        self.close()

    def _finalize(self) -> None:
        doing = "finalize() was running"
        with contextlib.suppress(ModelFailed):
            self._command(Kind.FINALIZE, Writer(), doing, lambda _: None)  # answered before finalize() runs
        self._doing = doing
        if not self._end.wait(_STOP_SECONDS):
            text = f"the process of '{self.name}' was ended: finalize() did not return within {_STOP_SECONDS:.0f} s"
            self._host.log(LogLine("error", text, "", self.name))
            self._kill()
        elif self._child.returncode:
            self._host.log(LogLine("error", self._death(), "", self.name))

    def end(self, reason: str) -> str:
        """End the process because it takes too long; it writes its stack to its output before."""
        self.took_too_long = True
        self._ended_because = self._ended_because or reason
        with self._with_what_it_started():
            self._child.send_signal(signal.SIGABRT)
            if not self._end.wait(_ABORT_SECONDS):
                self._kill()
        return self._death()

    @contextlib.contextmanager
    def asking(self, model: str) -> Iterator[None]:
        """Note during the block that the process waits for the answer of a model."""
        self.asked.append(model)
        try:
            yield
        finally:
            self.asked.remove(model)

    def close(self) -> None:
        self._kill()
        self._receiver.join()  # no limit: the end of the process ends it
        self._connection.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _command(
        self, kind: Kind, content: Writer, doing: str, read: Callable[[Reader], _Result], *, until: float | None = None
    ) -> _Result:
        """Send a command and read its answer; end the process if none comes until a time, by default the limit's."""
        self._doing = doing
        self._send(kind, content)
        answered = self._limit.wait(self._limit.end() if until is None else until, partial(next_of, self._answers))
        if not answered:
            self.end(f"{self._limit} passed while {doing}; {MORE_TIME}")
        message = answered[0] if answered else self._answers.get()  # no limit: the process has ended
        if message is None:
            self._answers.put(None)  # for the next command
            raise ModelFailed(self._death())
        try:
            return read(message.content)
        except MALFORMED as error:
            self._end_misbehaving()
            raise ModelFailed(self._death()) from error
        finally:
            self._doing = "it had requests to answer"

    def _send(self, kind: Kind, content: Writer) -> None:
        try:
            self._connection.send(kind, content)
        except TimeoutError:
            self._end_because(f"it read nothing of its connection for {self._limit.seconds:g} s while {self._doing}")
        except OSError:  # the receiver notices the end
            pass

    def _receive(self) -> None:
        try:
            while (message := self._connection.receive()) is not None:
                if message.kind in _COMMANDS:
                    self._answers.put(message)
                elif message.kind is Kind.LOG:
                    self._log(message.content)
                else:
                    self._pool.submit(self._answer, message)
        except MALFORMED:
            self._end_misbehaving()
        except RuntimeError:  # the pool was shut down
            pass
        if not self._end.wait(_CLOSED_SECONDS):
            self._end_because(
                f"it closed its connection to envpack while {self._doing}: the model closes descriptors that are "
                "not its own"
            )
        self._answers.put(None)
        self._host.ended(self._death())

    def _await_end(self) -> None:
        """Wait for the process. A process that the model forked may keep the other end of the socket open."""
        self._child.wait()  # no limit: `end`, `stop` and `close` end the process
        self._end.set()
        self._connection.end()

    def _log(self, content: Reader) -> None:
        level, text, file, line = content.number(), content.text(), content.text(), content.number()
        self._host.log(LogLine(_LEVELS[level], text, f"{file}:{line}", self.name))

    def _answer(self, message: Message) -> None:
        answer = Writer()
        answer.failure(None)
        afterwards: Afterwards = None
        try:
            afterwards = self._host.answer(self, message.kind, message.content, answer)
        except Exception as error:
            answer = Writer()
            answer.failure(str(error) or type(error).__name__)
        with contextlib.suppress(OSError):
            self._connection.send(Kind.ANSWER, answer, message.id)
        if afterwards is not None:
            afterwards()

    def _end_misbehaving(self) -> None:
        self._end_because(
            f"it sent what no stub sends while {self._doing}: the model writes to descriptors that are not its own"
        )

    def _end_because(self, reason: str) -> None:
        self._ended_because = self._ended_because or reason
        self._kill()

    def _kill(self) -> None:
        if not self._end.is_set():
            with self._with_what_it_started():
                self._child.kill()
                self._end.wait()  # no limit: a killed process ends

    @contextlib.contextmanager
    def _with_what_it_started(self) -> Iterator[None]:
        """End what the process has started, too, which would hold our standard output open for any time."""
        started = {pid: start_time(pid) for pid in descendants(self._child.pid)}

        def alive() -> list[int]:
            return [pid for pid, since in started.items() if start_time(pid) == since]

        try:
            yield
        finally:
            found_within(_LEFT_SECONDS, lambda: not alive())
            for pid in alive():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _death(self) -> str:
        """How the process ended, and where in the model's code if a signal ended it. Waits for the end."""
        self._end.wait()  # no limit: it is called once the process has been ended, or has closed its connection
        frames = read_abort_frames(self._output.end(), str(self._folder))
        at = f"; {frames[0]} was running" if frames else ""
        if self._ended_because:
            return f"the process of '{self.name}' was ended: {self._ended_because}{at}"
        return f"the process of '{self.name}' ended {how_ended(self._child.returncode)} while {self._doing}{at}"


def _check(answer: Reader) -> None:
    failure = answer.failure()
    if failure is not None:
        raise ModelFailed(failure)


def _completed(answer: Reader) -> str:
    _check(answer)
    return answer.text()


def _executed(count: int) -> Callable[[Reader], list[Answer]]:
    def read(answer: Reader) -> list[Answer]:
        _check(answer)
        return [(answer.number(), answer.response() if answer.flag() else None) for _ in range(count)]

    return read

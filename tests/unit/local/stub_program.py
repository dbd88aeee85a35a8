"""A stand-in for the stub: speaks its side of the connection, and runs models that are plain Python.

The stub embeds another Python and has to be compiled, which unit tests cannot; tests/local runs the real one. A model
is a module with ``execute(requests, stub)`` and maybe ``complete``, ``initialize`` and ``finalize``.
"""

import importlib.util
import json
import socket
import sys
from pathlib import Path


class FailedError(Exception):
    """What a query was answered with instead of a result."""


class Stub:
    """What a model gets: it asks envpack, and sends responses."""

    def __init__(self, connection):
        self.connection, self.last, self.waiting, self.streams = connection, 0, [], []

    def receive(self):
        return self.waiting.pop(0) if self.waiting else self.connection.receive()

    def ask(self, kind, *values):
        """Send a query, and return the reader of its answer."""
        self.last += 1
        self.connection.send(Kind[kind], row(*values), self.last)
        while (message := self.connection.receive()) is not None:
            if message.kind is Kind.ANSWER and message.id == self.last:
                if message.content.flag():
                    raise FailedError(message.content.text())
                return message.content
            (self.streams if message.kind is Kind.STREAM_RESPONSE else self.waiting).append(message)
        sys.exit(1)

    def send(self, number, response=None, *, last=False):
        """Send a response of a decoupled model."""
        self.ask("SEND", number, int(last), response is not None, *([] if response is None else [response]))

    def log(self, text, level=0):
        self.connection.send(Kind.LOG, row(level, text, "model.py", 7))

    def next_of_stream(self):
        """The next response of a stream: its number, whether it is the last one, and the response."""
        while not self.streams:
            self.streams.append(self.connection.receive())
        content = self.streams.pop(0).content
        return content.number(), content.flag(), content.response()


def row(*values, content=None):
    """Values, each written by its type, at the end of a content."""
    content = content or Writer()
    writers = {str: content.text, float: content.fraction, Response: content.response}
    for value in values:
        if isinstance(value, Request):
            content.request(0, value)
        elif isinstance(value, list):  # of texts with their contents, or of numbers
            row(
                len(value),
                *(part for each in value for part in (each if isinstance(each, tuple) else (each,))),
                content=content,
            )
        else:
            writers.get(type(value), content.number)(value)
    return content


def result(failure="", *values):
    return row(bool(failure), failure, *values)


def main(descriptor):
    stub = Stub(Connection(socket.socket(fileno=descriptor)))
    model, name = None, ""
    while (message := stub.receive()) is not None:
        content = message.content
        match message.kind:
            case Kind.START:
                file, backend, name = content.text(), content.text(), content.text()
                assert Path(backend, "triton_python_backend_utils.py").is_file()
                spec = importlib.util.spec_from_file_location("model", file)
                model = importlib.util.module_from_spec(spec)
                model.RELEASE, model.IN_ENVIRONMENT, model.NAME = content.number(), content.flag(), name
            case Kind.AUTO_COMPLETE:
                text = content.text()
                try:
                    spec.loader.exec_module(model)
                    complete = getattr(model, "complete", lambda config: config)
                    answer = result("", json.dumps(complete(json.loads(text))))
                except Exception as error:
                    answer = result(str(error))
                stub.connection.send(Kind.COMPLETED, answer)
            case Kind.INITIALIZE:
                decoupled, instance = content.flag(), content.text()
                arguments = {content.text(): content.text() for _ in range(content.number())}
                try:
                    getattr(model, "initialize", lambda *_: None)(arguments, decoupled, instance)
                    stub.connection.send(Kind.INITIALIZED, result())
                except Exception as error:
                    stub.connection.send(Kind.INITIALIZED, result(str(error)))
            case Kind.EXECUTE:
                requests = [numbered(content) for _ in range(content.number())]
                stub.connection.send(Kind.EXECUTED, executed(model, requests, stub))
            case Kind.FINALIZE:
                stub.connection.send(Kind.FINALIZED, result())
                getattr(model, "finalize", lambda _: None)(stub)
                return


def numbered(content):
    """The number of a request, and the request, which begins with it."""
    number = content.number()
    content._at -= 8
    return number, content.request()


def executed(model, requests, stub):
    """The answer to a batch; a model returns for each request a response, or flags without one."""
    try:
        answers = model.execute(requests, stub)
    except Exception as error:
        return result(str(error))
    content = result()
    for answer in answers:
        if isinstance(answer, Response):
            row(1, True, answer, content=content)
        else:
            row(answer, False, content=content)
    return content


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    from envpack.local.connection import Connection, Kind
    from envpack.local.values import Request, Response, Writer

    main(int(sys.argv[2].removeprefix("--local=")))

"""A stand-in for the stub: speaks its side of the connection, and runs models that are plain Python.

The stub embeds another Python and has to be compiled, which unit tests cannot; tests/local runs the real one. A model
is a file with ``execute(requests, stub)`` and maybe ``complete``, ``initialize`` and ``finalize``. This imports little,
so that it starts quickly, and nothing of envpack, whose faults would be on both sides of the connection.
"""

import socket
import struct
import sys

START, AUTO_COMPLETE, INITIALIZE, EXECUTE, FINALIZE, ANSWER, STREAM_RESPONSE = range(1, 8)
COMPLETED, INITIALIZED, EXECUTED, FINALIZED, LOG = range(100, 105)
QUERIES = {"SEND": 200, "IS_CANCELLED": 202, "INFER": 203, "END_STREAM": 204, "CANCEL_STREAM": 205}
QUERIES |= {
    "CREATE_METRIC_FAMILY": 206,
    "DELETE_METRIC_FAMILY": 207,
    "CREATE_METRIC": 208,
    "DELETE_METRIC": 209,
    "CHANGE_METRIC": 210,
}
QUERIES |= {"METRIC_VALUE": 211, "LOAD_MODEL": 212, "UNLOAD_MODEL": 213, "IS_MODEL_READY": 214}


class FailedError(Exception):
    """What a query was answered with instead of a result."""


class Fields:
    """Values by name."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __repr__(self):
        return ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())


class Tensor(Fields):
    """Name, type, shape and content."""


class Request(Fields):
    """A request, with the fields of `envpack.local.values.Request`."""


class Response(Fields):
    """Outputs, or an error with its code; and parameters."""

    def __init__(self, outputs=(), error=None, code=1, parameters=""):
        super().__init__(outputs=outputs, error=error, code=code, parameters=parameters)


def replace(found, **changes):
    """A copy with other fields."""
    return type(found)(**{**found.__dict__, **changes})


TYPES = (
    *("", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "BYTES", "BF16"),
)


class Row:
    """Values, each written by its type."""

    def __init__(self, *values):
        self.content = b""
        self.add(*values)

    def add(self, *values):
        for value in values:
            match value:
                case float():
                    self.content += struct.pack("<d", value)
                case str() | bytes():
                    data = value.encode() if isinstance(value, str) else value
                    self.content += struct.pack("<q", len(data)) + data
                case list() | dict():  # numbers, or texts with their contents
                    self.add(len(value), *value) if isinstance(value, list) else self.add(
                        len(value), *sum(value.items(), ())
                    )
                case Tensor():
                    self.add(
                        value.name, TYPES.index(value.datatype), len(value.shape), *value.shape, len(value.content)
                    )
                    self.content += bytes(-len(self.content) % 16) + value.content
                case Request():
                    self.add(
                        0, 0, value.id, isinstance(value.sequence, str), value.sequence, value.model, value.version
                    )
                    self.add(value.flags, value.timeout, value.parameters, "", [*value.outputs], len(value.inputs))
                    self.add(*value.inputs)
                case Response():
                    self.add(value.error is not None, *([] if value.error is None else [value.code, value.error]))
                    self.add(value.parameters, len(value.outputs), *value.outputs)
                case _:
                    self.content += struct.pack("<q", value)
        return self


class Reader:
    """Reads what envpack has written."""

    def __init__(self, content):
        self.content, self.at = content, 0

    def take(self, size):
        self.at += size
        return self.content[self.at - size : self.at]

    def number(self):
        return struct.unpack("<q", self.take(8))[0]

    def fraction(self):
        return struct.unpack("<d", self.take(8))[0]

    def text(self):
        return self.take(self.number()).decode()

    def pair(self):
        return self.text(), self.text()

    def many(self, read):
        return [read() for _ in range(self.number())]

    def tensor(self):
        name, datatype, shape, size = self.text(), TYPES[self.number()], self.many(self.number), self.number()
        self.at += -self.at % 16
        return Tensor(name=name, datatype=datatype, shape=shape, content=self.take(size))

    def request(self):
        """The number of a request, and the request."""
        number, factory = self.number(), self.number()
        assert number == factory
        found = Request(id=self.text())
        found.sequence = self.text() if self.number() else self.number()
        found.model, found.version, found.flags, found.timeout = (
            self.text(),
            self.number(),
            self.number(),
            self.number(),
        )
        found.parameters, trace, found.outputs = self.text(), self.text(), self.many(self.text)
        assert trace == ""
        found.inputs = self.many(self.tensor)
        return number, found

    def response(self):
        code, error = (self.number(), self.text()) if self.number() else (1, None)
        parameters = self.text()
        return Response(self.many(self.tensor), error, code, parameters)


class Stub:
    """What a model gets: it asks envpack, and sends responses."""

    def __init__(self, end):
        self.end, self.last, self.waiting, self.streams = end, 0, [], []

    def write(self, kind, row, number=0):
        self.end.sendall(struct.pack("<QQQ", kind, number, len(row.content)) + row.content)

    def read(self):
        """The next message: kind, number and content; without one, envpack has ended."""
        kind, number, size = struct.unpack("<QQQ", self.exactly(24))
        return kind, number, Reader(self.exactly(size))

    def exactly(self, size):
        content = b""
        while len(content) < size:
            piece = self.end.recv(size - len(content))
            if not piece:
                sys.exit(1)
            content += piece
        return content

    def ask(self, query, *values):
        """Send a query, and return the reader of its answer."""
        self.last += 1
        self.write(QUERIES[query], Row(*values), self.last)
        while True:
            kind, number, content = self.read()
            if kind == ANSWER and number == self.last:
                if content.number():
                    raise FailedError(content.text())
                return content
            (self.streams if kind == STREAM_RESPONSE else self.waiting).append((kind, number, content))

    def send(self, number, response=None, *, last=False):
        """Send a response of a decoupled model."""
        self.ask("SEND", number, last, response is not None, *([] if response is None else [response]))

    def log(self, text, level=0, file="model.py"):
        self.write(LOG, Row(level, text, file, 7))

    def next_of_stream(self):
        """The next response of a stream: its number, whether it is the last one, and the response."""
        *_, content = self.streams.pop(0) if self.streams else self.read()
        return content.number(), bool(content.number()), content.response()


def attempt(step, *arguments):
    """A row that says whether a step of the model failed; and what it returned."""
    try:
        return Row(False, ""), step(*arguments)
    except Exception as error:
        return Row(True, str(error)), None


def main(end):
    stub, model = Stub(end), {}
    for name in ("Response", "Request", "replace"):
        model[name] = globals()[name]

    model["STUB"] = stub  # for models that ask others while they are loaded

    def load():
        with open(file) as code:
            exec(compile(code.read(), file, "exec"), model)
        return model.get("complete", lambda config: config)(config)

    while True:
        kind, _, content = stub.waiting.pop(0) if stub.waiting else stub.read()
        if kind == START:
            file, backend, model["NAME"] = content.text(), content.text(), content.text()
            model["RELEASE"], model["IN_ENVIRONMENT"] = content.number(), bool(content.number())
            assert backend.endswith("/envpack/local/python")
        elif kind == AUTO_COMPLETE:
            config = content.text()
            answer, completed = attempt(load)
            stub.write(COMPLETED, answer if completed is None else answer.add(completed))
        elif kind == INITIALIZE:
            decoupled, instance = bool(content.number()), content.text()
            arguments = dict(content.many(content.pair))
            initialize = model.get("initialize", lambda *_: None)
            stub.write(INITIALIZED, attempt(initialize, arguments, decoupled, instance)[0])
        elif kind == EXECUTE:
            answer, results = attempt(model["execute"], content.many(content.request), stub)
            for found in results or ():  # a response, or flags without one
                has_response = isinstance(found, Response)
                answer.add(1 if has_response else found, has_response, *([found] if has_response else []))
            stub.write(EXECUTED, answer)
        elif kind == FINALIZE:
            stub.write(FINALIZED, Row(False, ""))
            model.get("finalize", lambda _: None)(stub)
            return


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1].removeprefix("--local="))))

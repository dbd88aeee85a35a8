"""`envpack dev --debug`: a debugger is awaited in the process of a model on the real server."""

import itertools
import json
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from textwrap import indent

import pytest

from envpack.server.kserve import RequestError
from tests.waiting import soon

WARM = 'parameters { key: "ENVPACK_START" value { string_value: "warm" } }\ninstance_group [ { count: 2 } ]\n'
COMPLETES = """
    @staticmethod
    def auto_complete_config(config):
        return config

"""


class Debugger:
    """The client's side of the debug adapter protocol."""

    def __init__(self, port):
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._numbers = itertools.count(1)
        self._stream = self._connection.makefile("rwb")

    def send(self, command, **arguments):
        message = {"seq": next(self._numbers), "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self._stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._stream.flush()

    def wait_for(self, kind, name):
        """The body of the next message of a kind, `event` or `command`, with a name."""
        while True:
            size = int(self._stream.readline().split(b":")[1])
            self._stream.readline()
            message = json.loads(self._stream.read(size))
            if message.get(kind) == name:
                return message.get("body", {})

    def attach(self, file, line):
        """Attach with a breakpoint, and let the model go on."""
        self._file = file
        self.send("initialize", adapterID="test")
        self.send("attach", justMyCode=False)
        self.wait_for("event", "initialized")
        self.send("setBreakpoints", source={"path": str(file)}, breakpoints=[{"line": line}])
        self.send("configurationDone")

    def go_on_from_breakpoint(self):
        """Wait for the breakpoint; returns the line and goes on."""
        thread = self.wait_for("event", "stopped")["threadId"]
        self.send("stackTrace", threadId=thread)
        line = self.wait_for("command", "stackTrace")["stackFrames"][0]["line"]
        self.send("setBreakpoints", source={"path": str(self._file)}, breakpoints=[])
        self.send("continue", threadId=thread)
        return line

    def close(self):
        self._stream.close()
        self._connection.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextmanager
def requests_in_background(running):
    """Send two requests at a time until the block ends, so that each of two instances gets one; yields the answers."""
    enough, answers = threading.Event(), set()

    def send():
        while True:
            answers.add(running.answer())
            if enough.is_set():
                return

    with ThreadPoolExecutor() as pool:
        senders = [pool.submit(send) for _ in range(2)]
        try:
            yield answers
        finally:
            enough.set()
        for sender in senders:
            sender.result()


@pytest.mark.thorough
@pytest.mark.parametrize("more", ["", WARM])
def test_a_debugger_can_attach_after_each_load(required, develop, more):
    """With a warm start and two instances as well, of which one is debugged."""
    shutil.copytree(required, required.parent / "other")
    file = required / "1/model.py"
    file.write_text(file.read_text().replace("    def execute", f"{COMPLETES}    def execute"))
    (required / "config.pbtxt").write_text((required / "config.pbtxt").read_text() + more)
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "InferenceResponse" in text)
    port = free_port()
    running = develop(required.parent, "doubler", "--debug", str(port))
    for factor in (2, 3):
        file.write_text(file.read_text().replace("* 2", f"* {factor}"))
        assert f"waits for a debugger at 127.0.0.1:{port}" in running.wait_for("doubler: waits for")
        debugger = Debugger(port)
        debugger.attach(file, line)
        running.wait_until_ready("doubler")
        with requests_in_background(running) as answers:
            assert debugger.go_on_from_breakpoint() == line
        assert answers == {(factor, 2 * factor)}
        debugger.close()


@pytest.mark.thorough
def test_a_model_that_dies_serves_again_without_the_debugger(required, develop):
    """The debugger may still hold the port."""
    file, flag = required / "1/model.py", required / ".died"
    dies = f"import os\nif not os.path.exists({str(flag)!r}):\n    open({str(flag)!r}, 'w').close()\n    os._exit(3)\n"
    file.write_text(file.read_text().replace("        return [", f"{indent(dies, ' ' * 8)}        return ["))
    port = free_port()
    running = develop(required.parent, "doubler", "--debug", str(port))
    running.wait_for("doubler: waits for")
    debugger = Debugger(port)
    debugger.attach(file, line=2)
    debugger.go_on_from_breakpoint()
    running.wait_until_ready("doubler")
    with pytest.raises(RequestError, match="exited with status 3"):
        running.answer()
    assert soon(lambda: answers(running) == (2, 4))
    debugger.close()


def answers(running):
    try:
        return running.answer()
    except RequestError:  # while it is started again
        return ()


def test_a_port_that_is_in_use_is_refused_before_anything_is_built(required, develop):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, errors = develop(required.parent, "doubler", "--debug", str(taken.getsockname()[1])).failed()
    assert status == 6
    assert "(port-taken)" in errors


def test_one_model_has_to_be_named(required, develop):
    status, errors = develop(required.parent, "--debug").failed()
    assert status == 2
    assert "name the one MODEL" in errors

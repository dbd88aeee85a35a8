"""Everything that waits has a limit, or says beside it who ends it."""

import ast
from pathlib import Path

import envpack

PACKAGE = Path(envpack.__file__).parent
ROOMS = ("local", "development", "testing", "server")
# Methods that wait, and how many arguments they have before their limit.
WAITS = {"wait": 0, "get": 0, "join": 0, "acquire": 0, "result": 0, "communicate": 1, "wait_for": 1, "accept": 0}
READS = {"recv", "recv_into", "recvmsg"}
# What has the name of a method that waits, and does not: a limit is inside it.
LIMITED = {"self._loader.join()", "served.join()"}


def waits(source):
    """The lines of a module on which something waits without a limit, and without a reason beside it."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or ast.unparse(node) in LIMITED:
            continue
        name, module = node.func.attr, ast.unparse(node.func.value)
        given = len(node.args) + len(node.keywords)
        is_wait = (name in WAITS and given <= WAITS[name]) or name in READS or (module, name) == ("os", "read")
        if is_wait and "limit: " not in lines[node.lineno - 1]:
            yield node.lineno, lines[node.lineno - 1].strip()


def test_everything_that_waits_has_a_limit_or_a_reason():
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {text}"
        for room in ROOMS
        for file in sorted((PACKAGE / room).rglob("*.py"))
        for line, text in waits(file.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_wait_is_found_by_its_shape():
    source = """
        thread.join()
        thread.join(timeout)
        done.wait()
        done.wait(5)
        queue.get()  # no limit: close() puts None
        settings.get("name")
        ", ".join(words)
        condition.wait_for(ready)
        condition.wait_for(ready, 3)
        socket.recv_into(left)
    """
    found = [text for _, text in waits("if True:\n" + source)]
    assert found == ["thread.join()", "done.wait()", "condition.wait_for(ready)", "socket.recv_into(left)"]

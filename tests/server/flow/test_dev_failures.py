"""`envpack dev`: servers that end, models that hang, and models that complete their configurations."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from envpack.server.kserve import Client, RequestError
from tests.needed_pythons import need
from tests.waiting import soon

HANGS = """
import time
class TritonPythonModel:
    def initialize(self, args):
        while True:
            time.sleep(1)
    def execute(self, requests):
        return []
"""
COMPLETES = """
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(8)
        return config
"""


def children(pid):
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def server_of(running):
    """Process id of the server that belongs to a command."""
    below = [running.process.pid]
    for pid in below:
        below += children(pid)
        if "tritonserver" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]:
            return pid
    pytest.fail("no server runs")


def test_a_server_that_was_killed_is_started_again_at_the_same_address(required, develop):
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    address = running.client
    os.kill(server_of(running), signal.SIGKILL)
    running.wait_for("the server ended by SIGKILL, and was started again")
    running.wait_until_ready("doubler")
    assert ("doubler", "READY") in {(entry.name, entry.state) for entry in address.index()}
    assert running.answer() == (2, 4)


def test_a_model_whose_process_was_killed_is_loaded_again(required, develop):
    """envpack's stub does it itself; the release's own, which runs models of its Python, does not."""
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    for pid in children(server_of(running)):
        os.kill(pid, signal.SIGKILL)
    running.wait_for("the model's process ended")
    running.wait_until_ready("doubler")
    assert running.answer() == (2, 4)


@pytest.mark.thorough
def test_the_lines_of_the_model_in_which_a_request_failed_are_shown(required, develop):
    """The stub reports them; the release's own, for its Python, does not."""
    python = need("3.12")
    code = (required / "1/model.py").read_text()
    wrong = code.replace("        return [", "        requests[0].none()\n        return [")
    (required / "1/model.py").write_text(wrong)
    running = develop(required.parent, "--python", python, "--json")
    running.wait_until_ready("doubler")
    with pytest.raises(RequestError):
        running.answer()
    running.wait_for("doubler: a request failed")
    assert "has no attribute 'none'" in running.wait_for("AttributeError")
    assert "doubler/1/model.py:" in running.wait_for("in execute")
    running.wait_for("    requests[0].none()")
    (required / "1/model.py").write_text(code)
    running.wait_until_ready("doubler")
    assert running.answer() == (2, 4)
    state = running.end()["doubler"]
    assert (state["request_error"], state["failures"]) == ("", 0)


@pytest.mark.thorough
def test_a_model_that_ends_every_server_is_an_error(required, develop):
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    code = (required / "1/model.py").read_text()
    kills = f"import os, signal\nos.kill({{}}, signal.SIGKILL)\n{code}"
    front_of_all = "int(open('/proc/%d/stat' % os.getppid()).read().split()[3])"  # the server, above the stub's front
    (required / "1/model.py").write_text(kills.format(front_of_all))
    status, errors = running.failed()
    assert status == 6
    assert "the server ended 3 times in a row, the last time by SIGKILL" in errors
    assert "(server-ended)" in errors
    assert "Traceback" not in errors


@pytest.mark.thorough
def test_a_model_that_hangs_is_loaded_again_when_it_changes(required, develop):
    shutil.copytree(required, required.parent / "other")
    code = (required / "1/model.py").read_text()
    running = develop(required.parent)
    running.wait_until_ready("other")
    loads = (required / "1/model.py").with_name("loads")
    (required / "1/model.py").write_text(HANGS.replace("while", f"open({str(loads)!r}, 'w').close()\n        while"))
    assert soon(loads.exists)
    (required / "1/model.py").write_text(code.replace("* 2", "* 7"))
    running.wait_until_ready("doubler")
    assert running.answer() == (7, 14)
    running.wait_until_ready("other")


@pytest.mark.thorough
def test_a_change_while_a_model_is_loaded_is_not_lost(required, develop):
    code = (required / "1/model.py").read_text()
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    pipe = required.parent.parent / "pipe"
    os.mkfifo(pipe)
    (required / "1/model.py").write_text(f"open({str(pipe)!r}).read()\n{code}".replace("* 2", "* 3"))
    with pipe.open("w"):  # it is open when the model is being imported
        (required / "1/model.py").write_text(code.replace("* 2", "* 4"))
    running.wait_until_ready("doubler")
    running.wait_until_ready("doubler")
    assert running.answer() == (4, 8)


@pytest.mark.thorough
def test_a_model_that_begins_to_complete_its_configuration_may(required, develop):
    config = (required / "config.pbtxt").read_text()
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    assert running.client.config("doubler")["max_batch_size"] == 0
    code = (required / "1/model.py").read_text()
    (required / "1/model.py").write_text(code.replace("    def execute", f"{COMPLETES}\n    def execute"))
    running.wait_until_ready("doubler")
    assert running.client.config("doubler")["max_batch_size"] == 8
    assert "max_batch_size" not in config


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more",
    [
        "",
        "max_batch_size: 4",
        "max_batch_size: 4\ndynamic_batching { }",
        "instance_group [ { count: 2 } ]",
        "max_batch_size: 4\nsequence_batching { }",
        "model_transaction_policy { decoupled: true }",
    ],
)
def test_a_server_without_completion_serves_the_same_configuration(required, more):
    from envpack.repository.model import open_model
    from envpack.server.launch import find_server
    from envpack.server.process import ProcessRuntime
    from envpack.settings.project import open_project
    from envpack.settings.releases import find_release
    from envpack.settings.table import DEFAULT_RELEASE, Settings
    from envpack.workflow.build import build_model

    file = required / "config.pbtxt"
    file.write_text(file.read_text() + more + "\n")
    said = Settings(python=find_release(DEFAULT_RELEASE).python)
    build_model(open_project(required.parent, said), "doubler")
    assert not open_model(required).may_complete
    served = []
    for arguments in ((), ("--disable-auto-complete-config",)):
        with ProcessRuntime(find_server(), arguments=arguments).start(required.parent) as server:
            client = Client(server.url)
            client.load("doubler", timeout=60)
            served.append(client.config("doubler"))
    assert served[0] == served[1]


@pytest.mark.thorough
def test_a_model_whose_process_ends_at_every_start_holds_up_no_other_one(required, develop):
    """The server of 24.10 would wait for that process for ever."""
    dying = required.parent / "a_dying_one"
    shutil.copytree(required, dying)
    config = (dying / "config.pbtxt").read_text()
    (dying / "config.pbtxt").write_text(config.replace('"doubler"', '"a_dying_one"'))
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    (activation,) = dying.glob("python3.*/bin/activate")
    good, code = activation.read_bytes(), (dying / "1/model.py").read_text()
    activation.unlink()  # it is a link to a file of the cache
    activation.write_text("echo no library >&2\nexit 3\n")
    (dying / "1/model.py").write_text(f"{code}\n# changed\n")
    running.wait_for("a_dying_one: failed")
    running.wait_for("the model's process ended during the load")
    running.wait_for("no library")
    running.wait_until_ready("doubler")  # on another server
    assert running.answer() == (2, 4)
    activation.write_bytes(good)
    (dying / "1/model.py").write_text(code)
    running.wait_until_ready("a_dying_one")
    assert running.answer("a_dying_one") == (2, 4)

"""Instances that start warm are forks of one process, which has imported the model once in each load."""

import os
import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from envpack.server.log import stub_reports
from envpack.settings.pythons import SUPPORTED
from envpack.verification.stub_processes import instances
from tests.waiting import soon

pytestmark = [pytest.mark.spoils, pytest.mark.parametrize("python", SUPPORTED[:1] + SUPPORTED[-1:])]

# Memory that a fork does not copy: 10 is MADV_DONTFORK, which the module mmap has from Python 3.8 on.
EXCLUDED = """
import ctypes, mmap
KEPT = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE)
ADDRESS = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(KEPT)))
assert ctypes.CDLL(None).madvise(ADDRESS, ctypes.c_size_t(4096), 10) == 0
"""
IMPORT = """
def note(name, *values):
    with open(NOTES + name, "a") as file:
        file.write(" ".join(map(str, (os.getpid(), *values))) + "\\n")

note("imported")
"""
NOTING = """

class TritonPythonModel(TritonPythonModel):
    def initialize(self, args):
        self.args = args
        note("initialized", args["model_instance_name"])

    def finalize(self):
        note("finalized")
"""
INSTANCES = "instance_group [ {{ kind: KIND_CPU count: {} }} ]"
WITHOUT_COMPLETION = ("--disable-auto-complete-config",)


class Site:
    """A repository and its server, started by the first load."""

    def __init__(self, servers, python, folder, stack):
        self._servers, self._python, self._stack = servers, python, stack
        self.repository = folder / "repository"
        self.repository.mkdir()
        self.served = None

    def place(self, name, *, code="", count=1, start="warm", **parameters):
        """A script model with more code behind its own."""
        parts = self._servers.model_environments
        environment, stub = parts.environments(self._python)[0], parts.stub(self._python)
        parameters = {**({"ENVPACK_START": start} if start else {}), **parameters}
        self._servers.place(self.repository, name, "script", environment, stub, INSTANCES.format(count), **parameters)
        # Not in the folder of the model, which other models may share.
        notes = f"NOTES = {str(self.repository.parent / name)!r}\n"
        self.change(name, lambda text: text + notes + IMPORT + code)

    def change(self, name, edit):
        file = self.repository / name / "1/model.py"
        file.write_text(edit(file.read_text()))

    def load(self, *names, **options):
        self.served = self.served or self._servers.start(self._python, self.repository, self._stack, **options)
        self.served.load(names)
        return self.served

    def noted(self, name, what):
        """The lines that the processes of a model have written: process id, and other words."""
        file = self.repository.parent / f"{name}{what}"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def importers(self, name):
        return [int(words[0]) for words in self.noted(name, "imported")]

    def starts(self):
        return {name: report.start for name, report in stub_reports(self.served.server.log()).items()}

    def found(self, name):
        return instances(self.served.server, name)

    def template_is_gone(self, pid):
        return soon(lambda: not Path(f"/proc/{pid}").exists() and self.served.server.orphans() == ())


@pytest.fixture
def site(servers, interpreter, python, tmp_path):
    servers.close()
    with ExitStack() as stack:
        yield Site(servers, python, tmp_path, stack)


@pytest.mark.parametrize("arguments", [(), WITHOUT_COMPLETION], ids=["completed", "as-it-is"])
def test_all_instances_are_forks_of_one_process_that_imports_the_model_once(site, arguments):
    site.place("m", count=3)
    served = site.load("m", arguments=arguments)
    (template,) = site.importers("m")
    assert [each.worker.parent for each in site.found("m")] == [template] * 3
    pids = {each.worker.pid for each in site.found("m")}
    assert len(pids) == 3
    assert served.evaluate("os.getpid()", model="m") in pids
    assert soon(lambda: set(site.starts().values()) == {"warm"})
    served.client.unload("m")
    assert site.template_is_gone(template)
    assert served.server.stop().leftovers == ()


def test_a_model_without_the_parameter_starts_as_the_server_says_and_cold_by_default(site, pytestconfig):
    start = pytestconfig.getoption("--start") or "cold"
    site.place("m", start="")
    site.load("m")
    assert len(site.importers("m")) == (1 if start == "warm" else 2)
    assert soon(lambda: site.starts() == {"m_0_0": start})


@pytest.mark.thorough
def test_a_models_own_parameter_has_priority_over_the_servers_variable(site):
    site.place("cold", start="cold")
    site.place("other", start="")
    site.load("cold", "other", variables={"ENVPACK_START": "warm"})
    assert soon(lambda: site.starts() == {"cold_0_0": "cold", "other_0_0": "warm"})


@pytest.mark.parametrize("name", ["ENVPACK_START", "ENVPACK_TEMPLATE"])
def test_an_unknown_value_fails_the_load(site, name):
    site.place("m", **{name: "hot"})
    assert f"{name} is not '" in site.load("m").failures["m"]


def test_each_load_has_its_own_template_and_runs_the_code_as_it_is_then(site):
    site.place("m", code="VALUE = 1\n")
    served = site.load("m")
    assert served.evaluate("VALUE", model="m") == 1
    site.change("m", lambda text: text.replace("VALUE = 1", "VALUE = 2"))
    served.load(["m"])
    assert served.evaluate("VALUE", model="m") == 2
    first, second = site.importers("m")
    assert soon(lambda: not Path(f"/proc/{first}").exists())
    assert site.found("m")[0].worker.parent == second


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n", "thread"),
        ("import socket\nKEPT = socket.socket()\n", "socket:"),
        *(
            pytest.param(*row, marks=pytest.mark.thorough)
            for row in (
                ("import select\nKEPT = select.epoll()\n", "eventpoll"),
                ("import mmap\nKEPT = mmap.mmap(-1, 4096)\n", "shared memory"),
                (EXCLUDED, "not copy"),
                ("import signal\nsignal.setitimer(signal.ITIMER_VIRTUAL, 1e6)\n", "a timer"),
                ("import subprocess\nKEPT = subprocess.Popen(['sleep', '600'])\n", "processes"),
                ("KEPT = open(NOTES + 'kept', 'w')\n", "mkept"),
            )
        ),
    ],
    ids=["thread", "socket", "epoll", "mapping", "excluded", "timer", "process", "file"],
)
def test_what_a_fork_would_break_is_named_and_the_model_starts_cold(site, code, cause):
    site.place("m", code=code)
    served = site.load("m")
    assert served.evaluate("1 + 1", model="m") == 2
    assert soon(lambda: site.starts() == {"m_0_0": "cold"})
    told = [line for line in served.server.log().splitlines() if "starts cold: " in line]
    assert told
    assert all(cause in line for line in told)
    if "Popen" in code:
        served.run_code("KEPT.kill(); KEPT.wait(); return [reply(0)]", model="m")


@pytest.mark.parametrize(
    "code",
    [
        "np.linalg.inv(np.random.random((600, 600)))\n",
        "import logging\nlogging.basicConfig(filename=__file__ + '.log', level=logging.INFO)\n",
        "import mmap\nFILE = open(__file__, 'rb')\nKEPT = mmap.mmap(FILE.fileno(), 0, prot=mmap.PROT_READ)\n",
        "from concurrent.futures import ThreadPoolExecutor\nKEPT = ThreadPoolExecutor()\n",
    ],
    ids=["BLAS", "log", "mapping", "unused-pool"],
)
def test_what_a_fork_does_not_break_starts_warm(site, code):
    site.place("m", code=code)
    served = site.load("m")
    assert served.evaluate("float(np.linalg.det(np.linalg.inv(np.eye(600))))", model="m") == 1
    assert soon(lambda: site.starts() == {"m_0_0": "warm"})


@pytest.mark.thorough
def test_processes_of_other_programs_get_no_worker(site):
    site.place("m")
    served = site.load("m")
    text = Path("/proc/net/unix").read_text()
    (name,) = {line.split("@")[1] for line in text.splitlines() if "@envpack-template-" in line}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(f"\0{name}")
        assert stranger.recv(1) == b""
    assert served.evaluate("1 + 1", model="m") == 2


def test_a_process_that_dies_is_replaced_by_a_fork_of_the_template(site):
    site.place("m")
    served = site.load("m")
    (template,) = site.importers("m")
    worker = served.evaluate("os.getpid()", model="m")
    os.kill(worker, signal.SIGKILL)
    successor = served.evaluate("os.getpid()", model="m")
    assert successor != worker
    assert site.found("m")[0].worker.parent == template
    assert site.importers("m") == [template]
    error = served.refusal("import ctypes; ctypes.string_at(0)", model="m").message
    assert re.search(r"was killed by signal 11 \(SIGSEGV\) at model.py:\d+ in ", error)


@pytest.mark.thorough
def test_instances_draw_different_random_numbers(site):
    code = NOTING.replace('args["model_instance_name"]', "random.random(), np.random.random()")
    site.place("m", code="import random\n" + code, count=3)
    site.load("m")
    numbers = [number for words in site.noted("m", "initialized") for number in words[1:]]
    assert len(set(numbers)) == len(numbers) == 6


def test_handlers_of_forks_run(site):
    site.place("m", code="os.register_at_fork(after_in_child=lambda: note('forked'))\n", count=2)
    site.load("m")
    assert {int(words[0]) for words in site.noted("m", "forked")} >= {each.worker.pid for each in site.found("m")}


WAITS, DIES = "threading.Event().wait()", "os._exit(3)"
HANDLERS = [
    pytest.param("before, None, None", WAITS, "a handler of forks does not return", id="before"),
    pytest.param("None, before, None", WAITS, "a handler of forks does not return", id="parent"),
    pytest.param("None, None, before", WAITS, "a handler of forks does not return", id="child"),
    pytest.param("None, None, before", DIES, "a handler of forks ends the process", id="child-dies"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("place", "does", "reason"), HANDLERS)
def test_a_model_whose_handlers_of_forks_do_not_return_starts_cold(site, place, does, reason):
    # By the C library, since Python 3.6 has no such handlers. Only the stub's own forks run them.
    code = (
        "import ctypes, threading\n"
        f"@ctypes.CFUNCTYPE(None)\ndef before():\n    {does}\n"
        f"assert '--template' not in open('/proc/self/cmdline').read().split('\\0') or "
        f"ctypes.CDLL(None).__register_atfork({place}, None) == 0\n"
    )
    site.place("m", code=code)
    served = site.load("m")
    assert f"starts cold: {reason}" in served.server.log()
    assert served.evaluate("1 + 1", model="m") == 2
    served.client.unload("m")
    assert soon(lambda: served.server.children() == ())


def test_a_template_can_initialize_the_model_for_all_instances(site):
    site.place("m", code=NOTING, count=3, ENVPACK_TEMPLATE="initialize")
    served = site.load("m")
    ((pid, name),) = site.noted("m", "initialized")
    assert [int(pid)] == site.importers("m")
    assert re.fullmatch(r"m_0_[012]", name)
    assert served.evaluate("self.args['model_instance_name']", model="m") == name
    workers = {str(each.worker.pid) for each in site.found("m")}
    served.client.unload("m")
    assert soon(lambda: {words[0] for words in site.noted("m", "finalized")} == workers)
    assert site.template_is_gone(pid)


@pytest.mark.thorough
def test_a_model_that_cannot_be_initialized_in_the_template_starts_cold(site):
    code = NOTING.replace("self.args = args", "threading.Thread(target=threading.Event().wait, daemon=True).start()")
    site.place("m", code="import threading\n" + code, count=2, ENVPACK_TEMPLATE="initialize")
    served = site.load("m")
    assert served.evaluate("1 + 1", model="m") == 2
    assert served.soon_logged(" starts cold: ")
    assert soon(lambda: set(site.starts().values()) == {"cold"})
    assert {words[1] for words in site.noted("m", "initialized")} == {"m_0_0", "m_0_1"}


def test_an_exception_in_the_import_fails_the_load_with_its_line_and_leaves_nothing(site):
    site.place("m", code="raise ValueError('not today')\n")
    served = site.load("m")
    assert "ValueError: not today" in served.failures["m"]
    assert site.template_is_gone(site.importers("m")[0])
    assert soon(lambda: served.stubs("m") == [])


def test_nothing_is_left_when_the_server_is_killed(site):
    site.place("m", count=2)
    served = site.load("m")
    (template,) = site.importers("m")
    pids = [template, *(pid for each in site.found("m") for pid in (each.stub.pid, each.worker.pid))]
    os.kill(served.server.pid, signal.SIGKILL)
    assert soon(lambda: not any(_runs(pid) for pid in pids))


@pytest.mark.thorough
def test_instances_whose_template_is_killed_end_with_it_and_start_again_cold(site):
    site.place("m", count=2)
    served = site.load("m")
    (template,) = site.importers("m")
    workers = [each.worker.pid for each in site.found("m")]
    os.kill(template, signal.SIGKILL)
    assert soon(lambda: not any(_runs(pid) for pid in workers))
    assert soon(lambda: {each.worker.parent for each in site.found("m")} == set(served.stubs("m")))
    assert served.evaluate("os.getpid()", model="m") not in workers
    assert soon(lambda: site.starts() == {"m_0_0": "cold", "m_0_1": "cold"})


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_model_that_ignores_its_children_dies_of_what_has_been_seen(site):
    site.place("m", code="import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n")
    served = site.load("m")
    assert soon(lambda: set(site.starts().values()) == {"warm"})
    assert served.evaluate("int(__import__('signal').getsignal(17))", model="m") == 1  # as the model has set it
    assert "exited with status 3" in served.refusal("os._exit(3)", model="m").message
    assert served.evaluate("1 + 1", model="m") == 2

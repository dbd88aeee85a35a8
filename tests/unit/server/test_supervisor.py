"""The supervisor of a server starts it, follows orders, and ends it with all that it started and made."""

import contextlib
import ctypes
import errno
import gc
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from envpack.server import supervisor_child
from envpack.server.supervisor import Supervisor
from envpack.support.errors import ServerError
from tests.waiting import soon

PATH = {"PATH": "/usr/bin:/bin"}
WAIT = "; echo ready; sleep 600 & wait"


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def prefix():
    """What the names of the server's own regions begin with."""
    return f"envpack_supervised_{os.getpid()}_"


@pytest.fixture
def supervisor(home):
    """A supervisor that has no server yet."""
    with (home / "log").open("wb") as log:
        supervisor = Supervisor(home, log)
    yield supervisor
    supervisor.end()


@pytest.fixture
def start(supervisor, home, prefix):
    """Starts a shell script as the server, and waits until it prints "ready" if it does; returns its process id."""

    def start(script, **variables):
        pid = supervisor.start(["/bin/sh", "-c", script], {**PATH, **variables}, prefix)
        assert "ready" not in script or soon(lambda: "ready\n" in printed(home))
        return pid

    return start


def printed(home):
    return (home / "log").read_text()


def runs(pid):
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_has_a_session_a_folder_variables_and_nothing_else_of_this_process(start, home):
    pid = start(f"true{WAIT}", MINE="x y")
    process = Path(f"/proc/{pid}")
    assert os.getpgid(pid) == os.getsid(pid) == pid
    assert (process / "cwd").readlink() == home
    assert (process / "environ").read_bytes() == b"PATH=/usr/bin:/bin\0MINE=x y\0"
    files = {file.name: str(file.readlink()) for file in (process / "fd").iterdir()}
    log = str(home / "log")
    assert {name: files[name] for name in "012"} == {"0": "/dev/null", "1": log, "2": log}
    assert {file for name, file in files.items() if name not in "012"} <= {"/dev/null"}


@pytest.fixture
def subreaper():
    """This process becomes the parent of what its descendants leave."""
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)
    yield
    prctl(36, 0, 0, 0, 0)


def test_a_server_ignores_no_signal_that_python_ignores(start):
    pid = start(f"true{WAIT}")
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert int(status["SigIgn"], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0


@pytest.mark.parametrize(
    ("program", "number"),
    [("/nowhere/server", errno.ENOENT), ("/dev/null", errno.EACCES)],
    ids=["missing", "no program"],
)
@pytest.mark.usefixtures("subreaper")
def test_a_program_that_cannot_be_started_is_an_error_that_names_it(home, supervisor, program, number):
    before = children(os.getpid())  # servers that fixtures of other tests started
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
        supervisor.start([program], PATH, "envpack_x_")
    assert (caught.value.errno, caught.value.filename) == (number, program)
    assert not Path(f"/proc/{supervisor.pid}").exists()
    assert printed(home) == ""
    left = set(children(os.getpid())) - set(before)
    assert left == set()  # nothing to reap, for example by a process 1 that does not


def test_a_supervisor_that_cannot_start_is_an_error(home, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/true")
    with (home / "log").open("wb") as log:
        supervisor = Supervisor(home, log)
    with pytest.raises(ServerError) as caught:
        supervisor.start(["/bin/true"], PATH, "envpack_x_")
    assert caught.value.message == "the program that watches the server ended at its start"
    assert caught.value.kind == "server-failed"
    assert caught.value.hint == "run the command again; if it happens again, check the limits of processes and memory"


def test_no_descriptor_stays_open(home):
    before = os.listdir("/proc/self/fd")
    for program in ("/bin/true", "/nowhere"):
        with (home / "log").open("wb") as log:
            supervisor = Supervisor(home, log)
        try:
            supervisor.start([program], PATH, "envpack_x_")
        except FileNotFoundError:
            assert program == "/nowhere"
        supervisor.end()
    assert set(os.listdir("/proc/self/fd")) <= set(before)  # a thread of an earlier test may have closed one


def test_a_signal_for_the_terminals_processes_does_not_reach_the_supervisor(start, supervisor):
    start("exec sleep 600")
    assert os.getsid(supervisor.pid) == supervisor.pid


def test_a_start_that_is_interrupted_leaves_nothing(supervisor, home, prefix, monkeypatch):
    def interrupt(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor._reports, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        supervisor.start(["/bin/sleep", "600"], PATH, prefix)
    assert supervisor._program.returncode == 0  # it ended by itself
    assert not home.exists()


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", -signal.SIGTERM)])
def test_how_a_server_ended_is_known(start, supervisor, script, code):
    start(script)
    assert supervisor.wait(60)
    assert supervisor.exit_code() == code
    assert supervisor.end() == ()
    assert supervisor.exit_code() == code
    assert not Path(f"/proc/{supervisor.pid}").exists()


def test_every_thread_that_waits_learns_how_the_server_ended(start, supervisor):
    known = queue.SimpleQueue()

    def wait():
        supervisor.wait(600)
        known.put(supervisor.exit_code())

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    start("exit 4")
    assert [known.get(timeout=60) for _ in threads] == [4] * len(threads)


def test_waiting_for_a_server_that_runs_on_ends_with_the_time(start, supervisor):
    pid = start(f"true{WAIT}")
    assert supervisor.wait(0.01) is False
    assert supervisor.exit_code() is None
    assert runs(pid)


def test_a_server_is_asked_to_stop(start, supervisor):
    start("trap 'exit 4' TERM; echo ready; sleep 600 & wait")
    supervisor.terminate()
    assert supervisor.wait(60)
    assert supervisor.exit_code() == 4


def test_orders_for_a_server_that_has_ended_change_nothing(start, supervisor):
    start("exit 4")
    assert supervisor.wait(60)
    supervisor.terminate()
    supervisor.kill()
    assert supervisor.end() == ()
    supervisor.kill()
    assert supervisor.exit_code() == 4


def test_a_kill_reaches_the_servers_process_group_which_leaves_nothing(start, supervisor, home):
    pid = start(f"trap '' TERM; sleep 600 & echo $!{WAIT}")
    child = int(printed(home).split()[0])
    supervisor.kill()
    assert supervisor.wait(60)
    assert supervisor.exit_code() == -signal.SIGKILL
    assert soon(lambda: not runs(child))
    assert supervisor.end() == ()
    assert not runs(pid)


def test_what_outlives_a_server_is_ended_removed_and_named(start, supervisor, prefix):
    region = Path(f"/dev/shm/{prefix}region")
    start(
        f": > {region}; setsid sleep 601 & setsid sh -c '(sleep 602 &) ; exec sleep 603' & echo ready; exec sleep 600"
    )
    assert soon(lambda: {"601", "602", "603"} <= sleeping(supervisor.pid))
    *processes, memory = supervisor.end()
    assert sorted(re.sub(r"\d+ \(", "N (", re.sub(r", \d+ s old$", "", text)) for text in processes) == [
        f"process N (sleep {seconds})" for seconds in (601, 602, 603)
    ]
    assert not any(runs(text.split()[1]) for text in processes)
    assert memory == f"shared memory {region}"
    assert not region.exists()


def sleeping(parent):
    """For how long the descendants of a process sleep."""
    found = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one has ended
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            found |= {words[1]} if words[0] == "sleep" else set()
            found |= sleeping(child)
    return found


def test_a_process_that_ends_by_itself_soon_after_the_server_is_not_named(start, supervisor, home):
    start("mkfifo pipe; setsid sh -c 'read line < pipe; sleep 0.3' & exec 3> pipe; echo ready; exit 0")
    assert supervisor.wait(60)
    assert supervisor.end() == ()


def test_shared_memory_that_a_model_left_is_removed_and_named(start, supervisor, home):
    segment = Path(f"/dev/shm/left_by_a_model_{os.getpid()}")
    start(f"exec 3<>{segment}{WAIT}")
    assert soon(lambda: (home / "made").exists() and segment.name in (home / "made").read_text())
    supervisor.terminate()
    assert supervisor.wait(60)
    assert f"shared memory {segment}" in supervisor.end()
    assert not segment.exists()


@pytest.mark.parametrize(("last", "more"), [(150, ()), (153, ("3 more",))])
def test_of_many_leftovers_fifty_are_named(start, supervisor, prefix, last, more):
    start(f"for n in $(seq 101 {last}); do : > /dev/shm/{prefix}$n; done; exit 0")
    assert supervisor.wait(60)
    assert supervisor.end() == (*(f"shared memory /dev/shm/{prefix}{n}" for n in range(101, 151)), *more)


def test_a_command_line_cannot_write_to_the_terminal(start, supervisor):
    start("setsid sh -c \"$(printf 'sleep 605\\n: \\033[31m')\" & echo ready; exec sleep 600")
    assert soon(lambda: "605" in sleeping(supervisor.pid))
    supervisor.kill()
    left = supervisor.end()
    assert [text for text in left if "31m" in text]
    assert [text for text in left if not text.isprintable()] == []


def test_a_supervisor_that_does_not_end_is_killed_with_the_server(start, supervisor, monkeypatch):
    pid = start(f"true{WAIT}")
    monkeypatch.setattr("envpack.server.supervisor._END_SECONDS", 0.1)
    os.kill(supervisor.pid, signal.SIGSTOP)
    assert supervisor.end() is None
    assert supervisor.exit_code() == -signal.SIGKILL
    assert soon(lambda: not runs(pid))


def test_a_server_does_not_outlive_a_supervisor_that_is_killed(start, supervisor):
    pid = start("exec sleep 600")
    assert supervisor.exit_code() is None
    os.kill(supervisor.pid, signal.SIGKILL)
    assert soon(lambda: not runs(pid))
    assert supervisor.wait(60)
    assert supervisor.exit_code() == -signal.SIGKILL
    assert supervisor.end() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_to_the_supervisor_ends_all_and_removes_the_folder(start, supervisor, home, number):
    pid = start("exec sleep 600")
    os.kill(supervisor.pid, number)
    assert supervisor.wait(60)
    assert supervisor.exit_code() == -signal.SIGKILL
    assert supervisor.end() == ()
    assert not runs(pid)
    assert not home.exists()


def test_the_folder_stays_if_the_end_was_ordered(start, supervisor, home):
    start("exec sleep 600")
    assert supervisor.end() == ()
    assert home.exists()


def test_a_server_ends_when_nothing_refers_to_its_supervisor(home, prefix):
    with (home / "log").open("wb") as log:
        supervisor = Supervisor(home, log)
    pid, watcher = supervisor.start(["/bin/sleep", "600"], PATH, prefix), supervisor.pid
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the process that is still to end
        del supervisor
        gc.collect()
    assert soon(lambda: not runs(pid) and not home.exists())
    with contextlib.suppress(ChildProcessError):
        os.waitpid(watcher, 0)


# A program as envpack: it starts a server and then waits.
ENVPACK = """
import sys
from pathlib import Path
from envpack.server.supervisor import Supervisor

home = Path(sys.argv[1])
with (home / "log").open("wb") as log:
    supervisor = Supervisor(home, log)
if sys.argv[3] == "start":
    pid = supervisor.start(["/bin/sh", "-c", sys.argv[2]], {"PATH": "/usr/bin:/bin"}, "envpack_of_a_test_")
if sys.argv[4:]:
    supervisor.detach()
print(supervisor.pid, pid if sys.argv[3] == "start" else 0, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def envpack(home):
    """Starts `ENVPACK`; returns the process, and the process ids of the supervisor and of the server."""
    started = []

    def start(*words):
        command = [sys.executable, "-c", ENVPACK, home, *words]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, *map(int, process.stdout.readline().split())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_server_ends_with_a_killed_envpack_and_its_folder_goes(envpack, home):
    process, supervisor, server = envpack("setsid sleep 600 & exec sleep 600", "start")
    process.kill()
    assert soon(lambda: not runs(supervisor))
    assert not runs(server)
    assert not home.exists()


def test_the_folder_of_an_envpack_that_is_killed_before_it_starts_a_server_goes(envpack, home):
    process, supervisor, _ = envpack("", "wait")
    process.kill()
    assert soon(lambda: not runs(supervisor))
    assert not home.exists()


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.communicate], ids=["killed", "by itself"])
def test_a_server_that_is_left_running_outlives_envpack_and_is_cleaned_up_at_its_own_end(envpack, home, end):
    process, supervisor, server = envpack("mkfifo pipe; setsid sleep 600 & read line < pipe", "start", "detach")
    assert soon((home / "pipe").exists)
    (left,) = soon(lambda: [child for child in children(server) if "sleep" in command_of(child)])
    before = rests(supervisor)
    end(process)
    process.wait(60)
    assert soon(lambda: rests(supervisor) > before + 1)  # it has seen the end of envpack, and goes on
    assert runs(server)
    assert home.exists()
    (home / "pipe").write_text("end\n")
    assert soon(lambda: not runs(supervisor))
    assert not runs(left)
    assert home.exists()  # with the log


def children(parent):
    return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:  # it has just ended
        return ""


def rests(pid):
    """How many times a process has waited for something."""
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def test_a_signal_between_two_looks_is_not_lost(tmp_path, monkeypatch):
    """It comes while the supervisor asks for its parent, as a signal can at every call."""
    (orders, order), (reports, report) = os.pipe(), os.pipe()
    parent, looks = os.getppid(), []
    watching = supervisor_child.Supervisor(orders, report, str(tmp_path), "envpack_none_", parent)

    def look():
        looks.append(watching._note(signal.SIGTERM, None) if not looks else os.write(order, b"e"))
        return parent

    monkeypatch.setattr(os, "getppid", look)
    watching._watch()
    assert (watching._abandoned, len(looks)) == (True, 1)
    for descriptor in (orders, order, reports, report):
        os.close(descriptor)

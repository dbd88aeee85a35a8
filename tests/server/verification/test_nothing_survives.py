"""Whatever ends envpack, and whatever a model starts or makes: nothing of it stays, and the verdict names it."""

import glob
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify
from tests.waiting import soon

PROCESS = ServerSpec(Settings(runtime="process"))


def verify_elsewhere(repository, *words):
    """Start the command in a process of its own, which can be killed."""
    command = [sys.executable, "-m", "envpack", "verify", "--runtime", "process", "--json", *words]
    return subprocess.Popen(
        [*command, "--repository", str(repository)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def processes_that_name(folder):
    """The servers whose folders are below this one, their supervisors, and the processes of their models."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            words += os.fsencode((process / "cwd").readlink())
        except OSError:
            continue
        if f"{folder}/envpack-verify-".encode() in words:
            found.append(int(process.name))
    return found


# Starts a server, and sends itself a signal at a line of the code that starts it; prints how many lines these were.
# The number differs by a few from run to run, so that the last place may lie behind them: then the signal follows them.
KILLS_ITSELF = """import os, subprocess, sys
from pathlib import Path
from envpack.server import supervisor
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime
from envpack.support.interruption import once_interruptible

repository, place, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
files = {supervisor.__file__, subprocess.__file__}
lines = 0


def trace(frame, event, argument):
    global lines
    if frame.f_code.co_filename not in files:
        return None
    lines += event == "line"
    if event == "line" and lines == place:
        os.kill(os.getpid(), number)
    return trace


with once_interruptible():
    sys.settrace(trace)
    with ProcessRuntime(find_server(Path(sys.argv[4]))).start(Path(repository)):
        sys.settrace(None)
        print(lines, flush=True)
        if lines < place:
            os.kill(os.getpid(), number)
"""
PLACES = 12


def kill_itself(server, folder, place, number):
    command = [sys.executable, "-c", KILLS_ITSELF, folder, str(place), str(number), server.executable]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def lines(server, tmp_path_factory):
    """How many lines of code start a server."""
    return int(kill_itself(server, tmp_path_factory.mktemp("models"), 0, 0).stdout)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("part", range(1, PLACES + 1))
def test_no_moment_exists_in_which_a_kill_leaves_the_server(server, lines, tmp_path, temporary, number, part):
    (tmp_path / "models").mkdir()
    done = kill_itself(server, tmp_path / "models", lines * part // PLACES - 3, number)
    assert done.returncode == (-number if number == signal.SIGKILL else 128 + number), done
    assert soon(lambda: processes_that_name(temporary) == [])
    if number == signal.SIGTERM:  # killed before it starts anything, it leaves its folder to the next run
        assert soon(lambda: list(temporary.iterdir()) == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("attempt", range(4))
def test_no_server_outlives_envpack(environment, faults, tmp_path, temporary, number, attempt):
    faults.write_model(tmp_path / "models", faults.GOOD, environment)
    run = verify_elsewhere(tmp_path / "models")
    assert soon(lambda: processes_that_name(temporary))
    time.sleep(random.uniform(0, 1.5))  # the moment is what is tested
    run.send_signal(number)
    run.wait(60)
    assert soon(lambda: processes_that_name(temporary) == [])
    assert soon(lambda: list(temporary.iterdir()) == [])


def starts(statement):
    """The code of a good model that executes this statement first, in the process that runs the model."""
    return f"""import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        {statement}

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy() * 2)]) for r in requests
        ]
"""


def judged(faults, folder, environment, statement):
    faults.write_model(folder, faults.Broken("starter", starts(statement), "", ""), environment)
    verdict = verify(folder, spec=PROCESS)
    (model,) = verdict.models
    assert model.ok, model.failure
    return verdict


NEW_SESSION = "import subprocess; subprocess.Popen(['sleep', '601.{n}'], start_new_session=True)"
DOUBLE_FORK = "import subprocess; subprocess.run(['bash', '-c', '(setsid sleep 602.{n} > /dev/null 2>&1 &)'])"
CLEAN_DAEMON = DOUBLE_FORK.replace("setsid sleep 602", "cd /; env -i setsid sleep 603")


@pytest.mark.thorough
@pytest.mark.parametrize("statement", [NEW_SESSION, DOUBLE_FORK, CLEAN_DAEMON], ids=["session", "fork", "daemon"])
def test_a_process_that_outlives_its_model_is_ended_and_named(environment, faults, tmp_path, statement):
    statement = statement.format(n=os.getpid())
    program = re.search(r"60\d\.\d+", statement)[0]
    verdict = judged(faults, tmp_path, environment, statement)
    (left,) = verdict.leftovers
    assert re.fullmatch(rf"process \d+ \(sleep {program}\), \d+ s old", left)
    assert not verdict.ok
    assert not Path("/proc", left.split()[1]).exists()


SEGMENT = (
    "from multiprocessing import resource_tracker, shared_memory; "
    "self.memory = shared_memory.SharedMemory('{name}', create=True, size=4096); "
    "resource_tracker.unregister(self.memory._name, 'shared_memory')"
)


def test_shared_memory_that_a_model_leaves_is_removed_and_named(environment, faults, tmp_path):
    segment = Path(f"/dev/shm/left_by_a_model_{os.getpid()}")
    verdict = judged(faults, tmp_path, environment, SEGMENT.format(name=segment.name))
    assert verdict.leftovers == (f"shared memory {segment}",)
    assert not verdict.ok
    assert not segment.exists()


@pytest.mark.thorough
def test_shared_memory_that_a_model_only_uses_stays(environment, faults, tmp_path):
    """It was there before, or it was made by another program."""
    segment = Path(f"/dev/shm/used_by_a_model_{os.getpid()}")
    segment.write_bytes(bytes(4096))
    try:
        verdict = judged(faults, tmp_path, environment, f"self.memory = open('{segment}', 'r+b')")
        assert segment.exists()
    finally:
        segment.unlink(missing_ok=True)
    assert (verdict.ok, verdict.leftovers) == (True, ())


PRINTS = """import os, time
print("Extracting Python execution env", {folder!r} + "/0", flush=True)
open({ready!r}, "w").close()
while not os.path.exists({go!r}):
    time.sleep(0.02)
held = open({folder!r} + "/file")
"""


@pytest.mark.thorough
def test_the_environment_of_another_server_survives_a_model_that_prints_and_uses_it(
    environment, faults, tmp_path, temporary
):
    ready, go = tmp_path / "ready", tmp_path / "go"
    folder = Path(f"/tmp/python_env_{os.getpid() % 10**6:06}")
    code = PRINTS.format(folder=str(folder), ready=str(ready), go=str(go)) + faults.DOUBLE
    faults.write_model(tmp_path / "models", faults.Broken("prints", code, "", ""), environment)
    run = verify_elsewhere(tmp_path / "models")
    try:
        assert soon(ready.exists)
        folder.mkdir()
        (folder / "file").touch()
        go.touch()
        assert run.wait(60) == 0
        assert (folder / "file").exists()
    finally:
        run.kill()
        run.wait()
        (folder / "file").unlink(missing_ok=True)
        folder.rmdir()


@pytest.fixture
def archive(environment, tmp_path):
    """An archive whose unpacking takes seconds; returns it and a file that is unpacked first."""
    marker = f"marker_{tmp_path.parent.name}_{tmp_path.name}"
    (tmp_path / marker).touch()
    large = tmp_path / "large"
    with large.open("wb") as file:
        for _ in range(200):
            file.write(random.randbytes(1 << 20))
    archive = tmp_path / "environment.tar"
    command = ["tar", "--dereference", "-cf", archive, "-C", tmp_path, marker, "large", "-C", environment, "."]
    subprocess.run(command, check=True)
    large.unlink()
    yield archive, marker
    archive.unlink()


def extracted(marker):
    return glob.glob(f"/tmp/python_env_*/*/{marker}")  # unlike Path's, it bears folders that others remove


@pytest.mark.thorough
def test_a_time_out_while_an_archive_is_unpacked_leaves_nothing(archive, faults, tmp_path):
    packed, marker = archive
    faults.write_model(tmp_path / "models", faults.HANGS, packed)
    (model,) = verify(tmp_path / "models", spec=PROCESS.saying(timeout=3)).models
    assert model.failure.kind == "load-timeout", model.failure
    assert extracted(marker) == []


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["INT", "TERM", "KILL"])
def test_a_kill_while_an_archive_is_unpacked_leaves_nothing(archive, faults, tmp_path, temporary, number):
    packed, marker = archive
    faults.write_model(tmp_path / "models", faults.HANGS, packed)
    run = verify_elsewhere(tmp_path / "models")
    assert soon(lambda: extracted(marker))
    run.send_signal(number)
    run.wait(60)
    assert soon(lambda: processes_that_name(temporary) == [] and extracted(marker) == [])
    assert soon(lambda: list(temporary.iterdir()) == [])


@pytest.mark.thorough
def test_the_next_run_removes_what_a_killed_supervisor_left(archive, environment, faults, tmp_path, temporary):
    """Both are killed at once, so nobody is left who could clean up."""
    packed, marker = archive
    segment = Path(f"/dev/shm/left_by_a_model_{os.getpid()}")
    code = starts(f"{DOUBLE_FORK.format(n=1)}; {SEGMENT.format(name=segment.name)}; import time; time.sleep(600)")
    faults.write_model(tmp_path / "models", faults.Broken("starter", code, "", ""), packed)
    run = verify_elsewhere(tmp_path / "models")
    assert soon(segment.exists)
    home = next(temporary.iterdir())
    assert soon(lambda: segment.name in (home / "made").read_text())
    (supervisor,) = (pid for pid in children_of(run.pid) if f"{home}" == os.readlink(f"/proc/{pid}/cwd"))
    (server,) = (pid for pid in children_of(supervisor) if name_of(pid) == "tritonserver")
    run.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    run.kill()
    run.wait()
    assert soon(lambda: server not in processes_that_name(temporary))  # the kernel ends it
    assert processes_that_name(temporary) != []
    assert home.exists()
    faults.write_model(tmp_path / "next", faults.GOOD, environment)
    assert verify(tmp_path / "next", spec=PROCESS).ok
    assert processes_that_name(temporary) == []
    assert list(temporary.iterdir()) == []
    assert not segment.exists()
    assert extracted(marker) == []


def name_of(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


def children_of(parent):
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]

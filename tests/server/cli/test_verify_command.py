"""`envpack verify` with a real server: exit codes, text and JSON output, an unchanged repository."""

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.clusters import children_of, runs, task_processes
from tests.faults.broken_models import DOUBLE, GOOD, HANGS, Broken, write_model
from tests.faults.command_line import assert_refused, command, envpack, listing, variables
from tests.waiting import soon

DEEP = """import triton_python_backend_utils as pb_utils


def weights(path):
    return open(path)


class TritonPythonModel:
    def initialize(self, args):
        self.weights = weights("/nonexistent/weights.npy")
"""
RAISES = Broken("raises", DEEP, "load-failed", "FileNotFoundError")
BAD_SAMPLES = Broken("samples", DOUBLE, "bad-samples", "not valid samples", files={"envpack/smoke.json": '{"data": ['})


@pytest.fixture
def repository(environment, tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def test_the_verdict_on_a_good_repository_is_yes(environment, repository):
    write_model(repository, GOOD, environment)
    before = listing(repository)
    ended = envpack("verify", "--json", "--repository", repository)
    assert ended.code == 0, ended.err
    assert "VERDICT: yes" in ended.err
    assert "1 of 2 numbers right" in ended.err
    assert "\x1b" not in ended.err
    assert ended.document["schema"] == 1
    verdict = ended.document["verdict"]
    assert (verdict["ok"], verdict["models"][0]["name"], verdict["models"][0]["failure"]) == (True, "good", None)
    quiet = envpack("verify", "--quiet", "--repository", repository, "good")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert listing(repository) == before


def test_the_verdict_on_broken_models_is_no_with_reasons(environment, repository):
    for broken in (RAISES, BAD_SAMPLES, GOOD):
        write_model(repository, broken, environment)
    before = listing(repository)
    ended = envpack("verify", "--json", "--quiet", "--repository", repository)
    assert ended.code == 1, ended.err
    assert "VERDICT: no" in ended.err  # even when quiet
    assert "Traceback" not in ended.err
    failures = {model["name"]: model["failure"] for model in ended.document["verdict"]["models"]}
    assert failures["good"] is None
    raised = failures["raises"]
    code = repository / "raises/1/model.py"
    assert raised["kind"] == "load-failed"
    assert "FileNotFoundError" in raised["reason"]
    assert raised["details"] == [f"{code}:10 in initialize", f"{code}:5 in weights"]
    assert all(f"    {frame}\n" in ended.err for frame in raised["details"])
    assert f"  fix: {code}:5: put the file there" in ended.err
    assert failures["samples"]["kind"] == "bad-samples"
    assert f"{repository}/samples/envpack/smoke.json:1" in ended.err
    assert listing(repository) == before


@pytest.mark.thorough
def test_a_blocked_load_is_abandoned(environment, repository):
    write_model(repository, HANGS, environment)
    before = listing(repository)
    ended = envpack("verify", "--json", "--repository", repository, "--timeout", "8")
    assert ended.code == 1, ended.err
    (model,) = ended.document["verdict"]["models"]
    assert model["failure"]["kind"] == "load-timeout"
    assert "not loaded after 8 s" in ended.err
    assert "    asleep" in ended.err
    assert model["load_seconds"] >= 8
    assert listing(repository) == before


def test_a_port_in_use_is_an_error(environment, repository):
    write_model(repository, GOOD, environment)
    before = listing(repository)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        assert_refused(
            envpack("verify", "--json", "--repository", repository, "--set", f"port={port}"), 6, "port-taken", port
        )
    assert listing(repository) == before


def test_an_interrupted_verification_stops_the_server_and_leaves_nothing_behind(environment, repository, tmp_path):
    write_model(repository, HANGS, environment)
    before = listing(repository)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = command("verify", "--json", "--repository", repository)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(words, env=variables({"TMPDIR": str(scratch)}), text=True, cwd="/", **pipes)
    end = time.monotonic() + 60
    while not has_stub(child.pid):
        assert child.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    (home,) = scratch.iterdir()
    started = [*children(child.pid), *(stub for server in children(child.pid) for stub in children(server))]
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "error: interrupted; what was there before is as it was (interrupted)" in err.splitlines()
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert not [pid for pid in started if Path(f"/proc/{pid}/exe").exists()]
    assert not list(scratch.iterdir())
    assert not list(Path("/dev/shm").glob(f"*{home.name.removeprefix('envpack-verify-')}*"))
    assert listing(repository) == before


@pytest.mark.thorough
def test_an_interrupted_verification_on_a_worker_stops_the_worker_s_server(environment, repository):
    write_model(repository, HANGS, environment)
    before = listing(repository)
    words = command("verify", "--json", "--repository", repository, "--runtime", "process", "--on", "local:1")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(words, env=variables(), text=True, cwd="/", **pipes)
    assert soon(lambda: child.poll() is not None or any(map(has_stub, task_processes(child.pid))))
    started = children_of(child.pid)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert soon(lambda: not any(map(runs, started)))
    assert listing(repository) == before


def has_stub(pid: int) -> bool:
    """Whether a command has a server as its child, and that one a stub."""
    return any(children(server) for server in children(pid))


def children(pid: int | str) -> list[str]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for thread in threads for child in thread.read_text().split()]

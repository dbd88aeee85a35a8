"""How a server on this machine ends, and that nothing of it stays. The server is a Python script that responds."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from envpack.server import process, stale_runs
from envpack.server.kserve import Client
from envpack.server.launch import ServerInstallation
from envpack.server.process import ProcessRuntime, ProcessServer
from envpack.support.errors import ServerError
from tests.waiting import soon

SERVER = """\
import http.server, os, re, signal, subprocess, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
words = " ".join(sys.argv)
prefix = re.search(r"shm-region-prefix-name=(\\S+)", words)[1]
signal.signal(signal.SIGTERM, lambda *_: (print("asked to stop", flush=True), os._exit(0)))
server = http.server.HTTPServer(("127.0.0.1", int(re.search(r"--http-port=(\\d+)", words)[1])), Answer)
"""
SERVE = "server.serve_forever()\n"
SUBPROCESS = "subprocess.Popen(['sleep', '600'])\n"
REGION = "open(f'/dev/shm/{prefix}region', 'w').close()\n"
DEAF = "signal.signal(signal.SIGTERM, lambda *_: print('asked to stop', flush=True))\n"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary folders, empty."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture
def runtime(tmp_path, temporary):
    """A runtime whose server does this besides responding."""
    (tmp_path / "backends/python").mkdir(parents=True)
    (tmp_path / "backends/python/libtriton_python.so").touch()

    def make(*lines, **options):
        program = tmp_path / "tritonserver"
        program.write_text(f"#!{sys.executable}\n{SERVER}{''.join(lines)}{SERVE}")
        program.chmod(0o755)
        return ProcessRuntime(ServerInstallation(program, tmp_path / "backends"), **{"start_seconds": 60, **options})

    return make


@pytest.fixture
def ends(monkeypatch):
    """How servers have ended: their exit statuses and logs."""
    found, stop = [], ProcessServer.stop

    def noted(server, **options):
        first, result = server._stopped is None, stop(server, **options)
        if first:
            found.append((result.exit_code, server.log()))
        return result

    monkeypatch.setattr(ProcessServer, "stop", noted)
    return found


KILLED = (-signal.SIGKILL, "")  # without a request to stop


def test_a_server_is_asked_to_stop_at_the_end_and_its_folder_is_removed(runtime, tmp_path, temporary):
    with runtime().start(tmp_path) as server:
        (home,) = temporary.iterdir()
        assert (home / "owner").read_text() == stale_runs.this_owner()
        assert os.getpgid(server.pid) == server.pid
        assert (home / ".local/lib/python3.10/site-packages/usercustomize.py").exists()
        assert sorted(os.listdir(home / "backends")) == ["python"]
        assert not server.ended()
        stopped = server.stop()
        assert "asked to stop" in server.log()
    assert (stopped.exit_code, stopped.forced, stopped.leftovers) == (0, False, ())
    assert server.stop() is stopped
    assert 0 < stopped.seconds < 60
    assert server.ended()
    assert list(temporary.iterdir()) == []


def test_processes_and_shared_memory_of_a_server_that_ended_are_removed_and_reported(runtime, tmp_path):
    with runtime(SUBPROCESS, REGION).start(tmp_path) as server:
        (child,) = server.children()
        (region,) = server.shared_memory()
    stopped = server.stop()
    assert (len(stopped.leftovers), stopped.forced) == (2, False), stopped
    process, memory = stopped.leftovers
    assert re.fullmatch(rf"process {child.pid} \(sleep 600\), \d+ s old", process)
    assert memory == f"shared memory /dev/shm/{region}"
    assert not Path("/dev/shm", region).exists()


def test_a_server_that_does_not_stop_in_time_is_killed(runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(process, "STOP_SECONDS", -4.9)
    with runtime(DEAF).start(tmp_path) as server:
        pass
    assert (server.stop().exit_code, server.stop().forced) == (-signal.SIGKILL, True)


@pytest.mark.parametrize("reason", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_kills_the_server_at_once(runtime, tmp_path, temporary, ends, reason):
    with pytest.raises(reason), runtime().start(tmp_path) as server:
        raise reason
    assert ends == [KILLED]
    assert (server.stop().exit_code, server.stop().forced) == (-signal.SIGKILL, True)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("code", [0, 3])
def test_a_server_that_ended_by_itself_is_not_killed(runtime, tmp_path, code):
    line = f"signal.signal(signal.SIGTERM, lambda *_: (print('log', flush=True), os._exit({code})))\n"
    with runtime(line).start(tmp_path) as server:
        os.kill(server.pid, signal.SIGTERM)
        assert soon(server.ended)
        stopped = server.stop(force=True)
    assert (stopped.exit_code, stopped.forced, stopped.leftovers) == (code, False, ())


def test_a_kept_server_goes_on_and_later_runs_leave_it_alone(runtime, tmp_path, temporary):
    try:
        with runtime().start(tmp_path) as server:
            assert not server.kept
            told = server.keep()
        assert (server.kept, server.ended()) == (True, False)
        (home,) = temporary.iterdir()
        assert told == f"{server.url}, log {home}/log; stop it with: kill {server.pid} && rm -r {home}"
        assert not (home / "owner").exists()  # so that no later run stops it
        assert stale_runs.remove_stale_homes() == ()
        assert not server.ended()
    finally:
        assert server.stop(force=True).forced


def test_a_folder_that_cannot_be_removed_is_no_error(runtime, tmp_path, temporary, monkeypatch):
    def rmdir(*_, **options):
        raise PermissionError

    with runtime().start(tmp_path):
        monkeypatch.setattr("os.rmdir", rmdir)
    assert [home.name.startswith("envpack-verify-") for home in temporary.iterdir()] == [True]


@pytest.fixture
def live(monkeypatch):
    """Decides what envpack sees of a server that responds."""

    def see(result):
        real = Client.live

        def seen(client):
            while not real(client):
                pass
            return result()

        monkeypatch.setattr(Client, "live", seen)

    return see


def test_a_server_is_killed_if_waiting_for_it_is_interrupted(runtime, tmp_path, temporary, ends, live):
    def interrupt():
        raise KeyboardInterrupt

    live(interrupt)
    with pytest.raises(KeyboardInterrupt), runtime().start(tmp_path):
        pytest.fail("started")
    assert ends == [KILLED]
    assert list(temporary.iterdir()) == []


def test_a_server_that_does_not_respond_in_time_is_killed(runtime, tmp_path, temporary, ends, live):
    live(lambda: False)
    with pytest.raises(ServerError), runtime(start_seconds=0.01).start(tmp_path):
        pytest.fail("started")
    assert ends == [KILLED]
    assert list(temporary.iterdir()) == []


def test_a_start_that_fails_leaves_no_folder(runtime, tmp_path, temporary, monkeypatch):
    def link_backends(*_):
        raise PermissionError

    monkeypatch.setattr(process, "link_backends", link_backends)
    with pytest.raises(PermissionError), runtime().start(tmp_path):
        pytest.fail("started")
    assert list(temporary.iterdir()) == []


def test_leftovers_of_a_server_that_dies_at_its_start_are_removed(runtime, tmp_path, ends):
    with pytest.raises(ServerError), runtime(REGION, "print(prefix)\n", "sys.exit(3)\n").start(tmp_path):
        pytest.fail("started")
    ((code, log),) = ends
    assert (code, log.startswith("envpack_")) == (3, True)
    assert stale_runs.shared_memory_named(log.strip()) == ()


def test_leftovers_of_earlier_runs_are_removed_first(runtime, tmp_path, temporary):
    stale = stale_runs.new_home()
    (stale / "owner").write_text("another-boot/pid:[1]/1/1")
    with runtime().start(tmp_path):
        assert not stale.exists()


def test_two_servers_do_not_share_a_port_or_regions(runtime, tmp_path):
    with runtime(REGION).start(tmp_path) as first, runtime(REGION).start(tmp_path) as second:
        assert first.url != second.url
        assert set(first.shared_memory()).isdisjoint(second.shared_memory())
        second.stop()
        assert len(first.shared_memory()) == 1


def test_a_server_has_only_the_variables_that_it_needs(runtime, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    with runtime(environment={"LC_ALL": "C", "MINE": "y"}).start(tmp_path) as server:
        found = server.variables(server.pid)
    assert set(found) >= {"PATH", "HOME", "PYTHONDONTWRITEBYTECODE"}
    assert (found["LC_ALL"], found["MINE"], found["HOME"]) == ("C", "y", str(server._home))
    assert "SECRET" not in found
    with runtime().start(tmp_path) as server:  # no locale, as in the images, where Python would read files as ASCII
        assert not set(server.variables(server.pid)) & {"LANG", "LC_ALL", "LC_CTYPE"}


def test_processes_that_the_server_started_can_be_aborted(runtime, tmp_path):
    with runtime(SUBPROCESS).start(tmp_path) as server:
        (child,) = server.children()
        server.abort(child.pid)
        while not server.children()[0].dead:
            pass
        assert os.WTERMSIG(server.children()[0].status) == signal.SIGABRT
        server.abort(2**22 + 1)  # which has ended meanwhile

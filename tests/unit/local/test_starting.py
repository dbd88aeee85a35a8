"""How the stub of a model's process is started: as a server does it for an execution environment."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.local import starting
from envpack.local.starting import Output, Python, _command_line, _environment, start_stub
from envpack.support.errors import ServerError, system_error

STUB, PREFIX = Path("/opt/stub"), Path("/opt/env")


@pytest.fixture
def prefix(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").touch()
    return tmp_path


def test_servers_up_to_25_07_activate_the_environment(prefix, monkeypatch):
    python = Python(STUB, prefix)
    monkeypatch.setenv("PATH", "/nonexistent")  # a server has its own
    through = ["/bin/bash", "-c", 'source "$0" && exec "$1" "$2"', f"{prefix}/bin/activate", "/opt/stub", "--local=7"]
    assert _command_line(python, 2507, "--local=7") == through
    assert _command_line(python, 2508, "--local=7") == ["/opt/stub", "--local=7"]
    (prefix / "bin/activate").unlink()
    assert _command_line(python, 2507, "--local=7") == ["/opt/stub", "--local=7"]


def test_an_environment_without_search_paths_gets_the_systems(monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.delenv("PATH")
    found = _environment(Python(STUB, PREFIX), {})
    assert (found["PATH"], found["LD_LIBRARY_PATH"]) == (f"/opt/env/bin:{os.defpath}", "/opt/env/lib")


def test_a_stub_gets_its_connection_and_writes_where_the_caller_says(tmp_path):
    stub = tmp_path / "stub"
    stub.write_text('#!/bin/sh\necho "$1" "$MORE"\necho error >&2\ncat "/dev/fd/${1#--local=}"\n')
    stub.chmod(0o755)
    read_end, write_end = os.pipe()
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        output = Output(err.fileno())
        python, variables = Python(stub, tmp_path), {"MORE": "more"}
        process = start_stub(python, 2508, read_end, variables, stdout=out.fileno(), output=output)
        os.close(read_end)
        os.write(write_end, b"through the connection")
        os.close(write_end)
        assert process.wait(60) == 0
        assert output.end() == "error\n"
    assert (tmp_path / "out").read_text() == f"--local={read_end} more\nthrough the connection"
    assert (tmp_path / "err").read_text() == "error\n"


def test_what_the_system_refuses_to_any_program_is_not_blamed_on_the_stub(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("envpack.local.starting.subprocess.Popen", refuse)
    with (tmp_path / "out").open("wb") as out:
        output = Output(out.fileno())
        with pytest.raises(BlockingIOError) as raised:
            start_stub(Python(tmp_path / "stub", tmp_path), 2508, 0, {}, stdout=out.fileno(), output=output)
        assert output.end() == "", "nothing holds the other end open"
    assert system_error(raised.value).kind == "system-limit"


def test_a_stub_that_cannot_be_started_says_where_it_should_be(tmp_path):
    read_end, write_end = os.pipe()
    with (tmp_path / "out").open("wb") as out:
        output = Output(out.fileno())
        with pytest.raises(ServerError) as raised:
            start_stub(Python(tmp_path / "none", tmp_path), 2508, read_end, {}, stdout=out.fileno(), output=output)
        assert output.end() == "", "nothing holds the other end open"
    for handle in (read_end, write_end):
        os.close(handle)
    error = raised.value
    assert (error.kind, error.where) == ("stub-failed", str(tmp_path / "none"))
    assert error.message == "the stub cannot be started: No such file or directory"
    assert error.hint == "set ENVPACK_CACHE_DIR to a folder whose programs can be run"


def test_only_the_first_process_waits_for_a_debugger(tmp_path):
    """One that is started again after a death would wait, and nothing would say so."""
    (tmp_path / "claim").touch()
    (tmp_path / "debugpy.py").write_text(
        "def configure(python): ...\ndef listen(place): ...\ndef wait_for_client():\n    print('waits')\n"
    )
    settings = {"debug": ["127.0.0.1", 5678], "debugger": str(tmp_path), "claim": str(tmp_path / "claim")}
    for output in ("waits\n", ""):
        ended = subprocess.run(
            [sys.executable, "-c", "import envpack_run"],
            env={
                "ENVPACK_RUN": json.dumps(settings),
                "PYTHONPATH": str(Path(starting.__file__).with_name("python")),
            },
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert ended.stdout == output


def test_a_process_that_the_model_forks_writes_no_profile(tmp_path):
    """Both would write the same file at the same time."""
    settings = json.dumps({"profile": str(tmp_path / "profile.json")})
    code = "import os, sys, envpack_run\nif os.fork() == 0:\n    sys.exit()\nos.wait()\n{}\n"
    for last, files in (("os._exit(0)", []), ("", ["profile.json"])):
        ended = subprocess.run(
            [sys.executable, "-c", code.format(last)],
            env={"ENVPACK_RUN": settings, "PYTHONPATH": str(Path(starting.__file__).with_name("python"))},
            check=False,
        )
        assert ended.returncode == 0
        assert [file.name for file in tmp_path.iterdir()] == files

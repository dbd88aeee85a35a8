"""A run removes what killed runs left behind, but no kept servers and no concurrent runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.server import stale_runs
from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify
from tests.waiting import soon

PROCESS = ServerSpec(Settings(runtime="process"))


@pytest.fixture
def repository(environment, faults, tmp_path):
    faults.write_model(tmp_path / "models", faults.GOOD, environment)
    return tmp_path / "models"


def start(repository, *words):
    command = [sys.executable, "-m", "envpack", "verify", *words, "--runtime", "process", "--json"]
    return subprocess.Popen(
        [*command, "--repository", str(repository)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.thorough
def test_concurrent_runs_do_not_disturb_each_other(repository, temporary):
    runs = [start(repository, "good") for _ in range(2)]
    for run in runs:
        out, error = run.communicate(timeout=120)
        assert run.returncode == 0, (out, error)
    assert list(temporary.iterdir()) == []


@pytest.mark.thorough
def test_a_kept_server_runs_until_the_printed_command_stops_it(repository, temporary):
    out, error = start(repository, "good", "--keep").communicate(timeout=120)
    verdict = json.loads(out)["verdict"]
    assert verdict["ok"], error
    pid = int(re.search(r"kill (\d+)", verdict["kept"])[1])
    try:
        assert verify(repository, ["good"], spec=PROCESS).ok
        assert is_running(pid)
    finally:
        subprocess.run(["bash", "-c", verdict["kept"].partition("with: ")[2]], check=True)
    assert soon(lambda: not is_running(pid))
    assert list(temporary.iterdir()) == []


def test_an_owner_differs_from_a_later_process_with_its_id():
    own = stale_runs.this_owner()
    boot, space, pid, started = own.split("/")
    assert not stale_runs.owner_is_gone(own)
    assert stale_runs.owner_is_gone("/".join((boot, space, pid, str(int(started) + 1))))
    assert stale_runs.owner_is_gone("/".join(("another-boot", space, pid, started)))
    # The process ids of another container mean nothing here.
    assert not stale_runs.owner_is_gone("/".join((boot, "pid:[1]", "999999999", started)))
    assert not stale_runs.owner_is_gone("damaged")

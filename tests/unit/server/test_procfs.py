"""What /proc says of processes, read on this machine and with the shell scripts for containers."""

import os
import subprocess
import sys

import pytest

from envpack.server import procfs
from envpack.server.procfs import ContainerProcfs, pids_in, proportional_bytes

# Watches a process that is not its child, and one that has ended.
WATCHES = """
import os, subprocess, sys
watched = os.pidfd_open(int(sys.argv[1]))
gone = subprocess.Popen(["true"])
kept = os.pidfd_open(gone.pid)
gone.wait()
print("ready", flush=True)
sys.stdin.read()
"""


def by_bash(script, argument):
    return subprocess.run(["bash", "-c", script, "bash", argument], capture_output=True, check=False).stdout


@pytest.fixture
def watching():
    """Process ids of a process, and of one that watches it."""
    with (
        subprocess.Popen([sys.executable, "-c", "input()", "with\nodd words"], stdin=subprocess.PIPE) as watched,
        subprocess.Popen(
            [sys.executable, "-c", WATCHES, str(watched.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as watcher,
    ):
        assert watcher.stdout.readline() == b"ready\n"
        yield watched.pid, watcher.pid
        watcher.stdin.close()
        watched.stdin.close()


@pytest.mark.parametrize("read", [procfs.watched_by, ContainerProcfs(by_bash).watched])
def test_processes_that_another_one_watches_are_found(watching, read):
    watched, watcher = watching
    (found,) = read(watcher)
    assert (found.pid, found.dead, found.parent) == (watched, False, os.getpid())
    assert found.arguments[-1] == "with\nodd words"
    assert read(watched) == ()
    assert read(1 << 22) == ()


def test_a_watched_process_that_nobody_has_reaped_is_dead():
    child = subprocess.Popen(["true"])
    descriptor = os.pidfd_open(child.pid)
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        (found,) = (process for process in procfs.watched_by(os.getpid()) if process.pid == child.pid)
        assert (found.dead, found.arguments) == (True, ())
    finally:
        os.close(descriptor)
        child.wait()


def test_descriptors_of_other_kinds_and_of_lost_processes_name_none():
    assert pids_in("pos:\t0\nflags:\t02000002\nPid:\t42\nNSpid:\t42\npos:\t7\n") == [42]
    assert pids_in("Pid:\t-1\nPid:\t0\n") == []
    assert pids_in("tfd: 5 Pid:\t42\n") == []


def test_the_first_of_many_paths_that_the_containers_user_cannot_read(tmp_path):
    (tmp_path / "a folder *").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "absent")
    there = [str(tmp_path), str(tmp_path / "a folder *")]
    find = ContainerProcfs(by_bash).unreadable
    assert find(there) == find([]) == ""
    assert find([*there, str(tmp_path / "out"), str(tmp_path / "absent")]) == str(tmp_path / "out")
    assert find([*there, "/proc/1/absent $(true)"]) == "/proc/1/absent $(true)"


@pytest.mark.parametrize("read", [procfs.memory_bytes, ContainerProcfs(by_bash).memory_bytes])
def test_memory_is_the_proportional_one(watching, read):
    pid, _ = watching
    assert 1 << 20 < read(pid) < 1 << 30
    assert read(1 << 22) == 0


def test_the_proportional_memory_is_that_of_the_whole_process():
    text = "55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:    9000 kB\nPss:    4096 kB\nPss_Anon:    1 kB\n"
    assert proportional_bytes(text) == 4 << 20
    assert proportional_bytes("Rss:    9000 kB\n") == 0


LIMITED = """
import os, resource, sys
if user := int(sys.argv[1]):
    os.setresuid(user, user, user)
most, hard = int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_NPROC)[1]
resource.setrlimit(resource.RLIMIT_NPROC, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("user", "most", "is_at_limit"),
    [(54321, 1, True), (54321, 2, False), (0, 1, False)],
    ids=["full", "one left", "root"],
)
def test_a_user_with_as_many_processes_as_a_process_may_have_is_at_its_limit(user, most, is_at_limit):
    if os.geteuid() != 0:
        user, most = os.geteuid(), most if is_at_limit else 1 << 22
    command = [sys.executable, "-c", LIMITED, str(user), str(most)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"ready\n"
        assert procfs.at_process_limit(child.pid) == is_at_limit
        child.stdin.close()
    assert not procfs.at_process_limit(1 << 22)


@pytest.mark.parametrize(
    ("group", "folder"),
    [("8:pids:/pod/box", "pids/pod/box"), ("0::/pod/box", "pod/box"), ("0::/pod/box", "pod"), ("0::/", "")],
    ids=["version 1", "version 2", "the group around it", "the group of a container"],
)
@pytest.mark.parametrize(
    ("current", "most", "is_full"), [("45", "45", True), ("46", "45", True), ("44", "45", False), ("45", "max", False)]
)
def test_a_control_group_with_as_many_processes_as_it_may_have_is_at_its_limit(
    group, folder, current, most, is_full, tmp_path, monkeypatch
):
    monkeypatch.setattr(procfs, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(procfs, "text", lambda _, file: f"9:name=systemd:/\n{group}\n" if file == "cgroup" else "")
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / "pids.current").write_text(f"{current}\n")
    (tmp_path / folder / "pids.max").write_text(f"{most}\n")
    assert procfs.at_process_limit(os.getpid()) == is_full

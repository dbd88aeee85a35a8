"""The rights and limits of a server's container, as the daemon states them and as its processes have them."""

import os
import resource
from dataclasses import dataclass

import pytest

from tests.container.conftest import Envpack, write_model
from tests.container.inside import output_of

MEMORY = 600 << 20
USER = f"{os.getuid()}:{os.getgid()}" if os.getuid() else "65534:65534"
NO_CAPABILITIES = "0" * 16
MOST_PROCESSES = 4096
# Of every process in the container: its name, its rights and its limits.
PROCESSES = 'for p in /proc/[0-9]*; do echo "== $p"; cat "$p/status" "$p/limits" 2> /dev/null; done'
# The second name of each file is that of cgroup v1.
CGROUP = """cd /sys/fs/cgroup
for files in "pids.max pids/pids.max" "memory.max memory/memory.limit_in_bytes"; do
    for file in $files; do [ -f "$file" ] && cat "$file"; done
done
exit 0
"""


@dataclass(frozen=True)
class Running:
    """A container whose server was loading a model.

    Attributes:
        daemon: "docker" or "podman".
        settings: what the daemon says about the container.
        processes: facts about each process in it, by name: the lines of its status, and its hard limits.
        mounts: options of each mount in it, by place.
        limits: largest number of processes and bytes of memory, of its control group.
    """

    daemon: str
    settings: dict
    processes: dict
    mounts: dict
    limits: list


def at_most(most, kind):
    """A limit that is not above that of this process."""
    own = resource.getrlimit(kind)[1]
    return most if own == resource.RLIM_INFINITY else min(most, own)


def read(container, script):
    return output_of(container, ["bash", "-c", script])


def facts_of(text):
    """By the name of a process: its status by name, and its soft and hard limits by name."""
    processes = {}
    for process in text.split("== /proc/")[1:]:
        status, separator, limits = process.partition("Limit ")
        if not separator:  # it ended meanwhile
            continue
        facts = dict(line.split(":", 1) for line in status.splitlines()[1:])
        facts |= {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()[1:]}
        processes[facts["Name"].strip()] = facts
    return processes


@pytest.fixture(scope="module", params=["docker", "podman"])
def running(request, built, tmp_path_factory):
    daemon = request.getfixturevalue({"docker": "daemon", "podman": "podman"}[request.param])
    repository = tmp_path_factory.mktemp("rights") / "models"
    write_model(repository, "hangs", "__import__('time').sleep(1000)", like=built / "double")
    envpack = Envpack(daemon, repository)
    process = envpack.start("--set", f"memory={MEMORY}", "--timeout", "300")
    try:
        container = envpack.wait_for_container()
        mounts = (line.split() for line in read(container, "cat /proc/1/mountinfo").splitlines())
        return Running(
            request.param,
            container.attrs,
            facts_of(read(container, PROCESSES)),
            {fields[4]: fields[5].split(",") for fields in mounts},
            read(container, CGROUP).split(),
        )
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_server_and_its_models_are_looked_at(running):
    assert {"tritonserver", "triton_python_b"} <= set(running.processes)


def test_no_process_has_a_right_or_can_gain_one(running):
    for name, facts in running.processes.items():
        rights = {facts[f"Cap{kind}"].strip() for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
        assert (name, rights) == (name, {NO_CAPABILITIES})
        assert (name, facts["NoNewPrivs"].strip()) == (name, "1")


def test_every_process_belongs_to_a_user_without_rights(running):
    uid, gid = USER.split(":")
    for name, facts in running.processes.items():
        assert (name, facts["Uid"].split(), facts["Gid"].split()) == (name, [uid] * 4, [gid] * 4)
        assert (name, set(facts["Groups"].split()) <= {gid}) == (name, True)


def test_no_process_leaves_a_core_or_opens_any_number_of_files(running):
    files = at_most(65536, resource.RLIMIT_NOFILE)
    for name, facts in running.processes.items():
        assert (name, facts["Max core file size"]) == (name, ["0", "0"])
        assert (name, facts["Max open files"]) == (name, [str(files)] * 2)
        if running.daemon == "podman":  # which would ask for the highest possible number
            assert (name, facts["Max processes"]) == (name, [str(at_most(4096, resource.RLIMIT_NPROC))] * 2)


def test_the_number_of_processes_and_the_memory_are_limited(running):
    assert running.limits == [str(MOST_PROCESSES), str(MEMORY)]
    host = running.settings["HostConfig"]
    assert (host["PidsLimit"], host["Memory"], host["MemorySwap"]) == (MOST_PROCESSES, MEMORY, MEMORY)


def test_all_is_read_only_but_tmp_and_shared_memory(running):
    assert running.settings["HostConfig"]["ReadonlyRootfs"] is True
    assert all(not mount["RW"] for mount in running.settings["Mounts"] if mount["Type"] == "bind")
    assert "ro" in running.mounts["/"]
    assert "ro" in running.mounts["/models"]
    assert "noexec" not in running.mounts["/tmp"]  # the server unpacks environments there and loads their libraries
    writable = {place for place, options in running.mounts.items() if "rw" in options}
    own = {"docker": {"/tmp"}, "podman": {"/tmp", "/run", "/var/tmp"}}  # in memory; podman mounts two more by itself
    assert {place for place in writable if not place.startswith(("/dev", "/proc", "/sys", "/etc"))} == own[
        running.daemon
    ]


def test_the_container_shares_no_namespace_and_only_this_machine_reaches_it(running):
    host = running.settings["HostConfig"]
    assert host["Privileged"] is False
    assert "host" not in {host["NetworkMode"], host["PidMode"], host["IpcMode"], host.get("UTSMode")}
    assert not host["Devices"]
    published = [port for ports in running.settings["NetworkSettings"]["Ports"].values() for port in ports or ()]
    assert {port["HostIp"] for port in published} == {"127.0.0.1"}


def test_the_daemon_states_the_rights_that_were_asked_for(running):
    host = running.settings["HostConfig"]
    assert running.settings["Config"]["User"] == USER
    assert host["SecurityOpt"] == ["no-new-privileges"]
    if running.daemon == "docker":  # podman lists every capability by name
        assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]

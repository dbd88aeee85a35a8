"""What a server and its models make is recorded and removed, and nothing that another program makes."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from envpack.server import made_objects, proc as proc_module
from envpack.server.made_objects import MadeObjects, drain, identity, read_made, remove
from envpack.server.proc import children, descendants, phrase
from tests.waiting import soon

PREFIX = "envpack_x_"
SERVER = "server-of-tests"  # other servers of this machine do not count


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Folders for shared memory and for extracted environments, empty."""
    for name in ("shm", "extracted"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(made_objects, "SHARED_MEMORY", str(tmp_path / "shm"))
    monkeypatch.setattr(made_objects, "EXTRACTED", str(tmp_path / "extracted/python_env_"))
    monkeypatch.setattr(made_objects, "_SERVER", SERVER)
    return tmp_path


@pytest.fixture
def made(folders):
    return MadeObjects(PREFIX, str(folders / "record"))


@pytest.fixture
def model():
    """Starts a descendant of this process, which runs a shell script and then waits; returns its process id."""
    started = []

    def start(script, program="sh"):
        child = subprocess.Popen(
            [program, "-c", f"{script}; echo ready; exec sleep 600"], stdout=subprocess.PIPE, text=True, cwd="/"
        )
        started.append(child)
        assert child.stdout.readline() == "ready\n"
        return child.pid

    yield start
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def stranger():
    """Starts a process that is no descendant of this one, as `model` does."""
    started = []

    def start(script):
        inner = f"{script}; echo $$; exec sleep 600 > /dev/null"
        done = subprocess.run(
            ["sh", "-c", 'sh -c "$1" &', "sh", inner], stdout=subprocess.PIPE, text=True, check=True, cwd="/"
        )
        started.append(int(done.stdout))
        return started[-1]

    yield start
    for pid in started:
        os.kill(pid, 9)


def opens(file):
    """The script that opens a file, and creates it."""
    return f"exec 3<>'{file}'"


def test_shared_memory_of_a_model_is_recorded_for_this_run_and_the_next(folders, made, model):
    names = [str(folders / "shm" / name) for name in ("first", "second")]
    for name in names:
        model(opens(name))
        made.look(0)
    assert made.found == {name: identity(name) for name in names}
    assert read_made(str(folders / "record")) == made.found


def test_shared_memory_that_was_there_before_is_not_recorded(folders, model):
    (folders / "shm/before").touch()
    made = MadeObjects(PREFIX, str(folders / "record"))
    model(opens(folders / "shm/before"))
    made.look(0)
    assert made.found == {}


def test_shared_memory_that_another_program_made_is_not_recorded_though_a_model_uses_it(folders, made, model, stranger):
    theirs = folders / "shm/theirs"
    stranger(opens(theirs))
    made.look(0)
    model(opens(theirs))
    made.look(0)
    assert made.found == {}


def test_another_programs_object_with_the_name_of_one_that_a_model_removed_is_not_recorded(
    folders, made, model, stranger
):
    name = folders / "shm/name"
    model(f"{opens(name)}; rm '{name}'")
    stranger(opens(name))
    made.look(0)
    assert made.found == {}


def test_shared_memory_of_another_user_is_not_recorded(folders, made, model, monkeypatch):
    model(opens(folders / "shm/segment"))
    user = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: user + 1)
    made.look(0)
    assert made.found == {}


def test_objects_that_are_gone_when_they_are_looked_at_do_not_hide_others(folders, made, model, monkeypatch):
    kept = {str(folders / f"shm/kept-{number}") for number in range(6)}
    for name in kept:
        model(opens(name))
    for number in range(6):
        (folders / f"shm/gone-{number}").touch()
    monkeypatch.setattr(made_objects, "identity", lambda path: None if "/gone-" in path else identity(path))
    made.look(0)
    assert made.found.keys() == kept


MAPS = """
import ctypes, os, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.truncate(handle, 4096)
mmap = ctypes.CDLL(None).mmap
mmap.restype = ctypes.c_void_p
mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
mmap(None, 4096, 1, 1, handle, 0)
os.close(handle)
print("ready", flush=True)
sys.stdin.read()
"""


def test_shared_memory_that_is_mapped_and_not_open_is_recorded(folders, monkeypatch):
    monkeypatch.setattr(made_objects, "SHARED_MEMORY", "/dev/shm")
    segment = Path(f"/dev/shm/made by a test {os.getpid()}")
    made = MadeObjects(PREFIX, str(folders / "record"))
    command = [sys.executable, "-c", MAPS, str(segment)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            made.look(0)
            assert made.found == {str(segment): identity(segment)}
        finally:
            segment.unlink(missing_ok=True)
            process.stdin.close()


def test_the_servers_own_regions_need_no_record(folders, made, model):
    region = folders / f"shm/{PREFIX}region"
    model(opens(region))
    made.look(0)
    assert made.found == {}
    assert made.remove(crashed=False) == [f"shared memory {region}"]
    assert not region.exists()


def test_what_cannot_be_recorded_is_removed_even_so(folders, model):
    made = MadeObjects(PREFIX, str(folders / "nowhere/record"))
    segment = folders / "shm/segment"
    os.kill(model(opens(segment)), 0)
    made.look(0)
    assert made.found == {str(segment): identity(segment)}


def test_a_machine_without_shared_memory(folders, made):
    shutil.rmtree(folders / "shm")
    assert made.look(0) > 0
    assert made.remove(crashed=False) == []


def is_readable(made):
    return bool(select.select([made.fileno()], [], [], 0)[0])


def test_the_descriptor_is_readable_as_soon_as_there_is_something_to_look_at(folders, made):
    extracted = folders / "extracted/python_env_abcdef"
    (folders / "moved").touch()
    steps = [
        (folders / "shm/new").touch,
        lambda: (folders / "moved").rename(folders / "shm/moved"),
        extracted.mkdir,
        (extracted / "0").mkdir,
    ]
    for step in steps:
        assert not is_readable(made)
        step()
        assert is_readable(made)
        made.look(0)


def test_it_looks_again_soon_only_while_a_server_may_extract(folders, made, monkeypatch):
    idle = made.look(0)
    (folders / "extracted/python_env_abcdef").mkdir()
    busy = made.look(os.getpid())
    blind = types.SimpleNamespace(inotify_init1=lambda _: -1)  # as the kernel returns if it has none to spare
    monkeypatch.setattr(made_objects, "LIBC", blind)
    (folders / "extracted/python_env_abcdef").rmdir()
    without = MadeObjects(PREFIX, str(folders / "record"))
    assert without.fileno() < 0
    assert 0 < busy < 0.02 < without.look(0) < 0.2 < idle <= 1


def test_shared_memory_is_found_without_notices_of_the_kernel(folders, model, monkeypatch):
    monkeypatch.setattr(made_objects, "LIBC", types.SimpleNamespace(inotify_init1=lambda _: -1))
    made = MadeObjects(PREFIX, str(folders / "record"))
    model(opens(folders / "shm/segment"))
    made.look(0)
    assert list(made.found) == [str(folders / "shm/segment")]


@pytest.fixture
def extracted(folders):
    """Extracts an environment to this folder, as the server does: the folder first, then its content."""

    def make(name="abcdef"):
        folder = folders / f"extracted/python_env_{name}"
        folder.mkdir()
        return folder

    return make


@pytest.mark.parametrize("script", ["cd '{}'", "mkdir '{0}/0'; exec 3<>'{0}/0/file'"], ids=["works in it", "writes"])
def test_the_folder_that_a_server_works_in_is_its_own(folders, made, model, extracted, script):
    folder = extracted()
    server = model(script.format(folder))
    made.look(server)
    assert made.found == {str(folder): identity(folder)}
    assert read_made(str(folders / "record")) == made.found
    assert made.look(server) > 0.5  # nothing is left to look at


def test_the_folder_that_only_a_model_works_in_is_not(made, model, extracted):
    folder = extracted()
    model(f"cd '{folder}'")
    made.look(model("true"))
    assert made.found == {}


def test_a_folder_is_looked_at_again_when_its_content_changes(made, model, extracted, monkeypatch):
    folder = extracted()
    server = model(f"cd '{folder}'")
    monkeypatch.setattr(made_objects, "_BUSY_SECONDS", -1.0)  # the time in which a server extracts is over
    assert made.look(server) > 0.5
    assert made.look(server) > 0.5
    assert made.found == {}
    monkeypatch.setattr(made_objects, "_BUSY_SECONDS", 60.0)
    (folder / "0").mkdir()
    made.look(server)
    assert list(made.found) == [str(folder)]


def test_a_folder_whose_server_has_left_no_trace_stays_in_doubt_while_it_may_extract(made, model, extracted):
    extracted()
    server = model("true")
    assert made.look(server) < 0.5
    assert made.look(server) < 0.5


def test_a_folder_in_the_place_of_the_one_that_was_seen_stays(folders, made, extracted):
    folder = extracted()
    made.look(os.getpid())
    (folders / "new").mkdir()
    (folders / "new").rename(folder)
    assert made.remove(crashed=True) == []
    assert folder.is_dir()


def test_a_folder_that_is_gone_is_forgotten(made, extracted):
    folder = extracted()
    assert made.look(os.getpid()) < 0.5
    folder.rmdir()
    assert made.look(os.getpid()) > 0.5
    assert made.remove(crashed=True) == []


@pytest.mark.parametrize(("crashed", "removed"), [(True, True), (False, False)])
def test_only_a_crash_leaves_an_empty_folder_that_nothing_proves_to_be_the_servers(made, extracted, crashed, removed):
    folder = extracted()
    made.look(os.getpid())
    assert made.remove(crashed=crashed) == ([f"folder {folder}"] if removed else [])
    assert folder.exists() is not removed


def test_a_folder_with_content_stays_after_a_crash(made, extracted):
    folder = extracted()
    made.look(os.getpid())
    (folder / "file").touch()
    assert made.remove(crashed=True) == []
    assert (folder / "file").exists()


def test_an_empty_folder_stays_after_a_crash_while_another_server_runs(folders, made, extracted):
    folder = extracted()
    made.look(os.getpid())
    program = folders / SERVER
    program.write_text("#!/bin/sh\necho ready\nread line\n")
    program.chmod(0o755)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"ready\n"
        assert made.remove(crashed=True) == []
        server.stdin.close()
    assert folder.is_dir()


def test_only_names_as_servers_choose_them_are_read_from_a_record(tmp_path):
    """Servers extract to /tmp/python_env_XXXXXX, whatever TMPDIR is, and shared memory is in /dev/shm."""
    real = ["/tmp/python_env_aB3xYz", "/dev/shm/psm_1"]
    others = ["/tmp/python_env_aB3xY", "/tmp/python_env_aB3xYz7", "/tmp/python_env_a/3xYz", "/tmp/other_env_aB3xYz"]
    others += ["/dev/shm/folder/file", "/etc/passwd"]
    lines = [json.dumps([path, 1, 2, 3]) for path in (*others, *real)]
    (tmp_path / "record").write_text("\n".join(lines))
    assert read_made(str(tmp_path / "record")) == dict.fromkeys(real, (1, 2, 3))


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(tmp_path, monkeypatch):
    unlink = os.unlink

    def refused(path, **options):
        if os.path.basename(path) == "kept":
            raise PermissionError(path)
        unlink(path, **options)

    for name in ("kept", *"abcdefgh"):
        (tmp_path / "folder" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "folder" / name).touch()
    monkeypatch.setattr("os.unlink", refused)
    remove(str(tmp_path / "folder"))
    assert os.listdir(tmp_path / "folder") == ["kept"]


# Processes


def test_descendants_are_all_that_is_alive_of_this_process_whatever_its_parent_is(stranger):
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE) as child:
        grandchild = int(child.stdout.readline())
        try:
            found = descendants()
            assert child.pid in children()
            assert grandchild not in children()
            assert found.index(child.pid) < found.index(grandchild)
            assert {os.getpid(), os.getppid(), stranger("true")}.isdisjoint(descendants())
        finally:
            os.kill(child.pid, 9)  # `Popen.kill` would reap it
            os.kill(grandchild, 9)
        assert soon(lambda: child.pid not in descendants())  # though nobody has reaped it
        assert child.pid not in children()
        assert Path(f"/proc/{child.pid}").exists()


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """A /proc with the process 7, a child of this one, which has run for 60 seconds; returns its folder."""
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", str(os.getpid()), *17 * "0", str(5 * ticks)]
    (folder / "stat").write_text(f"7 (a (b) 1 2) {' '.join(fields)} 9 9")
    (folder / "cmdline").write_bytes(b"python\0-c\0print(1)\0")
    (folder / "comm").write_text("python\n")
    (folder.parent / "uptime").write_text("65.00 100.00\n")
    monkeypatch.setattr(proc_module, "PROC", str(folder.parent))
    return folder


def test_a_process_is_named_by_its_command_and_its_age(proc):
    assert phrase(7) == "process 7 (python -c print(1)), 60 s old"
    (proc / "cmdline").write_bytes(b"\xff\0" + b"x" * 200)
    assert phrase(7) == f"process 7 (\ufffd {118 * 'x'}), 60 s old"
    (proc / "cmdline").write_bytes(b"")  # as a process of the kernel
    assert phrase(7) == "process 7 (python), 60 s old"


def test_a_process_that_began_a_moment_ago_is_not_of_a_negative_age(proc):
    (proc.parent / "uptime").write_text("4.00 100.00\n")
    assert phrase(7) == "process 7 (python -c print(1)), 0 s old"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda proc: (proc / "stat").write_text("7 (a) S" + 18 * " 1"),
        lambda proc: (proc / "stat").unlink(),
        lambda proc: (proc.parent / "uptime").unlink(),
    ],
    ids=["no start time", "ended", "no uptime"],
)
def test_a_process_whose_age_is_unknown_is_named_without_it(proc, spoil):
    spoil(proc)
    assert phrase(7) == "process 7 (python -c print(1))"


def test_a_process_that_ended_while_it_was_looked_at_is_no_child(proc):
    (proc.with_name("8")).mkdir()
    assert (children(), descendants()) == ([7], [7])


def test_files_that_are_closed_while_they_are_looked_at_do_not_hide_others(folders, proc):
    made = MadeObjects(PREFIX, str(folders / "record"))
    segment = folders / "shm/segment"
    segment.touch()
    (proc / "fd").mkdir()
    (proc / "fd/3").symlink_to(segment)
    made.look(0)  # the working folder cannot be read
    assert list(made.found) == [str(segment)]


def test_a_descriptor_is_drained_to_the_end():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert os.write(writing, bytes(1 << 20)) == 1 << 20
    drain(reading)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)
    os.close(writing)
    drain(reading)  # which ends at the end of the pipe
    os.close(reading)

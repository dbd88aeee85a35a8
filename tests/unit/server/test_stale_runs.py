"""What a run removes of killed runs, and what it leaves alone: nothing that can belong to another process."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from envpack.server import made_objects, proc, stale_runs
from envpack.server.stale_runs import (
    HOME_PREFIX,
    new_home,
    owner_is_gone,
    region_prefix,
    release_home,
    remove_leftovers,
    remove_stale_homes,
    shared_memory_named,
    temporary_home,
    this_owner,
)

GONE = "another-boot/pid:[1]/1/1"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """The machine's folders for shared memory, extracted environments and temporary files, empty."""
    for name in ("shm", "extracted", "temporary"):
        (tmp_path / name).mkdir()
    for module in (stale_runs, made_objects):
        monkeypatch.setattr(module, "SHARED_MEMORY", str(tmp_path / "shm"))
    monkeypatch.setattr(made_objects, "EXTRACTED", str(tmp_path / "extracted/python_env_"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path


def test_this_process_is_not_gone():
    assert not owner_is_gone(this_owner())


def test_a_process_of_an_earlier_boot_or_with_a_reused_id_is_gone():
    boot, namespace, pid, start = this_owner().split("/")
    assert start.isdigit()
    assert namespace == str(Path("/proc/self/ns/pid").readlink())
    assert owner_is_gone(f"earlier/{namespace}/{pid}/{start}")
    assert owner_is_gone(f"{boot}/{namespace}/{pid}/{int(start) - 1}")
    assert owner_is_gone(f"{boot}/{namespace}/{2**22 + 1}/{start}")


def test_a_process_that_has_ended_is_gone_although_nobody_waits_for_it():
    """In a container whose PID 1 reads no exit status, no later run removed what a killed one had left."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        owner = owner_of(process.pid, proc.start_time(process.pid))
        assert not owner_is_gone(owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner_is_gone(owner)


def test_a_process_of_another_container_may_live():
    boot, _, pid, start = this_owner().split("/")
    assert not owner_is_gone(f"{boot}/pid:[1]/{pid}/{int(start) - 1}")


@pytest.mark.parametrize("owner", ["", "x", "a/b/c/d", "a/b/1", "a/b/1/2/3", "a/b/-1/2"])
def test_an_owner_that_makes_no_sense_is_not_gone(owner):
    assert not owner_is_gone(owner)


@pytest.fixture
def processes(tmp_path, monkeypatch):
    """A /proc with one process, number 7; returns its folder."""
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    monkeypatch.setattr(proc, "PROC", str(folder.parent))
    return folder


def owner_of(pid, start):
    boot, namespace, *_ = this_owner().split("/")
    return f"{boot}/{namespace}/{pid}/{start}"


def test_the_start_time_follows_a_name_with_spaces_and_brackets(processes):
    (processes / "stat").write_text("7 (a (b) 1 2) S " + " ".join(map(str, range(101, 150))))
    assert not owner_is_gone(owner_of(7, 119))
    assert owner_is_gone(owner_of(7, 118))
    assert owner_is_gone(owner_of(8, 119))


@pytest.mark.parametrize(
    "make",
    [lambda stat: stat.write_text("7 (x) S" + 18 * " 1"), lambda stat: stat.mkdir()],
    ids=["short", "unreadable"],
)
def test_a_process_whose_start_time_cannot_be_read_is_not_gone(processes, monkeypatch, make):
    make(processes / "stat")
    assert not owner_is_gone(owner_of(7, 1))
    monkeypatch.setattr("os.getpid", lambda: 7)
    owner = this_owner()
    (processes / "stat").rename(processes / "unreadable")
    (processes / "stat").write_text("7 (x) S" + 19 * " 1")
    assert not owner_is_gone(owner)


def test_a_process_of_an_unknown_boot_is_not_gone(tmp_path, monkeypatch):
    known, boot = this_owner(), stale_runs._BOOT
    monkeypatch.setattr(stale_runs, "_BOOT", "nothing")
    assert not owner_is_gone(known)
    unknown = this_owner()
    assert owner_is_gone(f"{unknown}0")
    monkeypatch.setattr(stale_runs, "_BOOT", boot)
    assert not owner_is_gone(f"{unknown}0")


def test_only_shared_memory_with_the_servers_prefix_is_removed(folders):
    home = home_of(GONE)
    ours, shm = region_prefix(home), folders / "shm"
    for name in (f"{ours}b", f"{ours}a", "envpack_y_a", "other"):
        (shm / name).touch()
    assert shared_memory_named(ours) == (f"{ours}a", f"{ours}b")
    assert remove_leftovers(home) == (f"shared memory {shm}/{ours}a", f"shared memory {shm}/{ours}b")
    assert sorted(os.listdir(shm)) == ["envpack_y_a", "other"]


def extracted(folders, name):
    folder = folders / "extracted" / f"python_env_{name}"
    (folder / "0").mkdir(parents=True)
    return folder


def record(home, *paths):
    """Record objects as made by the server, as its supervisor does."""
    with (home / "made").open("a") as file:
        for path in paths:
            file.write(json.dumps([str(path), *made_objects.identity(path)]) + "\n")


def test_what_was_recorded_is_removed_and_nothing_else(folders):
    home = home_of(GONE)
    ours, others = extracted(folders, "aaaaaa"), extracted(folders, "bbbbbb")
    memory, same_name = folders / "shm/segment", folders / "shm/replaced"
    memory.touch()
    same_name.touch()
    record(home, ours, memory, same_name)
    (folders / "shm/new").touch()
    (folders / "shm/new").rename(same_name)  # another object with this name
    (home / "log").write_text(f"Extracting to {others}/0")
    assert remove_stale_homes() == (f"extracted environment {ours}", f"shared memory {memory}", f"folder {home}")
    assert [path.exists() for path in (ours, others, memory, same_name)] == [False, True, False, True]


def test_a_record_cannot_name_anything_else(folders):
    home = home_of(GONE)
    elsewhere = folders / "temporary/other"
    elsewhere.mkdir()
    below = extracted(folders, "aaaaaa") / "0"
    record(home, elsewhere, below, folders / "extracted")
    with (home / "made").open("a") as file:
        file.write('["/incomplete')
    assert remove_stale_homes() == (f"folder {home}",)
    assert elsewhere.is_dir()
    assert below.is_dir()


def test_what_another_process_uses_stays(folders):
    home = home_of(GONE)
    memory = folders / "shm/segment"
    memory.touch()
    record(home, memory)
    with memory.open():
        found, _ = remove_stale_homes()
    assert found == f"shared memory {memory}, not removed because another process uses it"
    assert memory.exists()


@pytest.fixture
def process():
    """Starts processes in sessions of their own, which wait; they have these variables."""
    started = []

    def start(**variables):
        code = "import time; print(flush=True); time.sleep(600)"
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **variables},
        )
        child.stdout.readline()
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


def home_of(owner):
    home = new_home()
    (home / "owner").write_text(owner)
    return home


def test_the_home_of_a_killed_run_is_removed_with_its_regions_and_its_processes(folders, process):
    home = home_of(GONE)
    ours = [process(ENVPACK_SERVER=str(home)) for _ in range(2)]
    others = [process(ENVPACK_SERVER=f"{home}x"), process(OTHER=str(home))]
    (folders / "shm" / f"{region_prefix(home)}region").touch()
    *ended, memory, folder = remove_stale_homes()
    assert sorted(text.split()[1] for text in ended) == sorted(str(child.pid) for child in ours)
    assert (memory, folder) == (f"shared memory {folders}/shm/{region_prefix(home)}region", f"folder {home}")
    assert [child.wait(10) for child in ours] == [-9, -9]
    assert [child.poll() for child in others] == [None, None]
    assert (home.exists(), os.listdir(folders / "shm")) == (False, [])


def test_a_removal_that_was_killed_is_completed_by_a_later_run():
    """The process is killed when it has removed some of the files."""
    program = """
import os, shutil, signal, sys
from envpack.server.stale_runs import new_home, remove_home
home = new_home()
for number in range(20):
    (home / f"folder{number}").mkdir()
    (home / f"file{number}").touch()
print(home, flush=True)
remove = shutil.rmtree
def killed(*arguments, **options):
    remove(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
shutil.rmtree = killed
remove_home(home)
"""
    variables = os.environ | {"TMPDIR": tempfile.gettempdir()}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    home = Path(done.stdout.strip())
    assert (done.returncode, home.is_dir(), len(os.listdir(home)) < 41) == (-9, True, True)
    assert remove_stale_homes() == (f"folder {home}",)
    assert not home.exists()


def test_homes_of_living_runs_of_kept_servers_and_other_folders_stay(folders):
    kept = home_of(GONE)
    release_home(kept)
    (folders / "temporary" / "other").mkdir()
    (folders / "temporary" / f"{HOME_PREFIX}file").touch()
    (folders / "temporary" / "target").mkdir()
    (folders / "temporary/target/owner").write_text(GONE)
    (folders / "temporary" / f"{HOME_PREFIX}link").symlink_to("target")
    with temporary_home() as living:
        before = sorted(os.listdir(folders / "temporary"))
        assert remove_stale_homes() == ()
        assert sorted(os.listdir(folders / "temporary")) == before
        assert (living / "owner").read_text() == this_owner()
    assert not living.exists()


def test_homes_of_other_users_stay(monkeypatch):
    home = home_of(GONE)
    monkeypatch.setattr("os.getuid", lambda: home.stat().st_uid + 1)
    assert remove_stale_homes() == ()
    assert home.exists()


def test_every_home_has_regions_of_its_own():
    first, second = new_home(), new_home()
    assert region_prefix(first) == f"envpack_{first.name.removeprefix(HOME_PREFIX)}_"
    assert region_prefix(first) != region_prefix(second)

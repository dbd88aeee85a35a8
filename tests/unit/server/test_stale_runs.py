"""What a run removes of killed runs, and what it leaves alone: nothing that can belong to another process."""

import os
import re
import subprocess
import sys

import pytest

from envpack.server import stale_runs
from envpack.server.stale_runs import (
    HOME_PREFIX,
    extracted_folders,
    new_home,
    owner_is_gone,
    record_group,
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
    monkeypatch.setattr(stale_runs, "_SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr(stale_runs, "_EXTRACTED_PARENT", tmp_path / "extracted")
    pattern = stale_runs._EXTRACTED.pattern.replace("/tmp", re.escape(str(tmp_path / "extracted")), 1)
    monkeypatch.setattr(stale_runs, "_EXTRACTED", re.compile(pattern))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path


@pytest.fixture
def servers(monkeypatch):
    """The process ids of running Triton servers: none."""
    running = []
    monkeypatch.setattr(
        "envpack.server.procfs.programs_named", lambda name: tuple(running) if name == "tritonserver" else ()
    )
    return running


def test_this_process_is_not_gone():
    assert not owner_is_gone(this_owner())


def test_a_process_of_an_earlier_boot_or_with_a_reused_id_is_gone():
    boot, namespace, pid, start = this_owner().split("/")
    assert start.isdigit()
    assert owner_is_gone(f"earlier/{namespace}/{pid}/{start}")
    assert owner_is_gone(f"{boot}/{namespace}/{pid}/{int(start) - 1}")
    assert owner_is_gone(f"{boot}/{namespace}/{2**22 + 1}/{start}")


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
    monkeypatch.setattr(stale_runs, "_PROC", folder.parent)
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
    monkeypatch.setattr(stale_runs, "_BOOT", tmp_path / "nothing")
    assert not owner_is_gone(known)
    unknown = this_owner()
    assert owner_is_gone(f"{unknown}0")
    monkeypatch.setattr(stale_runs, "_BOOT", boot)
    assert not owner_is_gone(f"{unknown}0")


def leftovers(**changes):
    options = {"prefix": "envpack_x_", "group": None, "log": "", "before": frozenset(), "crashed": False}
    return remove_leftovers(**{**options, **changes})


def test_only_shared_memory_with_the_servers_prefix_is_removed(folders):
    for name in ("envpack_x_b", "envpack_x_a", "envpack_y_a", "other"):
        (folders / "shm" / name).touch()
    assert shared_memory_named("envpack_x_") == ("envpack_x_a", "envpack_x_b")
    shm = folders / "shm"
    assert leftovers() == (f"shared memory {shm}/envpack_x_a", f"shared memory {shm}/envpack_x_b")
    assert sorted(os.listdir(shm)) == ["envpack_y_a", "other"]


def extracted(folders, name, *, empty=True):
    folder = folders / "extracted" / f"python_env_{name}"
    folder.mkdir()
    if not empty:
        (folder / "0").mkdir()
    return folder


def test_an_extracted_environment_that_the_log_names_is_removed(folders, servers):
    ours, others = (extracted(folders, name, empty=False) for name in ("aaaaaa", "bbbbbb"))
    assert leftovers(log=f"Extracting to {ours}/0\n") == (f"extracted environment {ours}",)
    assert (ours.exists(), others.exists()) == (False, True)


def test_an_environment_that_was_extracted_before_the_server_started_stays(folders, servers):
    earlier = extracted(folders, "aaaaaa", empty=False)
    assert extracted_folders() == {earlier}
    assert leftovers(log=f"{earlier}", before=frozenset({earlier}), crashed=True) == ()
    assert earlier.exists()


def test_empty_folders_of_a_crashed_server_are_removed_unless_another_server_runs(folders, servers):
    empty, full = extracted(folders, "aaaaaa"), extracted(folders, "bbbbbb", empty=False)
    assert leftovers(crashed=False) == ()
    servers.append(7)
    assert leftovers(crashed=True) == ()
    servers.clear()
    assert leftovers(crashed=True) == (f"folder {empty}",)
    assert (empty.exists(), full.exists()) == (False, True)


@pytest.fixture
def process():
    """Starts processes in groups of their own, which wait; they have these arguments."""
    started = []

    def start(*arguments):
        code = "import sys, time; print(flush=True); time.sleep(600)"
        command = [sys.executable, "-c", code, *map(str, arguments)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        child.stdout.readline()
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


def test_the_servers_process_group_is_killed(process):
    child = process("model")
    assert leftovers(group=child.pid) == (f"process {child.pid} ({' '.join(child.args)[:120]})",)
    assert child.wait(10) == -9


def home_of(owner, *, group=None):
    home = new_home()
    (home / "owner").write_text(owner)
    if group is not None:
        record_group(home, group)
    return home


def test_the_home_of_a_killed_run_is_removed_with_its_regions_and_its_server(folders, process):
    home = new_home()
    server = process(f"--backend-directory={home}/backends")
    (home / "owner").write_text(GONE)
    record_group(home, server.pid)
    (folders / "shm" / f"{region_prefix(home)}region").touch()
    found = remove_stale_homes()
    assert found[-2:] == (f"shared memory {folders}/shm/{region_prefix(home)}region", f"folder {home}")
    assert server.wait(10) == -9
    assert (home.exists(), os.listdir(folders / "shm")) == (False, [])


def test_the_log_of_a_killed_run_names_its_extracted_environment(folders):
    ours, others = (extracted(folders, name) for name in ("aaaaaa", "bbbbbb"))
    home = home_of(GONE)
    (home / "log").write_bytes(b"\xff Extracting to " + os.fsencode(ours))
    assert remove_stale_homes() == (f"extracted environment {ours}", f"folder {home}")
    assert (ours.exists(), others.exists()) == (False, True)


def test_a_process_that_has_the_groups_number_now_is_not_killed(process):
    other = process("/another/home")
    home = home_of(GONE, group=other.pid)
    assert remove_stale_homes() == (f"folder {home}",)
    assert other.poll() is None


@pytest.mark.parametrize("group", [0, 1, -7, "", "x"])
def test_a_group_that_makes_no_sense_is_not_killed(monkeypatch, group):
    """0 is the group of this process, 1 every process."""
    monkeypatch.setattr("os.killpg", lambda *_: pytest.fail("killed"))
    home = home_of(GONE, group=group)
    monkeypatch.setattr("envpack.server.procfs.command_line", lambda pid: (str(home),))
    assert remove_stale_homes() == (f"folder {home}",)


def test_the_lowest_group_of_a_server_is_2(monkeypatch):
    killed = []
    home = home_of(GONE, group=2)
    monkeypatch.setattr("os.killpg", lambda group, number: killed.append((group, number)))
    monkeypatch.setattr("envpack.server.procfs.command_line", lambda pid: ("server", f"--log={home}/log"))
    monkeypatch.setattr("envpack.server.procfs.group_members", lambda group: ())
    assert remove_stale_homes() == (f"folder {home}",)
    assert killed == [(2, 9)]


def test_a_server_that_ended_meanwhile_is_no_error(monkeypatch):
    home = home_of(GONE, group=2**22 + 1)
    monkeypatch.setattr("envpack.server.procfs.command_line", lambda pid: (str(home),))
    assert remove_stale_homes() == (f"folder {home}",)


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

"""What happens to a build when a part of a real dask cluster, or the store, fails in the middle."""

import os
import signal

import pytest

from tests.clusters import children_of, cluster, runs, task_processes, worker_of
from tests.faults.command_line import assert_refused, listing
from tests.object_stores import BUCKET, VARIABLES, faulty, moto
from tests.waiting import soon

from .fleets import MODELS, ended

pytestmark = [pytest.mark.usefixtures("own_index"), pytest.mark.thorough]


def test_a_killed_worker_s_work_goes_elsewhere(caller, served):
    served.gate.clear()
    building = caller.start("build", "local:2")
    task = soon(lambda: served.requested and task_processes(building.pid))[0]
    os.kill(worker_of(task), signal.SIGKILL)
    assert soon(lambda: not runs(task)), "the work of the dead worker goes on"
    served.gate.set()
    done = ended(building)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    assert caller.placed == list(MODELS)
    assert max(task["attempts"] for task in done.document["cluster"]["tasks"]) == 2


def test_an_interrupted_build_ends_its_work_on_a_cluster_that_goes_on(caller, folder_store, two_workers, served):
    served.gate.clear()
    before = listing(caller.repository)
    building = caller.start("build", two_workers.address, *folder_store)
    assert soon(lambda: served.requested and len(two_workers.tasks()) == 2)
    building.send_signal(signal.SIGINT)
    done = ended(building)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert soon(lambda: not two_workers.tasks()), "the workers still work for a caller that is gone"
    assert listing(caller.repository) == before
    served.gate.set()
    assert caller.run("build", two_workers.address, *folder_store).code == 0


def test_after_the_loss_of_the_scheduler_the_same_command_finishes(caller, folder_store, two_workers, served):
    served.gate.clear()
    building = caller.start("build", two_workers.address, *folder_store)
    tasks = soon(lambda: served.requested and two_workers.tasks())
    two_workers.kill("scheduler")
    done = ended(building)
    assert_refused(done, 6, "scheduler-lost", "run the same command again")
    assert soon(lambda: not any(map(runs, tasks))), "workers without scheduler still work"
    served.gate.set()
    assert_refused(caller.run("build", two_workers.address, *folder_store), 6, "scheduler-unreachable", "127.0.0.1")
    two_workers.start_scheduler()
    two_workers.start_worker("north", ENVPACK_CACHE_DIR=str(caller.cache.parent / "workers"))
    assert caller.run("build", two_workers.address, *folder_store).code == 0
    assert caller.placed == list(MODELS)


def test_the_work_of_a_worker_that_stands_still_goes_elsewhere(caller, folder_store, two_workers, served):
    served.gate.clear()
    building = caller.start("build", two_workers.address, *folder_store)
    assert soon(lambda: served.requested and len(two_workers.tasks()) == 2)
    two_workers.signal("east", signal.SIGSTOP)
    served.gate.set()
    done = ended(building)
    assert done.code == 0, done.err
    tasks = done.document["cluster"]["tasks"]
    assert {task["worker"] for task in tasks} == {"west"}
    assert max(task["attempts"] for task in tasks) == 2
    assert caller.placed == list(MODELS)


def test_a_scheduler_that_stands_still_ends_the_command(caller, folder_store, two_workers, served):
    """It keeps its connections, so that nothing but the missing answer tells."""
    served.gate.clear()
    building = caller.start("build", two_workers.address, *folder_store)
    assert soon(lambda: served.requested and two_workers.tasks())
    two_workers.signal("scheduler", signal.SIGSTOP)
    done = ended(building)
    assert_refused(done, 6, "scheduler-lost", "did not answer within 60 s")
    assert "the scheduler has not answered for 10 s" in done.err
    served.gate.set()


def test_a_scheduler_that_stands_still_from_the_beginning_is_named(caller, folder_store, two_workers):
    two_workers.signal("scheduler", signal.SIGSTOP)
    done = caller.run("build", two_workers.address, *folder_store)
    assert_refused(done, 6, "scheduler-unreachable", "does not answer")


def test_a_store_that_fails_in_the_middle_is_one_error_and_the_same_command_finishes(caller, tmp_path, served):
    with moto(tmp_path) as s3, faulty(s3) as proxy:
        everywhere = VARIABLES | {"ENVPACK_CACHE_DIR": str(tmp_path / "workers")}
        store = ("--store", f"s3://{proxy.url}/{BUCKET}/envpack")
        with cluster(tmp_path, "east", "west", **everywhere) as found:
            served.gate.clear()
            before = listing(caller.repository)
            building = caller.start("build", found.address, *store, "a", **VARIABLES)
            assert soon(lambda: served.requested and found.tasks())
            proxy.refuses = lambda method, path: True
            served.gate.set()
            assert_refused(ended(building), 7, "store-forbidden")
            assert listing(caller.repository) == before
            proxy.refuses = lambda method, path: False
            done = caller.run("build", found.address, *store, "a", **VARIABLES)
            assert done.code == 0, done.err
            assert "fetch environment" in done.err


def test_the_workers_of_this_machine_end_with_a_killed_command(caller, served):
    served.gate.clear()
    building = caller.start("build", "local:2")
    tasks = soon(lambda: served.requested and task_processes(building.pid))
    started = children_of(building.pid)
    assert set(tasks) < set(started)
    building.kill()
    building.communicate()
    assert soon(lambda: not any(map(runs, started)))

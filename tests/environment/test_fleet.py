"""Builds on the workers of real dask clusters."""

import concurrent.futures
import contextlib
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import envpack as package
from envpack.fleet.client import carry_out_all
from envpack.fleet.cluster import Address, parse_address
from envpack.fleet.orders import build_tasks
from envpack.fleet.tasks import Task
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.store.shared import open_store
from envpack.support.progress import NoProgress
from envpack.workflow.recipes import make_stub
from tests.clusters import Certificates, cluster
from tests.faults.command_line import assert_refused, variables
from tests.object_stores import BUCKET, VARIABLES, moto
from tests.steps import Steps
from tests.waiting import soon

from .fleets import MODELS
from .sources import PYTHON

pytestmark = pytest.mark.usefixtures("own_index")


def test_workers_of_this_machine_build_each_environment_once(caller):
    done = caller.run("build", "local:2")
    assert done.code == 0, done.err
    assert caller.placed == list(MODELS)
    tasks = done.document["cluster"]["tasks"]
    assert sorted(task["models"] for task in tasks) == [["a", "d"], ["b"], ["c"]]
    assert {task["worker"] for task in tasks} == {"0", "1"}
    assert all(task["made"] and task["seconds"] > 0 and task["host"] for task in tasks)
    assert "install" in done.err
    again = caller.run("build", "local:2")
    assert not any(task["made"] for task in again.document["cluster"]["tasks"])
    assert "install" not in again.err


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["lock", "build"])
def test_models_that_cannot_be_planned_or_made_are_named_and_the_others_go_on(caller, verb):
    (caller.repository / "b/requirements.txt").write_text("no-such-package==9\n")
    (caller.repository / "c/requirements.txt").write_text("-r missing.txt\n")
    done = caller.run(verb, "local:2")
    assert done.code != 0
    assert {one["name"]: one["error"]["kind"] for one in done.document["failed"]} == {
        "b": "unresolvable",
        "c": "bad-requirements",
    }
    assert "2 of 4 models" in done.err + done.out
    assert all((caller.repository / name / "envpack.lock").is_file() for name in ("a", "d")) or verb == "build"
    assert caller.placed == (["a", "d"] if verb == "build" else [])


@pytest.mark.thorough
def test_results_come_back_through_the_store(caller, folder_store, two_workers):
    done = caller.run("build", two_workers.address, *folder_store)
    assert done.code == 0, done.err
    assert caller.placed == list(MODELS)
    assert {task["worker"] for task in done.document["cluster"]["tasks"]} == {"east", "west"}
    assert done.err.count("fetch environment") == 3
    assert_refused(caller.run("build", two_workers.address), 2, "fleet-needs-store", "--store")
    locked = caller.run("lock", two_workers.address, *folder_store)
    assert locked.code == 0, locked.err
    assert all((caller.repository / name / "envpack.lock").is_file() for name in MODELS)
    preload = caller.cache.parent / "another_version.py"
    preload.write_text("import envpack\nenvpack.__version__ = '0.0.7'\n")
    two_workers.start_worker("other", "--preload", preload)
    refused = caller.run("build", two_workers.address, *folder_store)
    assert_refused(refused, 6, "worker-version", "has envpack 0.0.7", package.__version__)


def test_what_no_worker_can_build_is_refused_at_once_by_name(caller):
    done = caller.run("build", "local:1", "--platform", "linux-aarch64", "--format", "tar.gz")
    assert_refused(done, 6, "no-worker-can", "platform linux-aarch64", "a (and 1 more)", "b", "c", "platform linux-64")
    assert not caller.placed


@pytest.mark.thorough
def test_one_model_that_fails_keeps_no_other_from_its_environment(caller):
    (caller.repository / "b/requirements.txt").write_text("numpy\nabsent\n")
    done = caller.run("build", "local:2")
    assert done.code == 4
    assert done.document["error"]["kind"] == "unresolvable", done.document
    assert caller.placed == ["a", "c", "d"]


@pytest.mark.thorough
def test_a_scheduler_with_certificates_of_another_authority_is_refused(caller, folder_store, tmp_path):
    made = []
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        made.append(Certificates(tmp_path / name))
    ours, theirs = made
    cache = str(tmp_path / "workers")
    with cluster(tmp_path, "secret", tls=theirs, ENVPACK_CACHE_DIR=cache) as found:
        refused = caller.run("build", found.address, *folder_store, **ours.variables())
        assert_refused(refused, 6, "scheduler-unreachable", "certificate")
        done = caller.run("build", found.address, *folder_store, "a", **theirs.variables())
        assert done.code == 0, done.err


@pytest.mark.thorough
def test_a_hundred_tasks_on_two_workers():
    """Each fails quickly, in a process of its own."""
    work = functools.partial(make_stub, "2.7", "", abi="", toolchain="auto", glibc="")
    tasks = [Task(key=f"task-{number}", names=(f"stub {number}",), work=work) for number in range(100)]
    done = carry_out_all(Address(workers=2), tasks, NoProgress())
    assert [found.task for found in done] == tasks
    assert {found.error.kind for found in done} == {"bad-python-version"}
    assert {found.product.worker for found in done} == {"0", "1"}
    assert json.dumps([found.as_json() for found in done])


def carried_out(addresses, caller, store, served):
    """What several clients, who order the same build at the same time, get from clusters."""
    said = Settings(python=PYTHON, channels=(served.url("/conda"),), stub="never")
    tasks = build_tasks(open_project(caller.repository, said), ["b"], open_store(store, push=True))
    steps = [Steps() for _ in addresses]
    served.gate.clear()
    with concurrent.futures.ThreadPoolExecutor(len(addresses)) as pool:
        clients = zip(addresses, steps, strict=True)
        running = [pool.submit(carry_out_all, parse_address(address), tasks, step) for address, step in clients]
        try:
            waiting = soon(lambda: all(any("left on" in text for text in step.seen) for step in steps))
            assert waiting, [step.seen for step in steps]
            assert soon(lambda: served.requested)
        finally:
            served.gate.set()
        return [future.result()[0] for future in running]


@pytest.mark.thorough
def test_two_clients_of_one_cluster_share_equal_work(caller, folder_store, two_workers, served):
    one, other = carried_out([two_workers.address] * 2, caller, folder_store[1], served)
    assert one.error is None
    assert one.product.fresh
    assert other.product == one.product


@pytest.mark.thorough
def test_two_clusters_with_one_store_make_one_record(caller, folder_store, tmp_path, served):
    with contextlib.ExitStack() as stack:
        addresses = []
        for name in ("north", "south"):
            (tmp_path / name).mkdir()
            made = cluster(tmp_path / name, name, ENVPACK_CACHE_DIR=str(tmp_path / name / "cache"))
            addresses.append(stack.enter_context(made).address)
        one, other = carried_out(addresses, caller, folder_store[1], served)
    assert (one.error, other.error) == (None, None)
    assert {one.product.worker, other.product.worker} == {"north", "south"}
    assert one.product.digests == other.product.digests
    assert len(list((tmp_path / "store").glob("**/records/environment/*"))) == 1


@pytest.mark.thorough
def test_a_kubernetes_job_puts_the_same_environment_into_the_store(caller, tmp_path):
    """The Job's own command, with a folder in the place of its ConfigMap."""
    with moto(tmp_path) as s3:
        store = ("--store", f"s3://{s3}/{BUCKET}/envpack")
        emitted = caller.emit(*store, "b")
        config_map, job = emitted.document["jobs"]
        pod = job["spec"]["template"]["spec"]
        (tmp_path / "recipe").mkdir()
        for name, text in config_map["data"].items():
            (tmp_path / "recipe" / name).write_text(text)
        words = [moved(word, tmp_path) for word in pod["containers"][0]["command"]]
        given = {entry["name"]: moved(entry["value"], tmp_path) for entry in pod["containers"][0]["env"]}
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        everywhere = variables(VARIABLES | given | {"PATH": path})
        done = subprocess.run(words, env=everywhere, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "put environment" in done.stderr
        built = caller.build_here(*store, "b", **VARIABLES)
        assert built.code == 0, built.err
        assert "fetch environment" in built.err


def moved(word, folder):
    """A word of a Job's command, with folders of this test for those of the container."""
    return word.replace("/recipe/", f"{folder}/recipe/").replace("/scratch", f"{folder}/scratch")

"""How stubs start and end: every failure is reported, nothing hangs, nothing is left behind."""

import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from envpack.server.kserve import RequestError
from envpack.settings.pythons import SUPPORTED
from envpack.support.placed_files import STUB_NAME
from envpack.support.platforms import libpython_name
from tests import newer_pythons
from tests.waiting import soon

FAILURES = {
    "raises": "Internal: ValueError: no weights for größe\n\nAt:\n",
    "exits": "Internal: SystemExit: 3",
    "chatty": "Internal: RuntimeError: after 500 lines",
    "import_error": "Internal: ModuleNotFoundError: No module named 'package_that_nobody_has'",
    "classless": "Internal: AttributeError: module '1.model' has no attribute 'TritonPythonModel'",
    "auto_complete_junk": "auto_complete_config function in model 'auto_complete_junk' must return a valid "
    "pb.ModelConfig object.",
    "no_file": "Internal: Python model file not found in '",
    "quits": "The model's process exited with status 3 while the model was being imported.",
    "segfaults": "was killed by signal 11 (SIGSEGV) at model.py:7 in auto_complete_config while",
    "killed": "was killed by signal 9 (SIGKILL, which the kernel sends when memory runs out) while",
    "too_early": "The server is not available",
    "wrong_release": "Failed to preinitialize Python stub: ",
    "without_threads": "Failed to preinitialize Python stub: a thread cannot be created: ",
}


@pytest.mark.parametrize("model", FAILURES)
def test_a_failed_load_says_why(served, model):
    assert FAILURES[model] in served.failures[model]


def test_the_frames_of_a_failed_load_are_told_innermost_first(served):
    message = served.failures["raises"]
    assert re.findall(r"  \S+/raises/1/model\.py\(\d+\): (\w+)\n", message) == ["open_weights", "initialize"]


def test_a_stub_that_is_told_another_release_does_not_leave_the_server_waiting(served):
    stub = served.repository / "wrong_release" / STUB_NAME
    contradiction = f"{stub}.release names Triton 24.08, but "
    assert contradiction in served.failures["wrong_release"]
    assert "names Triton 2.51" in served.failures["wrong_release"]
    assert f"envpack stub: Failed to preinitialize Python stub: {contradiction}" in served.server.log()


def test_nothing_but_the_broken_models_failed(served):
    assert set(served.failures) <= {*FAILURES, "wrong_environment"}


def test_an_environment_of_another_python_is_told(served, python):
    if not (served.repository / "wrong_environment").exists():
        pytest.skip(f"this machine has libpython{python} installed for every program")
    message = served.failures["wrong_environment"]
    assert f"this stub needs {libpython_name(python)} (Python {python}), which could not be loaded" in message
    assert f"must contain Python {python} with a shared libpython" in message


def test_failed_models_leave_neither_process_nor_region(served):
    for model in (*FAILURES, "wrong_environment"):
        assert served.stubs(model) == []
    assert soon(lambda: len(served.regions()) == len(served.stubs()) > 0)
    assert [child for child in served.server.children() if child.dead] == []


@pytest.mark.spoils
def test_finalize_runs_when_the_model_is_unloaded(served):
    (pid,) = served.workers("customized")
    finalized = served.repository / "customized/1/finalized"
    finalized.unlink(missing_ok=True)
    regions = len(served.regions())
    served.client.unload("customized")
    assert soon(lambda: not Path(f"/proc/{pid}").exists())
    assert finalized.read_text() == f"{pid}\n"
    assert soon(lambda: len(served.regions()) == regions - 1)
    assert served.server.log().count('"from finalize"') == 1
    assert served.soon_logged("requested too late: BLS is only supported during the 'execute' function.")


@pytest.mark.spoils
def test_a_model_whose_stub_was_killed_can_be_unloaded(served):
    (pid,) = served.stubs("completed")
    os.kill(pid, signal.SIGKILL)
    served.client.unload("completed")
    assert soon(lambda: len(served.regions()) == len(served.stubs()) > 0)
    assert served.evaluate("2 + 2") == 4


@pytest.mark.spoils
def test_finalize_runs_when_the_whole_process_group_is_told_to_end(served, servers):
    (pid,) = served.workers("script")
    group = os.getpgid(pid)
    finalized = served.repository / "script/1/finalized"
    finalized.unlink(missing_ok=True)
    os.killpg(group, signal.SIGTERM)
    assert soon(served.server.ended)
    assert finalized.read_text() == f"{pid}\n"
    assert served.server.stop().leftovers == ()
    servers.close()


@pytest.mark.spoils
def test_stubs_and_their_regions_are_gone_after_the_server_was_killed(servers, interpreter, python, tmp_path):
    if not (servers.folder / python).is_dir():
        servers.get(python)  # which writes the models
    servers.close()
    repository = tmp_path / "repository"
    for name in ("script", "completed"):
        shutil.copytree(servers.folder / python / name, repository / name)
    (repository / "script/1/finalized").unlink(missing_ok=True)
    with ExitStack() as stack:
        served = servers.start(python, repository, stack)
        served.load(["script", "completed"])
        assert (len(served.stubs()), len(served.regions())) == (2, 2)
        _a_dead_stub_fails_its_requests_only(served)
        pids = served.stubs()
        os.kill(served.server.pid, signal.SIGKILL)
        assert soon(lambda: not any(_runs(pid) for pid in pids))
        assert len(served.regions()) == 1  # of the stub that died before: nobody is left who knows of it
    assert not (repository / "script/1/finalized").exists()


@pytest.mark.parametrize(("model", "line"), [("segfaults", 7)])
def test_a_crash_prints_where_python_was_and_in_which_model(served, model, line):
    log = served.server.log()
    notice = f"envpack stub: crash in '{model}'. Python traceback:\n"
    assert notice in log
    message = log.partition(notice)[2]
    assert message.startswith("Fatal Python error: Segmentation fault\n")
    assert f'/{model}/1/model.py", line {line} in auto_complete_config\n' in message


@pytest.mark.spoils
def test_a_crash_in_execute_is_told_and_harms_no_other_model(servers, interpreter, python, tmp_path):
    servers.close()
    with ExitStack() as stack:
        served = servers.two_scripts(python, tmp_path, stack)
        crashed = served.refusal("import ctypes; ctypes.string_at(0)", model="first")
        assert "was killed by signal 11 (SIGSEGV) at model.py:" in crashed.message
        assert crashed.message.endswith(" in execute")
        assert served.soon_logged("envpack stub: crash in 'first_0'. Python traceback:\nFatal Python error: Segm")
        assert served.soon_logged(" in execute\n")
        assert python not in newer_pythons.PYTHONS or served.soon_logged("C stack trace (most recent call first):\n")
        assert served.evaluate("2 + 2", model="second") == 4


@pytest.mark.spoils
def test_a_model_that_never_completes_its_configuration_goes_with_the_server(servers, interpreter, python, tmp_path):
    servers.close()
    repository = tmp_path / "repository"
    repository.mkdir()
    parts = servers.model_environments
    servers.place(repository, "quits", "quits", parts.environments(python)[0], parts.stub(python))
    pid_file = tmp_path / "pid"
    (repository / "quits/1/model.py").write_text(
        f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    with ExitStack() as stack:
        served = servers.start(python, repository, stack)
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(served.client.load, "quits", timeout=600)
            assert soon(lambda: pid_file.exists() and pid_file.read_text())
            (stub,) = served.stubs()
            child = int(pid_file.read_text())
            assert child != stub
            assert not loading.done()
            os.kill(served.server.pid, signal.SIGKILL)
            assert isinstance(loading.exception(60), RequestError)
        assert soon(lambda: not _runs(stub) and not _runs(child))
        assert served.regions() == []


@pytest.mark.spoils
@pytest.mark.parametrize("python", SUPPORTED[-1:])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_worker_that_is_ended_while_another_model_works_for_it_holds_up_nothing(
    servers, interpreter, python, number, tmp_path
):
    servers.close()
    started, go_on = tmp_path / "started", tmp_path / "go_on"
    inner = (
        f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\n"
        f"while not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.01)\n"
        "return [reply(1)]"
    )
    code = (
        "import os, pathlib, signal, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    bls_call('second', {inner!r}).exec()\n"
        "    os._exit(0)\n"
        f"while not pathlib.Path({str(started)!r}).exists(): time.sleep(0.01)\n"
        f"os.kill(child, {int(number)})\n"
        f"pathlib.Path({str(go_on)!r}).touch()\n"
        "return [reply(os.waitpid(child, 0)[1])]"
    )
    with ExitStack() as stack:
        served = servers.two_scripts(python, tmp_path, stack)
        assert served.run_code(code, model="first") == number
        for model in ("first", "second"):
            served.client.unload(model)
        assert soon(lambda: (served.stubs(), served.regions()) == ([], []))


def _a_dead_stub_fails_its_requests_only(served):
    """Not on the shared server: after this it can neither unload the model nor end."""
    ((stub,), (worker,)) = served.stubs("completed"), served.workers("completed")
    os.kill(stub, signal.SIGKILL)
    assert soon(lambda: not _runs(stub) and not _runs(worker))
    with pytest.raises(RequestError, match="Stub process 'completed_0' is not healthy"):
        served.post("completed", {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [2], "data": [1, 2]}]})
    assert served.evaluate("2 + 2") == 4


def _runs(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False

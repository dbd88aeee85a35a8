import http.server
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.cli.main import run
from envpack.server.choice import ServerSpec
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE, Settings
from envpack.support.errors import InputError, ServerError
from envpack.support.placed_files import STUB_NAME
from envpack.verification.run import verify
from tests.cache import kept_cache
from tests.server.model_environments import ModelEnvironments
from tests.verdicts import of

PROCESS = ServerSpec(Settings(runtime="process"))


@pytest.fixture(scope="module")
def verdict(environment, faults, tmp_path_factory):
    """One server for the whole catalogue."""
    repository = tmp_path_factory.mktemp("repository")
    for broken in (faults.GOOD, *faults.FAULTS):
        faults.write_model(repository, broken, environment)
    (repository / "whole/1").mkdir(parents=True)
    (repository / "whole/config.pbtxt").write_text(faults.ENSEMBLE)
    return verify(repository, spec=PROCESS)


@pytest.fixture
def good(environment, faults, tmp_path):
    faults.write_model(tmp_path, faults.GOOD, environment)
    return tmp_path


def test_a_good_model_is_fit_to_serve(verdict):
    model = of(verdict, "good")
    assert model.ok, model.failure
    assert {check.id: check.status for check in model.checks} == {
        "load": "ok",
        "stub": "ok",
        "environment": "ok",
        "libpython": "ok",
        "user-site": "ok",
        "isolation": "ok",
        "libraries": "warning",  # the environment is made of links into an interpreter that is this machine's
        "infer": "ok",
        "formats": "ok",
        "expected": "ok",
        "stability": "ok",
    }
    assert model.latency.requests > 0
    assert 0 < model.latency.p50 <= model.latency.p95
    assert [phase.name for phase in model.phases][-1] in {"instance", "initialize"}
    assert model.python.startswith("3.10")
    assert model.numpy == "1.26.4"
    assert (model.samples.right, model.samples.sent, model.samples.noun) == (1, 2, "numbers")


def test_an_ensemble_is_loaded_after_its_members(verdict):
    names = [model.name for model in verdict.models]
    assert names.index("good") < names.index("whole")
    assert of(verdict, "whole").ok, of(verdict, "whole").failure


def test_every_broken_model_has_its_own_kind_and_no_other_check_fails(verdict, faults):
    wrong = []
    for broken in faults.FAULTS:
        model = of(verdict, broken.name)
        failure = model.failure
        seen = (failure.kind, failure.reason, "\n".join(failure.details)) if failure else ("", "", "")
        failed = [check.id for check in model.checks if check.status == "failed"]
        warned = {check.id for check in model.checks if check.status == "warning"} - {"libraries"}
        if seen[0] != broken.kind or broken.says not in seen[1] or broken.details not in seen[2]:
            wrong.append((broken.name, seen))
        if len(failed) != 1 or warned:
            wrong.append((broken.name, failed, warned))
    assert not wrong
    assert not verdict.ok


def test_one_good_model(good):
    verdict = verify(good, spec=PROCESS)
    assert verdict.ok, verdict.models
    assert verdict.release == "24.10"
    assert verdict.leftovers == ()
    assert {check.id: check.status for check in verdict.checks} == {
        "repository": "ok",
        "again": "ok",
        "shutdown": "ok",
        "stop": "ok",
    }
    assert verdict.to_json()["schema"] == 2
    assert 0 < verdict.models[0].load_seconds < verdict.verdict_seconds <= verdict.seconds


@pytest.mark.thorough
def test_the_servers_log_is_kept_for_its_user_alone(good, monkeypatch, tmp_path):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    log = Path(verify(good, spec=PROCESS).log)
    assert log.parent == tmp_path / "cache"
    assert log.stat().st_mode & 0o777 == 0o600
    text = log.read_text()
    assert "successfully loaded 'good'" in text
    assert "Waiting for in-flight requests to complete" in text  # to its end


@pytest.mark.thorough
def test_a_sample_that_run_has_saved_is_what_verify_expects(good):
    (good / "good/envpack/smoke.json").unlink()
    (good / "sent.json").write_text('{"data": [{"IN": [1.5, 2]}, {"IN": [4]}]}')
    stub = ModelEnvironments(kept_cache()).stub(find_release(DEFAULT_RELEASE).python)
    (good / "good" / stub.name).symlink_to(stub)
    assert run(["run", "good", "--repository", str(good), "--input", str(good / "sent.json"), "--save-sample"]) == 0
    (model,) = verify(good, spec=PROCESS).models
    assert (model.ok, str(model.samples)) == (True, "2 of 2 samples right"), model.failure


def of_release(repository, release):
    return verify(repository, spec=ServerSpec(Settings(runtime="process", triton=release)))


def test_the_server_of_another_release_than_the_wanted_one_is_no_plain_yes(good):
    verdict = of_release(good, "24.09")
    assert (verdict.ok, verdict.answer) == (False, "yes as far as checked")
    (check,) = (check for check in verdict.checks if check.id == "release")
    assert check.status == "unchecked"
    assert check.evidence == "Triton 24.09 is named, and this server is 24.10, which proves nothing for 24.09"


def test_what_keeps_a_model_from_the_wanted_release_is_part_of_the_verdict(good):
    """The model's environment has Python 3.10, and the stub of the wanted release embeds 3.12."""
    verdict = of_release(good, "25.04")
    assert verdict.answer == "no"
    assert verdict.models[0].failure.kind == "python-mismatch"
    assert verdict.models[0].failure.reason.startswith("for Triton 25.04: the environment has Python 3.10")


def test_other_folders_in_the_repository_are_a_warning(good):
    (good / "notes").mkdir()
    (check,) = (check for check in verify(good, spec=PROCESS).checks if check.id == "repository")
    assert check.status == "warning"
    assert "notes" in check.evidence


def test_an_exception_in_finalize_is_a_warning(good):
    model = good / "good/1/model.py"
    model.write_text(model.read_text() + "\n    def finalize(self):\n        raise OSError('store is closed')\n")
    verdict = verify(good, spec=PROCESS)
    assert verdict.ok, verdict.models
    (check,) = (check for check in verdict.checks if check.id == "finalize")
    assert (check.status, check.evidence) == (
        "warning",
        "good raised an exception in finalize: OSError: store is closed",
    )


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("import ctypes; ctypes.string_at(0)", r"was killed by signal 11 \(SIGSEGV\) at model.py:\d+ in finalize"),
        ("import os; os._exit(3)", "exited with status 3"),
        ("import atexit, os; atexit.register(os._exit, 0)", ""),
    ],
)
def test_a_crash_in_finalize_is_a_warning(good, code, end):
    """As envpack's stub says; the release's own one says nothing."""
    stub = ModelEnvironments(kept_cache()).stub(find_release(DEFAULT_RELEASE).python)
    shutil.copy(stub, good / "good" / STUB_NAME)
    model = good / "good/1/model.py"
    model.write_text(model.read_text() + f"\n    def finalize(self):\n        {code}\n")
    verdict = verify(good, spec=PROCESS)
    assert verdict.ok, verdict.models
    found = [check for check in verdict.checks if check.id == "finalize"]
    assert [check.status for check in found] == ["warning"] * bool(end)
    for check in found:
        assert re.fullmatch(rf"good\w* crashed when it was unloaded: the model's process \d+ {end}", check.evidence)


def test_a_model_may_name_the_library_of_the_backend(good):
    """A server refuses one that is a link out of the backend's folder."""
    config = good / "good/config.pbtxt"
    config.write_text(f'runtime: "libtriton_python.so"\n{config.read_text()}')
    verdict = verify(good, spec=PROCESS)
    assert verdict.ok, verdict.models


def test_another_answer_after_a_second_load_is_a_warning(good, tmp_path):
    """The model counts its loads in a file, and adds the number to its answers; no sample says what is right."""
    (good / "good/envpack/smoke.json").unlink()
    model = good / "good/1/model.py"
    count = f"""    def initialize(self, args):
        with open("{tmp_path}/loads", "a+") as file:
            self.loads = file.write("x") and file.tell()
"""
    begin = "    def execute"
    model.write_text(model.read_text().replace(begin, f"{count}\n{begin}").replace("data * 2", "data + self.loads"))
    verdict = verify(good, spec=PROCESS)
    assert verdict.ok, verdict.models
    (check,) = [check for check in verdict.checks if check.id == "again"]
    assert (check.status, check.evidence) == (
        "warning",
        "loaded a second time, good has another answer than before: OUT element 0 is 3 instead of 2",
    )


def test_what_each_request_leaves_is_a_warning(good):
    model = good / "good/1/model.py"
    begin = "        answers = []\n"
    model.write_text("import os\n" + model.read_text().replace(begin, f"        os.dup(0)\n{begin}"))
    verdict = verify(good, spec=PROCESS)
    (check,) = [check for check in verdict.models[0].checks if check.id == "leaks"]
    assert (check.status, verdict.ok) == ("warning", True)
    assert check.evidence == "20 equal requests, one after the other, left 20 open files"


def test_a_process_that_ends_after_its_answer_is_a_fault(good):
    """The thread keeps the process until it ends it, also where the model is unloaded before; or other requests are
    still sent to it, on a slow machine.
    """
    stub = ModelEnvironments(kept_cache()).stub(find_release(DEFAULT_RELEASE).python)
    shutil.copy(stub, good / "good" / STUB_NAME)
    model = good / "good/1/model.py"
    begin, end = "        answers = []\n", "__import__('threading').Timer(0.3, __import__('os')._exit, (3,)).start()"
    model.write_text(model.read_text().replace(begin, f"{begin}        {end}\n"))
    verdict = verify(good, spec=PROCESS)
    assert not verdict.ok
    (check,) = [check for check in (*verdict.checks, *verdict.models[0].checks) if not check.ok]
    assert re.search(r"\bthe model's process \d+ exited with status 3", check.evidence)


def test_a_crash_during_a_request_leaves_nothing_behind(environment, faults, tmp_path):
    broken = next(fault for fault in faults.FAULTS if fault.name == "crashes_answering")
    faults.write_model(tmp_path, broken, environment)
    verdict = verify(tmp_path, spec=PROCESS)
    assert verdict.models[0].failure.kind == "stub-died"
    assert verdict.leftovers == ()


def test_a_model_that_was_never_built_is_not_loaded(good, faults):
    files = {"config.pbtxt": faults.CONFIG, "requirements.txt": "numpy\n"}
    faults.write_model(good, replace(faults.GOOD, name="unbuilt", files=files), "")
    (model,) = verify(good, ["unbuilt"], spec=PROCESS).models
    assert model.failure.kind == "not-built"
    assert model.failure.reason == "it has requirements.txt, but config.pbtxt names no execution environment"
    assert model.failure.fix == "run `envpack build unbuilt`"
    assert [check.id for check in model.checks] == ["preflight"]


def test_an_environment_that_a_clone_of_the_repository_lacks_is_built_by_the_fix(good, faults):
    """An absolute path is left to the server, which may have it."""
    for name, folder in (("cloned", "$$TRITON_MODEL_DIRECTORY"), ("elsewhere", str(good.parent / "none"))):
        faults.write_model(good, replace(faults.GOOD, name=name), f"{folder}/envs/python3.10")
    cloned, elsewhere = verify(good, ["cloned", "elsewhere"], spec=PROCESS).models
    assert (cloned.failure.kind, elsewhere.failure.kind) == ("environment-missing", "environment-missing")
    assert cloned.failure.fix == "run `envpack build cloned`"
    assert [check.id for check in cloned.checks] == ["preflight"]
    assert "start EXECUTION_ENV_PATH with" in elsewhere.failure.fix


# The process that completes the configuration ends while the server is stopped, as on a busy machine, and the next one
# runs for longer than the grace period of a dead one.
UNNOTICED = """import atexit, os, signal, time


def end_unnoticed():
    stub, server = os.getpid(), os.getppid()
    if os.fork() == 0:
        until = time.monotonic() + 10
        while time.monotonic() < until and ") Z " not in open(f"/proc/{stub}/stat").read():
            time.sleep(0.005)
        time.sleep(0.2)
        os.kill(server, signal.SIGCONT)
        os._exit(0)
    os.kill(server, signal.SIGSTOP)


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        atexit.register(end_unnoticed)
        return config

    def initialize(self, args):
        time.sleep(5)

    def execute(self, requests):
        raise RuntimeError("never called")
"""


@pytest.mark.thorough
def test_a_process_that_ended_normally_is_not_reported_as_dead(environment, faults, tmp_path):
    faults.write_model(tmp_path, faults.Broken("unnoticed", UNNOTICED, "", ""), environment)
    model = of(verify(tmp_path), "unnoticed")
    load = next(check for check in model.checks if check.id == "load")
    assert load.ok, model.failure
    assert model.load_seconds > 5


@pytest.mark.thorough
def test_an_unpacked_environment_is_removed_after_a_hang(environment, faults, tmp_path):
    repository = tmp_path / "repository"
    archive = tmp_path / "environment.tar"
    subprocess.run(["tar", "-C", environment, "--dereference", "-cf", archive, "."], check=True)
    faults.write_model(repository, faults.GOOD, archive)
    faults.write_model(repository, faults.HANGS, archive)
    (good,) = verify(repository, [faults.GOOD.name], spec=PROCESS).models
    assert good.ok, good.failure
    options = PROCESS.saying(timeout=5)
    (hangs,) = verify(repository, [faults.HANGS.name], spec=options).models
    assert hangs.failure.kind == "load-timeout"


def test_a_blocked_load_is_abandoned(environment, faults, tmp_path):
    faults.write_model(tmp_path, faults.HANGS, environment)
    (model,) = verify(tmp_path, spec=PROCESS.saying(timeout=10)).models
    assert model.failure.kind == faults.HANGS.kind
    assert faults.HANGS.says in model.failure.reason
    assert faults.HANGS.details in model.failure.details


class Alive(http.server.BaseHTTPRequestHandler):
    """Answers every question as a healthy server does."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_program_that_takes_the_port_meanwhile_is_not_mistaken_for_the_server(good, monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Alive) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        monkeypatch.setattr("envpack.server.process.is_free", lambda _: True)  # it was free at the check
        try:
            with pytest.raises(ServerError) as caught:
                verify(good, spec=ServerSpec(Settings(runtime="process", port=other.server_port)))
        finally:
            other.shutdown()
    assert (caught.value.kind, caught.value.where) == ("port-taken", f"127.0.0.1:{other.server_port}")


def test_a_folder_for_temporary_files_that_the_shell_would_split_is_refused(good, monkeypatch, tmp_path):
    (tmp_path / "my files").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "my files"))
    with pytest.raises(ServerError, match="contains ' '") as caught:
        verify(good, spec=PROCESS)
    assert (caught.value.kind, caught.value.where) == ("bad-path", str(tmp_path / "my files"))
    assert "TMPDIR" in caught.value.hint
    assert list((tmp_path / "my files").iterdir()) == []


def test_a_port_in_use_is_an_error(good):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(ServerError, match=str(port)) as caught:
            verify(good, spec=ServerSpec(Settings(runtime="process", port=port)))
    assert caught.value.kind == "port-taken"


def test_a_missing_server_is_an_error(good, tmp_path):
    with pytest.raises(ServerError) as caught:
        verify(good, spec=ServerSpec(Settings(server=tmp_path / "nowhere")))
    assert caught.value.kind == "server-missing"


def test_a_missing_model_is_an_error_before_a_server_starts(good):
    with pytest.raises(InputError) as caught:
        verify(good, ["absent"])
    assert caught.value.kind == "model-missing"


BLOCKED = """import os, time
open({loading!r}, "w").write(str(os.getppid()))
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("number", "status", "last"),
    [(signal.SIGINT, -signal.SIGINT, ["KeyboardInterrupt"]), (signal.SIGTERM, 128 + signal.SIGTERM, [])],
    ids=["SIGINT", "SIGTERM"],
)
def test_an_interrupted_run_leaves_nothing_behind(environment, faults, tmp_path, number, status, last):
    """It ends as Python does: by the signal itself with a traceback, or with a status that names the signal."""
    repository, temporary, loading = (tmp_path / name for name in ("models", "temporary", "loading"))
    temporary.mkdir()
    faults.write_model(repository, faults.Broken("blocked", BLOCKED.format(loading=str(loading)), "", ""), environment)
    code = f"from pathlib import Path; from envpack.verification.run import verify; verify(Path({str(repository)!r}))"
    variables = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=variables) as child:
        until = time.monotonic() + 120
        while not (loading.is_file() and loading.read_text()):
            assert time.monotonic() < until
            assert child.poll() is None
            time.sleep(0.05)
        assert any(temporary.iterdir())
        child.send_signal(number)
        _, error = child.communicate(timeout=40)
    assert child.returncode == status
    assert error.splitlines()[-1:] == last
    assert not Path("/proc", loading.read_text()).exists()
    assert list(temporary.iterdir()) == []

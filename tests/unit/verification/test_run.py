"""A verification from the start of its server to its end, with a server of words."""

import contextlib
import datetime
import shutil
import time
from dataclasses import replace

import pytest

from envpack.inspection.facts import this_host
from envpack.server.choice import ServerSpec
from envpack.server.interface import StopResult
from envpack.server.log import FILES_LIMIT
from envpack.settings.table import Settings
from envpack.support.errors import InputError
from envpack.verification import run as module
from envpack.verification.judge import Judge
from envpack.verification.loading import LoadResult, server_died
from envpack.verification.run import verify
from envpack.verification.verdict import Failure, ModelVerdict, failed, passed

LOADED = LoadResult(0.1)


class Server:
    """A server that ends by itself when a test says so."""

    url, poll_seconds = "http://127.0.0.1:1", 0.1

    def __init__(self):
        self.dead, self.stopped = False, None

    def ended(self):
        return self.dead

    def shared_memory(self):
        return ("large",)

    def log(self, since=0):
        return "Signal (11) received.\n" if self.dead else ""

    def log_size(self):
        return 0

    def children(self, of=None):
        return ()

    def stop(self, *, force=False):
        self.stopped = self.stopped or StopResult(-11 if self.dead else 0, force, (), 0.1)
        return self.stopped


class Runtime:
    """Starts such servers."""

    name, image, instead_of, release, default_stub = "process", "", None, "24.10", None

    def __init__(self):
        self.host, self.started = this_host(), []

    @contextlib.contextmanager
    def start(self, _, __=None):
        self.started.append(Server())
        yield self.started[-1]


class Client:
    def __init__(self, *_, **__):
        pass

    def server_version(self):
        return "2.51.0"


@pytest.fixture
def repository(tmp_path):
    for name in "abc":
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/model.py").touch()
        (tmp_path / name / "config.pbtxt").write_text('backend: "python"\n')
    return tmp_path


def test_a_server_that_ends_between_two_models_is_the_first_ones_failure(repository, monkeypatch):
    runtime = Runtime()

    def check_loaded(judge, model, _):
        judge.server.dead = model.name == "a"  # after its requests
        return ModelVerdict(name=model.name, ok=True, load_seconds=0.1, checks=(passed("load", "READY"),))

    monkeypatch.setattr(module, "Client", Client)
    monkeypatch.setattr(module, "keep_last", lambda *_, **__: "")
    monkeypatch.setattr(Judge, "_verdict_before_load", lambda *_: None)
    monkeypatch.setattr(Judge, "_check_loaded", check_loaded)
    monkeypatch.setattr("envpack.verification.judge.load_model", lambda *_, **__: LOADED)
    verdict = verify(repository, runtime=runtime)
    first, *others = verdict.models
    assert (first.failure.kind, first.failure.reason) == ("server-died", "the server ended after its requests")
    assert first.failure.details == ("Signal (11) received.",)
    assert [model.ok for model in others] == [True, True]
    assert (verdict.ok, len(runtime.started)) == (False, 2)


@pytest.mark.parametrize(
    ("printed", "what", "fix"),
    [
        ("[err] /src/signal.c: socketpair: Too many open files\n", "ended", "raise the limit of open files"),
        ("a model printed: Too many open files\n", "ended", "each loads alone, so they compete for memory"),
        ("", "could open no further file", "raise the limit of open files"),
    ],
)
def test_models_that_only_together_end_the_server_or_leave_it_no_file_have_the_limit_as_their_fix(
    repository, monkeypatch, printed, what, fix
):
    runtime = Runtime()

    def load(server, _client, model, **__):
        if model.name == "b" and len(runtime.started) == 1:
            server.dead = bool(printed)
            died = server_died("while it loaded the model", server.log())
            return LoadResult(0.1, died if printed else Failure("too-many-files", "not listed", (), FILES_LIMIT))
        return LOADED

    ready = ModelVerdict(name="", ok=True, load_seconds=0.1, checks=(passed("load", "READY"),))
    monkeypatch.setattr(Server, "log", lambda server, since=0: printed if server.dead else "")
    monkeypatch.setattr(module, "Client", Client)
    monkeypatch.setattr(module, "keep_last", lambda *_, **__: "")
    monkeypatch.setattr(Judge, "_verdict_before_load", lambda *_: None)
    monkeypatch.setattr(Judge, "_check_loaded", lambda _, model, __: replace(ready, name=model.name))
    monkeypatch.setattr("envpack.verification.judge.load_model", load)
    monkeypatch.setattr("envpack.verification.judge.explain_hidden", lambda _, __, failure: failure)
    verdict = verify(repository, runtime=runtime)
    (together,) = (check for check in verdict.checks if check.id == "together" and not check.ok)
    assert together.evidence == f"the server {what} when b was loaded beside the models before it"
    assert together.fix.startswith(fix)


@pytest.mark.parametrize("when", ["alone", "together"])
def test_a_repository_that_is_removed_meanwhile_is_named_and_no_model_or_limit_is_blamed(repository, monkeypatch, when):
    """The server's own message has no reason: it cannot open the folder."""

    def remove_and_fail(failure):
        shutil.rmtree(repository)
        return failure

    def load(*_, **__):
        failure = Failure("too-many-files", "not listed", (), FILES_LIMIT)
        return LoadResult(0.1, remove_and_fail(failure)) if when == "alone" else LOADED

    ready = ModelVerdict(name="", ok=True, load_seconds=0.1, checks=(passed("load", "READY"),))
    monkeypatch.setattr(module, "Client", Client)
    monkeypatch.setattr(module, "keep_last", lambda *_, **__: "")
    monkeypatch.setattr(module, "unload_all", lambda *_: passed("shutdown", "gone"))
    monkeypatch.setattr(module, "check_together", lambda *_: remove_and_fail(failed("together", "x", FILES_LIMIT)))
    monkeypatch.setattr(module, "check_again", lambda *_: failed("again", "x", FILES_LIMIT))
    monkeypatch.setattr(Judge, "_verdict_before_load", lambda *_: None)
    monkeypatch.setattr(Judge, "_check_loaded", lambda _, model, __: replace(ready, name=model.name))
    monkeypatch.setattr("envpack.verification.judge.load_model", load)
    monkeypatch.setattr("envpack.verification.judge.explain_hidden", lambda _, __, failure: failure)
    runtime = Runtime()
    with pytest.raises(InputError, match="was removed while it was verified") as caught:
        verify(repository, runtime=runtime)
    assert (caught.value.kind, len(runtime.started)) == ("repository-missing", 1)


def test_a_model_that_is_changed_meanwhile_has_no_plain_yes(repository, monkeypatch):
    """The server had read what was there before."""

    def load(_, __, model, **___):
        if model.name == "b":
            (repository / "a/1/model.py").write_text("import six")
            (repository / "a/1/log.txt").touch()  # by the model itself, which is a warning
        return LOADED

    ready = ModelVerdict(name="", ok=True, load_seconds=0.1, checks=(passed("load", "READY"),))
    monkeypatch.setattr(module, "Client", Client)
    monkeypatch.setattr(module, "keep_last", lambda *_, **__: "")
    monkeypatch.setattr(module, "unload_all", lambda *_: passed("shutdown", "gone"))
    monkeypatch.setattr(module, "check_together", lambda *_: passed("together", "all"))
    monkeypatch.setattr("envpack.verification.checks.server._SHARED_MEMORY_OF_CONTAINERS", -1)
    monkeypatch.setattr(Judge, "_verdict_before_load", lambda *_: None)
    monkeypatch.setattr(Judge, "_check_loaded", lambda _, model, __: replace(ready, name=model.name))
    monkeypatch.setattr("envpack.verification.judge.load_model", load)
    verdict = verify(repository, runtime=Runtime())
    assert (verdict.ok, verdict.answer) == (False, "yes as far as checked")
    assert [check.id for check in verdict.checks] == [
        *("repository", "shared-memory", "together", "shutdown", "stop", "unchanged", "written")
    ]
    assert verify(repository, ["b", "c"], runtime=Runtime()).ok
    monkeypatch.setattr(Server, "stop", lambda *_, **__: StopResult(-9, True, (), 20.0))
    verdict = verify(repository, ["b", "c"], runtime=Runtime())
    assert (verdict.ok, verdict.leftovers) == (False, ("a server that did not stop within 20 s, and was killed",))


def test_the_servers_own_version_counts_more_than_the_tag_of_its_image(repository, monkeypatch):
    runtime = Runtime()
    runtime.name, runtime.image, runtime.release = "docker", "registry.example/ours:23.04", "23.04"
    asked = []

    def preflight(model, *, release, host, **_):
        asked.append((release.name, host.name, host.glibc))
        return ()

    monkeypatch.setattr(module, "Client", Client)
    monkeypatch.setattr(module, "keep_last", lambda *_, **__: "")
    monkeypatch.setattr(module, "preflight_model", preflight)
    monkeypatch.setattr(Judge, "_check_loaded", lambda *_: ModelVerdict(name="a", ok=False, load_seconds=0.1))
    monkeypatch.setattr("envpack.verification.judge.load_model", lambda *_, **__: LOADED)
    spec = ServerSpec(Settings(triton="23.04"), together=False)
    verdict = verify(repository, ["a"], spec=spec, runtime=runtime)
    (release,) = (check for check in verdict.checks if check.id == "release")
    assert (verdict.release, release.status) == ("24.10", "unchecked")
    assert asked == [("24.10", "the image registry.example/ours:23.04", "")]


def test_the_time_of_a_verdict_is_that_of_every_zone(repository, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    monkeypatch.setattr(module, "Client", Client)
    monkeypatch.setattr(module, "keep_last", lambda *_, **__: "")
    monkeypatch.setattr(Judge, "judge", lambda _, model: ModelVerdict(name=model.name, ok=False, load_seconds=0.1))
    try:
        started = datetime.datetime.fromisoformat(verify(repository, runtime=Runtime()).started)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert started.utcoffset() == datetime.timedelta(0)


def test_a_model_that_delays_the_stop_is_named_with_the_exit_status():
    log = 'Found 1 live models and 0\n"slow v1: UNLOADING"\n"Exit timeout expired."\n'
    stopped = StopResult(exit_code=1, forced=False, leftovers=("x",), seconds=15.0)
    assert module._stop_faults(stopped, log) == ("x", "exit status 1: slow did not end in time; check finalize")
    assert module._stop_faults(stopped, "") == ("x", "exit status 1")
    killed = "a server that did not stop within 15 s, and was killed: "
    assert module._stop_faults(replace(stopped, forced=True), log)[1].startswith(killed)

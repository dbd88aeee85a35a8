"""Verdicts that need no loaded model: models that were never built, or that are incompatible with their server."""

from envpack.inspection.state import BuildState
from envpack.support.errors import Finding
from envpack.verification.judge import Judge, JudgeOptions
from envpack.verification.verdict import EnvironmentSize

UNBUILT = BuildState(
    "unbuilt", "it has requirements.txt, but config.pbtxt names no environment", "run `envpack build m`"
)
CHANGED = BuildState("changed", "requirements.txt changed since the build", "run `envpack build m`")
INCOMPATIBLE = Finding("release-mismatch", "the stub is for another release", "build the stub again")


class Server:
    """A server that prints these lines while a model is judged."""

    def __init__(self, *lines):
        self._text = "".join(f"{line}\n" for line in ("earlier", *lines))

    def log_size(self):
        return len("earlier\n")

    def log(self, since=0):
        return self._text[since:]


def judge(model, state, *mismatches):
    """The verdict on a model that is not loaded; a request to the server would fail."""
    return Judge(Server(), None, JudgeOptions(1.0), lambda _: mismatches, lambda _: state).judge(model)


def test_a_model_that_was_never_built_is_not_loaded(model):
    verdict = judge(model, UNBUILT)
    assert not verdict.ok
    assert (verdict.failure.kind, verdict.failure.reason) == ("not-built", UNBUILT.reason)
    assert verdict.failure.fix == UNBUILT.fix
    assert [(check.id, check.status) for check in verdict.checks] == [("preflight", "failed")]


def test_changed_requirements_are_a_warning(model):
    verdict = judge(model, CHANGED, INCOMPATIBLE)
    assert verdict.failure.kind == "release-mismatch"
    outdated, incompatible = verdict.checks
    assert (outdated.id, outdated.status) == ("requirements", "warning")
    assert (outdated.evidence, outdated.fix) == (CHANGED.reason, CHANGED.fix)
    assert (incompatible.id, incompatible.status) == ("preflight", "failed")


def test_the_verdict_has_the_size_of_the_environment(model, monkeypatch):
    size = EnvironmentSize("/envs/m", "folder", 5, ())
    monkeypatch.setattr(
        "envpack.verification.judge.measure_environment", lambda measured: size if measured is model else None
    )
    assert judge(model, UNBUILT).environment == size


def test_current_requirements_are_not_mentioned(model):
    verdict = judge(model, BuildState("current"), INCOMPATIBLE)
    assert [check.id for check in verdict.checks] == ["preflight"]


def test_the_verdict_has_the_last_forty_lines_that_the_server_printed_meanwhile(model):
    lines = tuple(f"line {number}" for number in range(50))
    for printed in (lines, lines[:40], lines[:1]):
        found = Judge(Server(*printed), None, JudgeOptions(1.0), build_state=lambda _: UNBUILT).judge(model)
        assert found.log == printed[-40:]

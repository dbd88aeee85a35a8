"""One verdict from those of several servers."""

from dataclasses import replace

from envpack.verification.verdict import Failure, ModelVerdict, Verdict, failed, passed
from envpack.workflow.verify import combine_verdicts

GOOD = ModelVerdict(name="shared", ok=True, load_seconds=1.0)
PART = Verdict(
    ok=True,
    repository="/models",
    release="24.10",
    server="2.51.0",
    runtime="process",
    image="",
    models=(GOOD, replace(GOOD, name="a")),
    checks=(passed("shutdown", "unloaded"), passed("stop", "stopped")),
    leftovers=(),
    started="2026-01-01T00:00:02+00:00",
    seconds=3.0,
    verdict_seconds=2.0,
)
OTHER = replace(PART, models=(GOOD, replace(GOOD, name="b")), started="2026-01-01T00:00:01+00:00")


def test_a_model_of_two_parts_is_listed_once():
    whole = combine_verdicts([PART, OTHER], folder=None, seconds=5.0)
    assert whole.ok
    assert [model.name for model in whole.models] == ["shared", "a", "b"]
    assert [check.id for check in whole.checks] == ["shutdown", "stop"]
    assert (whole.started, whole.seconds, whole.server) == (OTHER.started, 5.0, "2.51.0")


def test_what_failed_in_one_part_fails_the_whole():
    broken = replace(GOOD, ok=False, failure=Failure("load-failed", "reason"))
    checks = (failed("shutdown", "left", "fix"),)
    other = replace(OTHER, ok=False, models=(broken,), checks=checks, leftovers=("a process",), server="2.52.0")
    whole = combine_verdicts([PART, other], folder=None, seconds=5.0)
    assert not whole.ok
    assert [model.ok for model in whole.models] == [False, True]
    assert [(check.id, check.status) for check in whole.checks] == [("shutdown", "failed"), ("stop", "ok")]
    assert whole.leftovers == ("a process",)
    assert whole.server == "2.51.0, 2.52.0"


def test_a_whole_repository_is_checked_as_a_folder(tmp_path):
    (tmp_path / "no-model").mkdir()
    whole = combine_verdicts([PART], folder=tmp_path, seconds=5.0)
    assert whole.checks[0].id == "repository"
    assert whole.checks[0].status == "warning"

"""What samples expect of a loaded model: outputs within a tolerance, and how many of them must match."""

from types import SimpleNamespace

import pytest

from envpack.server.kserve import RequestError
from envpack.server.tensors import Tolerance
from envpack.verification.answers import LoadedModel
from envpack.verification.checks import compared
from envpack.verification.checks.compared import check_later, check_second_load
from envpack.verification.checks.inference import check_samples
from envpack.verification.choice import Chosen
from envpack.verification.samples import Sample, Samples
from tests.tables import every_row
from tests.unit.verification.responses import CONFIG, REQUEST, Client, output


def samples(*expected, **settings):
    """Samples, each with the outputs of its only response, or None if nothing is expected of it."""
    answered = enumerate(None if one is None else (one,) for one in expected)
    return Samples(tuple(Sample(REQUEST.inputs, one, {"sequence_id": n}) for n, one in answered), **settings)


@pytest.mark.parametrize(
    ("tolerance", "found", "right"),
    [
        (Tolerance(), 1.000009, True),
        (Tolerance(), 1.00002, False),
        (Tolerance(rtol=0.5), 1.4, True),
        (Tolerance(rtol=0.5), 1.6, False),
        (Tolerance(rtol=0, atol=0.5), 0.5, True),
        (Tolerance(rtol=0, atol=0.5), 0.4, False),
    ],
)
def test_expected_outputs_have_the_samples_tolerance(tolerance, found, right):
    check, count = check_samples(
        LoadedModel(Client(output(found)), "m", CONFIG), samples(output(1.0), tolerances={"": tolerance})
    )
    assert (check.status, count.right) == ("ok" if right else "failed", int(right))


def test_wrong_answers_are_counted_and_the_first_are_shown():
    client = Client(output(1.0), output(2.0), "first line\nsecond line", output(1.0, name="X"), output(3.0))
    check, count = check_samples(LoadedModel(client, "m", CONFIG), samples(*[output(1.0)] * 5, noun="images"))
    assert (count.right, count.sent, count.noun) == (1, 5, "images")
    assert check.status == "failed"
    assert check.evidence == (
        "1 of 5 images right, 5 needed (1: OUT element 0 is 2 instead of 1; 2: first line; 3: OUT is missing)"
    )
    assert [sent[3] for sent in client.sent] == [{"sequence_id": number} for number in range(5)]


def test_an_answer_to_a_sample_that_does_not_come_ends_the_comparison():
    client = Client(output(1.0))
    client.infer = unanswered
    with pytest.raises(RequestError, match="late"):
        check_samples(LoadedModel(client, "m", CONFIG), samples(output(1.0), output(1.0)))


def unanswered(*_, **__):
    raise RequestError("late", timed_out=True)


@pytest.mark.parametrize(("minimum", "status"), [(0.5, "ok"), (0.51, "failed"), (0.0, "ok"), (1.0, "failed")])
def test_the_minimum_match_is_a_share_of_the_samples_with_expected_outputs(minimum, status):
    check, _ = check_samples(
        LoadedModel(Client(output(1.0), output(2.0)), "m", CONFIG),
        samples(output(1.0), output(1.0), minimum_match=minimum),
    )
    assert check.status == status


def second_load(client, wanted, before=()):
    chosen = Chosen(requests=(REQUEST,), samples=wanted, answer=before)
    return check_second_load("again", client, "m", chosen)


# What is expected of the first sample and of its answer after more requests, that answer twice, and the status.
LATER = [
    (output(1.0), 1.0, (output(1.0),), ""),
    (output(1.0), 1.0, (output(2.0), output(2.0)), "failed"),
    (output(1.0), 0.9, (output(2.0), output(2.0)), "warning"),
    (None, 1.0, (output(2.0), output(2.0)), "warning"),
    (output(5.0), 1.0, (output(2.0), output(2.0)), "warning"),
    (output(1.0), 1.0, (output(2.0), output(3.0)), ""),
    (output(1.0), 1.0, (output(2.0), output(1.0)), ""),
]


@every_row(("wanted", "minimum", "answers", "status"), LATER)
def test_an_answer_may_not_become_another_one_and_stay_so(wanted, minimum, answers, status):
    last, *again = answers
    model = LoadedModel(Client(*again), "m", CONFIG)
    found = check_later(model, REQUEST, (output(1.0),), (last,), samples(wanted, minimum_match=minimum))
    assert (found.status if found else "") == status
    assert not found or found.id == "later"
    assert not found or found.evidence.endswith("the same one is another: OUT element 0 is 2 instead of 1")


# The answers after a second load, to the first request and then to samples of which two of three must be right; and
# what is said of them.
AGAIN = [
    ((output(1.0), output(1.0)), ""),
    ((output(1.0), output(2.0), output(1.0)), ""),
    ((output(1.0), output(2.0), output(3.0)), "has a wrong answer to a sample: OUT element 0 is 3 instead of 1"),
    (("ValueError: rows\n\nAt:\n  model.py(3): execute\n",), "answers with an error: ValueError: rows"),
]


@every_row(("answers", "said"), AGAIN)
def test_after_a_second_load_a_model_answers_as_before(answers, said):
    client = Client(*answers)
    found = second_load(client, samples(*[output(1.0)] * 3, minimum_match=0.6), (output(1.0),))
    assert (found.evidence if found else "") == (said and f"loaded a second time, m {said}")
    assert found is None or not found.ok
    assert len(client.sent) == len(answers)


def test_after_a_second_load_nothing_is_compared_that_need_not_be_right():
    for wanted in (None, samples(None), samples(output(1.0), minimum_match=0)):
        assert second_load(Client(output(2.0)), wanted, (output(2.0),)) is None


def test_another_answer_after_a_second_load_is_a_warning():
    found = second_load(Client(output(2.0)), None, (output(1.0),))
    assert (found.id, found.status) == ("again", "warning")
    assert found.evidence == "loaded a second time, m has another answer than before: OUT element 0 is 2 instead of 1"


@every_row(("seconds", "warned"), [((3.0, 0.2), True), ((3.0, 1.0), False), ((1.9, 0.0), False)])
def test_a_first_answer_that_takes_much_longer_than_the_next_is_a_warning(seconds, warned, monkeypatch):
    now = iter((0.0, seconds[0], 10.0, 10.0 + seconds[1]))
    monkeypatch.setattr(compared, "time", SimpleNamespace(monotonic=lambda: next(now)))
    found = second_load(Client(output(1.0)), None, (output(1.0),))
    assert (found is not None) is warned
    said = "after each load, m answers its first request in 3.0 s, and the next in 0.20 s"
    assert found is None or (found.status, found.evidence) == ("warning", said)


def test_an_answer_that_always_changes_may_change_after_a_second_load():
    assert second_load(Client(output(2.0), output(3.0)), None, (output(1.0),)) is None


# The samples, the answers, and what is said of them; of the samples of the last row none is compared.
ONLY_ANSWERED = {
    "a wrong one among many": ([output(5.0), *[None] * 20], [output(9.0)] * 21, "failed", (0, 1, 1),
        "0 of 1 images right, 1 needed, 20 without expected outputs (0: OUT element 0 is 9 instead of 5)"),
    "a right one among many": ([None, output(9.0)], [output(9.0)] * 2, "ok", (1, 1, 1),
        "1 of 1 images right, 1 without expected outputs"),
    "an error": ([output(9.0), *[None] * 20], [output(9.0), "", *[output(9.0)] * 19], "failed", (1, 1, 1),
        ("1 of 1 images right, 20 without expected outputs;"
         " 1 without expected outputs got an error (1: no reason given)")),
    "an error alone": ([None], ["wrong"], "failed", None,
        "none of 1 images has expected outputs; 1 without expected outputs got an error (0: wrong)"),
    "nothing is compared": ([None, None], [output(9.0)] * 2, "skipped", None, "none of 2 images has expected outputs"),
}  # fmt: skip


@every_row("name", ONLY_ANSWERED)
def test_samples_without_expected_outputs_need_an_answer_and_count_as_none(name):
    expected, answers, status, counted, evidence = ONLY_ANSWERED[name]
    sent = samples(*expected, minimum_match=0.95, noun="images")
    check, count = check_samples(LoadedModel(Client(*answers), "m", CONFIG), sent)
    assert (check.id, check.status, check.evidence) == ("expected", status, evidence)
    assert (count and (count.right, count.expected, count.needed)) == counted

"""What the check of concurrent requests concludes from answers alone and together; tests/server has real models."""

import pytest

from envpack.server.kserve import InferMessage, RequestError
from envpack.server.tensors import ServedConfig, Tensor, TensorConfig
from envpack.verification import answers
from envpack.verification.checks import concurrency
from envpack.verification.samples import Sample, Samples


def config_with(**options):
    tensors = {
        "inputs": (TensorConfig("X", "INT32", (-1, 1)),),
        "outputs": (TensorConfig("Y", "INT32", (-1, 1)),),
    }
    usual = {"largest_batch": 8, "decoupled": False, "sequence": False, "instances": 1, "merges": True}
    return ServedConfig(**{**tensors, **usual, **options})


class Model:
    """A model in the place of a server: it answers batches of numbers, and counts as the server does."""

    timeout = 30.0

    def __init__(self, answer, largest_batch=8):
        self.answer = answer
        self.largest_batch = largest_batch
        self.sent = []
        self.asked = set()  # outputs
        self.inferences = self.executions = 0

    def infer_message(self, model, inputs, *, binary, parameters, outputs):
        self.sent.append((inputs[0].data, parameters))
        self.asked.update(outputs)
        first = inputs[0].data[0]
        return InferMessage("", {}, first if isinstance(first, bytes) else str(first).encode())

    def statistics(self, model):
        requests = {"success": {"count": self.inferences}}
        return {"model_stats": [{"inference_stats": requests, "execution_count": self.executions}]}

    def answers(self, messages):
        texts = [message.body.decode() for message in messages]
        numbers = [int(text) if text.isdigit() else text for text in texts]
        for start in range(0, len(numbers), self.largest_batch):
            batch = numbers[start : start + self.largest_batch]
            self.inferences, self.executions = self.inferences + len(batch), self.executions + 1
            for value in self.answer(batch):
                yield value if isinstance(value, RequestError) else (self.output(value),)

    def output(self, value):
        values = value if isinstance(value, tuple) else (value,)
        return Tensor("Y", "INT32", (1, len(values)), values)


@pytest.fixture
def check(monkeypatch):
    def together(client, messages, *, timeout):
        assert timeout == client.timeout
        return list(client.answers(messages))

    monkeypatch.setattr(answers, "infer_together", together)
    return lambda model, config=None, samples=None, **options: concurrency.check_together(
        answers.LoadedModel(model, "m", config or config_with()), samples, **options
    )


def test_right_answers_pass_and_the_batches_are_told(check):
    found = check(Model(lambda batch: [2 * number for number in batch]))
    assert (found.id, found.status) == ("concurrency", "ok")
    assert found.evidence == (
        "all answers of 96 requests that 32 clients sent at once are those that they get alone;"
        " batches of 8.0 requests formed"
    )


def test_some_clients_ask_for_one_output_alone_if_the_code_reads_which_are_wanted(check):
    whole, some = Model(lambda batch: batch), Model(lambda batch: batch)
    assert check(whole).ok
    assert check(some, outputs=("Y", "Z")).ok
    assert (whole.asked, some.asked) == (set(), {"Y", "Z"})


def test_without_a_batch_that_is_told(check):
    found = check(Model(lambda batch: batch, largest_batch=1), config_with(merges=False, instances=2))
    assert found.evidence.endswith("are those that they get alone; no batch formed")


def test_exchanged_answers_fail(check):
    found = check(Model(lambda batch: [2 * number for number in reversed(batch)]))
    assert not found.ok
    assert "of 32 requests that 32 clients sent at once have wrong answers" in found.evidence
    assert "of them the answer to another request; alone they are right" in found.evidence


def test_answers_that_no_request_has_alone_fail(check):
    found = check(Model(lambda batch: [sum(batch)] * len(batch)))
    assert not found.ok
    assert "Y element 0 is " in found.evidence


@pytest.mark.parametrize(
    ("others", "status", "evidence"),
    [
        (lambda own, _: own, "ok", "all answers of 96 requests"),
        (lambda own, longest: own + (0,) * (longest - len(own)), "warning", "Y 3 elements instead of 2"),
        (lambda own, longest: (0,) * (longest - len(own)) + own, "failed", "Y 3 elements instead of 2"),
        (lambda own, longest: own[: 4 - longest], "failed", "instead of"),
    ],
    ids=["as alone", "padded", "padded in front", "cut"],
)
def test_what_is_longer_than_alone_may_be_padded(check, others, status, evidence):
    def answer(batch):
        rows = [(number,) * (2 + number % 2) for number in batch]
        return [others(row, max(map(len, rows))) for row in rows]

    found = check(Model(answer))
    assert found.status == status
    assert evidence in found.evidence
    assert ("padding" in found.fix) == (status == "warning")


def test_an_answer_is_cut_in_every_dimension_but_that_of_its_items():
    found = ((Tensor("Y", "INT32", (2, 2, 3), tuple(range(12))),),)
    alone = ((Tensor("Y", "INT32", (2, 1, 2), (0, 1, 6, 7)),),)
    assert concurrency.shortened(found, alone, items=1) == alone
    assert concurrency.shortened(found, ((Tensor("Y", "INT32", (1, 2, 3), ()),),), items=1) == found
    assert concurrency.shortened(found, ((Tensor("Y", "INT32", (1, 2, 1), ()),),), items=0)[0][0].data == (0, 3)
    assert concurrency.shortened((*found, *found), alone, items=1) == (*found, *found)
    empty = ((Tensor("Y", "INT32", (1, 0, 2), ()),),)
    assert concurrency.shortened(empty, ((Tensor("Y", "INT32", (1, 0, 1), ()),),), items=1) == empty


def test_errors_fail_with_the_first_message(check):
    broken = RequestError("one response is missing\nat model.py", status=500)
    found = check(Model(lambda batch: [broken] * len(batch) if len(batch) > 1 else batch))
    assert not found.ok
    assert found.evidence == "32 of 32 requests that 32 clients sent at once failed: one response is missing"


def test_requests_without_an_answer_fail(check):
    late = RequestError("no response within 30 s", timed_out=True)
    found = check(Model(lambda batch: [late] * len(batch) if len(batch) > 1 else batch))
    assert found.evidence.endswith("failed: no response within 30 s")


def test_the_end_of_the_server_is_not_a_wrong_answer(check):
    with pytest.raises(RequestError, match="refused"):
        check(Model(lambda batch: [RequestError("refused")] * len(batch) if len(batch) > 1 else batch))


def test_a_request_that_is_refused_alone_must_not_disturb_its_neighbours(check):
    no = RequestError("three is not allowed", status=400)
    assert check(Model(lambda batch: [no if number == 3 else number for number in batch])).ok
    found = check(Model(lambda batch: [no] * len(batch) if 3 in batch else batch))
    assert found.evidence.endswith("requests that 32 clients sent at once failed: three is not allowed")


def test_a_model_that_refuses_every_request_is_not_asked_together(check):
    assert check(Model(lambda batch: [RequestError("no", status=400)] * len(batch))) is None


def test_answers_that_change_by_themselves_are_not_compared(check):
    count = iter(range(10**6))
    found = check(Model(lambda batch: [next(count) for _ in batch]))
    assert found.status == "warning"
    assert "not compared: equal requests, one after the other, have different answers: Y element 0" in found.evidence
    assert "random on purpose" in found.fix


def test_sequences_that_depend_on_those_before_them_are_not_compared(check):
    """Also of a model that answers one sequence at a time, to which nothing is sent at once."""
    count = iter(range(10**6))
    for at_once in (1, 4):
        config = config_with(sequence=True, sequences_at_once=at_once, merges=False)
        found = check(Model(lambda batch: [next(count) for _ in batch]), config)
        assert found.status == "warning"
        assert "not compared: equal sequences, one after the other, have different answers: " in found.evidence
        assert found.fix.startswith("begin every sequence anew")


def test_a_sequence_whose_id_was_used_before_is_another_one(check):
    class Kept(Model):
        """Adds up what it gets for an id, without an end."""

        def infer_message(self, model, inputs, *, parameters, **options):
            message = super().infer_message(model, inputs, parameters=parameters, **options)
            of_id = sum(data[0] for data, said in self.sent if said["sequence_id"] == parameters["sequence_id"])
            return InferMessage(message.path, message.headers, str(of_id).encode())

    config = config_with(sequence=True, sequences_at_once=4, merges=False)
    found = check(Kept(lambda batch: batch), config)
    assert found.status == "failed"
    assert found.evidence.startswith("a sequence whose id was used before has other answers than with a new id: ")


def test_a_model_that_refuses_a_sequence_is_not_fully_checked(check):
    """It has accepted a request that is a sequence by itself."""

    class Picky(Model):
        def answers(self, messages):
            later = not self.sent[-1][1]["sequence_start"]
            return [RequestError("KeyError: 7", status=500)] if later else super().answers(messages)

    found = check(Picky(lambda batch: batch), config_with(sequence=True, sequences_at_once=4, merges=False))
    assert (found.status, found.fix) == ("unchecked", "provide sequences as samples: m/envpack/smoke.json")
    assert found.evidence == "refuses a request with 1 in every input, in a sequence of 3: KeyError: 7"


def test_the_fix_names_requests_that_fill_a_batch_up(check):
    failing = Model(lambda batch: [RequestError("KeyError: 0", status=500)] * len(batch) if len(batch) > 1 else batch)
    sequences = {"sequence": True, "sequences_at_once": 4, "merges": False}
    for fills_up, named in ((True, True), (False, False)):
        found = check(failing, config_with(**sequences, fills_up=fills_up))
        assert (found.status, "correlation_id() is 0" in found.fix) == ("failed", named)


def test_a_policy_of_the_queue_may_refuse_requests(check):
    full = RequestError("Exceeds maximum queue size", status=503)
    model = Model(lambda batch: [full, *batch[1:]] if len(batch) > 1 else batch)
    assert check(model, config_with(refuses=True)).evidence.endswith(", 12 refused by the queue's policy")
    assert not check(model, config_with()).ok
    never = Model(lambda batch: [full] * len(batch) if len(batch) > 1 else batch)
    all_refused = check(never, config_with(refuses=True))
    assert all_refused.status == "skipped"
    assert all_refused.evidence.startswith("no answer to compare: the queue's policy refused ")


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("QueuePool limit of size 5 reached, connection timed out, timeout 30.00", 500),
        ("Exceeds maximum queue size", 500),
    ],
)
def test_an_error_of_the_model_is_no_refusal_by_the_queue(check, message, status):
    error = RequestError(message, status=status)
    model = Model(lambda batch: [error] * len(batch) if len(batch) > 1 else batch)
    assert check(model, config_with(refuses=True)).status == "failed"


def test_no_more_sequences_are_begun_than_the_model_answers_at_once(check):
    model = Model(lambda batch: batch)
    found = check(model, config_with(sequence=True, sequences_at_once=3, merges=False))
    assert "that 3 clients sent at once" in found.evidence
    identifiers = [parameters["sequence_id"] for _, parameters in model.sent]
    assert len(set(identifiers[:18])) == 4  # alone, each conversation is sent twice, and once more with its last id
    assert len(set(identifiers[-6:])) == 3
    places = [(True, False), (False, False), (False, True)]
    assert [(p["sequence_start"], p["sequence_end"]) for _, p in model.sent[:3]] == places


def test_samples_are_sent_instead_of_generated_requests(check):
    samples = Samples(tuple(Sample((Tensor("X", "INT32", (1, 1), (number,)),), None) for number in (40, 50)))
    model = Model(lambda batch: batch)
    assert check(model, samples=samples).ok
    assert {data for data, _ in model.sent} == {(40,), (50,)}


def test_requests_differ_in_their_number_of_items_if_the_model_accepts_them(check):
    model = Model(lambda batch: batch)
    assert check(model).ok
    assert {data for data, _ in model.sent} == {(1,), (2,), (3, 3), (4, 4), (5,), (6,), (7, 7), (8, 8)}
    alone = Model(lambda batch: batch)
    assert check(alone, config_with(merges=False, instances=2)).ok
    assert {data for data, _ in alone.sent} == {(number,) for number in range(1, 9)}


def test_a_request_in_a_form_that_the_model_refuses_is_sent_in_its_plain_form(check):
    no = RequestError("ValueError: one word", status=400)
    model = Model(lambda batch: [no if " " in str(text) else int(text) for text in batch])
    text = (TensorConfig("X", "BYTES", (-1, 1)),)
    assert check(model, config_with(inputs=text, merges=False, instances=2)).ok
    assert {data for data, _ in model.sent[-32:]} == {(str(number).encode(),) for number in range(1, 9)}


def test_an_error_that_no_input_would_spare_is_no_refusal(check):
    broken = RequestError("NameError: name 'lower' is not defined\n\nAt:\n  model.py(3): execute\n", status=500)
    model = Model(lambda batch: [broken if number == 3 else number for number in batch])
    with pytest.raises(RequestError, match="NameError") as caught:
        check(model)
    assert caught.value.sent == "with 3 in every input, for two items"


def test_a_model_that_is_slow_is_asked_by_few_clients_or_not_at_all(check, monkeypatch):
    clock = iter(range(0, 10**9, 3))
    monkeypatch.setattr(concurrency.time, "monotonic", lambda: next(clock))
    assert "that 3 clients sent at once" in check(Model(lambda batch: batch)).evidence
    model = Model(lambda batch: batch)
    model.timeout = 4.0
    assert check(model).evidence == "not sent at once: one request takes 3.0 s or is too large"
    assert len(model.sent) == 1


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, True),
        ({"merges": False}, False),
        ({"merges": False, "instances": 2}, True),
        ({"merges": False, "sequence": True, "sequences_at_once": 4}, True),
        ({"merges": False, "sequence": True, "sequences_at_once": 1}, True),
        ({"merges": False, "decoupled": True}, True),
    ],
)
def test_models_in_which_requests_of_several_clients_meet(options, asked):
    assert concurrency.is_asked_together(config_with(**options)) is asked

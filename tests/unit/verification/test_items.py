"""Several items in one request get the answers that they get alone."""

from dataclasses import replace

import pytest

from envpack.server.kserve import RequestError
from envpack.server.tensors import Tensor, read_served_config
from envpack.verification.answers import LoadedModel
from envpack.verification.checks.compared import check_items
from envpack.verification.requests import SmokeRequest
from tests.tables import every_row
from tests.unit.verification.responses import SERVED, output

BATCHES = read_served_config({**SERVED, "max_batch_size": 8})
ONE, TWO = (SmokeRequest("", (Tensor("IN", "FP32", (1, 2), (value, 0.0)),)) for value in (1.0, 5.0))


class Client:
    """A model that computes the rows of its output from those of its input, and counts its requests."""

    timeout = 30.0

    def __init__(self, compute):
        self.compute, self.sent = compute, 0

    def infer(self, model, inputs, *, binary, parameters):
        self.sent += 1
        rows = inputs[0].data[::2]
        found = self.compute(rows)
        width = len(found) // len(rows)
        return output(*found, shape=(len(rows), width))


def check(compute, config=BATCHES, first=ONE, second=TWO):
    model = LoadedModel(Client(compute), "m", config)
    return check_items(model, (first, second), [model.ask(each.inputs, {}) for each in (first, second)])


@every_row(
    ("compute", "status", "evidence"),
    [
        (lambda rows: [2 * row for row in rows], "", ""),
        (lambda rows: [1.0 for _ in rows], "", ""),
        (lambda rows: [rows[0]] * len(rows), "failed", "item 2 has another answer than alone: OUT element 0 is 1"),
        (lambda rows: list(reversed(rows)), "failed", "instead of 1, as another item"),
        (lambda rows: [row / sum(rows) if len(rows) > 1 else 9.0 for row in rows], "warning", "item 1 has another"),
        # Right for two items, and wrong for more.
        (lambda rows: [*rows[:4], *(0.0 for _ in rows[4:])], "failed", "sent with 8 items in one request: item 5 has"),
        # Answers of another shape than alone are not compared.
        (lambda rows: [float(len(rows))] * len(rows) ** 2, "", ""),
    ],
)
def test_each_item_has_the_answer_that_it_gets_alone(compute, status, evidence):
    found = check(compute)
    assert (found.status if found else "") == status
    assert not found or evidence in found.evidence
    assert not found or ("belong together" in found.fix) == (status == "warning")


def test_answers_that_change_by_themselves_are_not_compared():
    numbers = iter(range(1000))
    assert check(lambda rows: [float(next(numbers)) for _ in rows]) is None


@pytest.mark.parametrize(
    ("config", "second"),
    [
        (read_served_config(SERVED), TWO),
        (read_served_config({**SERVED, "max_batch_size": 1}), TWO),
        (read_served_config({**SERVED, "max_batch_size": 8, "sequence_batching": {}}), TWO),
        (read_served_config({**SERVED, "max_batch_size": 8, "model_transaction_policy": {"decoupled": True}}), TWO),
        (BATCHES, replace(TWO, inputs=(Tensor("IN", "FP32", (1, 3), (5.0,) * 3),))),
        (BATCHES, replace(TWO, inputs=(Tensor("IN", "FP32", (2, 2), (5.0,) * 4),))),
        (BATCHES, replace(TWO, inputs=(*TWO.inputs, Tensor("OPTIONAL", "FP32", (1, 2), (5.0, 0.0))))),
    ],
)
def test_models_and_inputs_that_make_no_such_request_are_left_alone(config, second):
    client = Client(lambda rows: [rows[0]] * len(rows))
    assert check_items(LoadedModel(client, "m", config), (ONE, second), ((), ())) is None
    assert client.sent == 0


def test_an_error_names_the_number_of_items():
    def answer(rows):
        if len(rows) > 1:
            raise RequestError("too many", status=500)
        return rows

    with pytest.raises(RequestError) as raised:
        check(answer)
    assert (raised.value.items, raised.value.sent) == (2, "with two different items in one request")

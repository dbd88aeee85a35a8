"""Responses of a loaded model: formats, declared outputs, expected outputs and their tolerance."""

import math
from dataclasses import replace

import pytest

from envpack.server.tensors import Tensor, read_served_config
from envpack.verification import answers, requests as requests_of_models
from envpack.verification.answers import LoadedModel
from envpack.verification.checks.inference import (
    check_samples,
    check_smoke,
    measure_latency,
    percentile,
)
from envpack.verification.judge import Judge, JudgeOptions
from envpack.verification.requests import SmokeRequest, and_full_batch
from envpack.verification.samples import Sample, Samples
from tests.tables import every_row
from tests.unit.verification.responses import CONFIG, NO_OUTPUT, REQUEST, SENT, SERVED, STREAMED, Client, output
from tests.unit.verification.words import STUB, Server


@pytest.fixture(autouse=True)
def streams(monkeypatch):
    """A stream has all responses of the client."""
    monkeypatch.setattr(answers, "stream", lambda client, *_: client.next_stream())


def judged(model, client, server):
    return Judge(server, client, JudgeOptions(5.0, requests=1)).judge(model)


def test_a_model_whose_responses_depend_on_the_format_is_not_fit_to_serve(model, server):
    verdict = judged(model, Client(output(1.0), as_json=output(1.4)), server)
    assert (verdict.ok, verdict.failure.kind) == (False, "formats-differ")
    assert verdict.failure.reason == "as JSON, OUT element 0 is 1.4 instead of 1"
    assert verdict.failure.fix


def test_a_model_with_equal_responses_is_fit_to_serve(model, server):
    verdict = judged(model, Client(output(1.0), as_json=output(1.0)), server)
    assert (verdict.ok, verdict.failure) == (True, None)
    assert {check.id for check in verdict.checks if check.status == "ok"} >= {"infer", "formats", "stability"}
    assert verdict.latency.requests == 1


def test_a_process_that_was_replaced_during_the_requests_is_a_fault(model):
    class Replaced(Server):
        """The stub has another process id once the model was sent a request."""

        def children(self, of=None):
            return (replace(STUB, pid=8 if client.sent else 7),)

    client = Client(output(1.0), as_json=output(1.0))
    verdict = judged(model, client, Replaced())
    assert (verdict.failure.kind, verdict.failure.reason) == ("stub-died", "processes [7] became [8]")


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        (output(1.0, name="X"), "the response contains X"),
        ((), "OUT is missing"),
        (output(1, datatype="INT32"), "the output OUT is INT32, not FP32"),
        (output(1.0, shape=(2,)), "the output OUT has 1 elements, and the shape [2]"),
    ],
)
def test_outputs_that_differ_from_the_configuration_are_a_fault(outputs, reason):
    ((check,), _) = check_smoke(LoadedModel(Client(outputs), "m", CONFIG), (REQUEST,))
    assert (check.status, reason in check.evidence) == ("failed", True)


@pytest.mark.parametrize(
    ("dims", "outputs", "found"),
    [
        ([2], output(1.0, 2.0), ""),
        ([-1], output(shape=(0,)), ""),
        ([2], output(1.0), "the shape [1], not [2]"),
        ([2], output(shape=(0,)), "the shape [0], not [2]"),
        ([-1], output(1.0, shape=(1, 1)), "the shape [1, 1], not [-1]"),
    ],
)
def test_a_shape_that_the_configuration_does_not_have_is_a_warning(dims, outputs, found):
    served = read_served_config({"output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": dims}]})
    (answered, *warned), _ = check_smoke(LoadedModel(Client(outputs), "m", served), (REQUEST,))
    assert answered.status == "ok"
    shapes = [check for check in warned if check.id != "values"]
    assert [(check.id, check.status) for check in shapes] == ([("shape", "warning")] if found else [])
    assert all(f"the output OUT has {found}: the server sends it" in check.evidence for check in shapes)


BATCHING = read_served_config({**SERVED, "max_batch_size": 2})
ONE, TWO = (SmokeRequest(f"with {n} items", (Tensor("IN", "FP32", (n, 2), (1.0,) * 2 * n),)) for n in (1, 2))


def rows(count):
    return output(*[1.0] * count, shape=(count, 1))


@pytest.mark.parametrize(
    ("requests", "answers", "fault"),
    [
        ([ONE, TWO], [rows(1), rows(2)], ""),
        ([ONE, TWO], [rows(1), rows(1)], "the output OUT has 1 item for 2 in the request"),
        ([ONE, TWO], [rows(1), rows(3)], "the output OUT has 3 items for 2 in the request"),
        ([ONE, TWO], [rows(5), rows(7)], ""),  # boxes that were found, for example
        ([TWO], [rows(1)], "the output OUT has 1 item for 2 in the request"),
    ],
)
def test_a_model_that_loses_items_of_a_batch_is_mentioned(requests, answers, fault):
    """Many models read only the first item, and are never sent another one."""
    (answered, *warned), _ = check_smoke(LoadedModel(Client(*answers), "m", BATCHING), tuple(requests))
    assert answered.status == "ok"
    assert [(check.id, check.status) for check in warned] == ([("items", "warning")] if fault else [])
    assert all(check.evidence.startswith(f"{fault}: clients that send several items") for check in warned)


def test_a_model_without_outputs_is_a_fault():
    assert check_smoke(LoadedModel(Client(()), "m", read_served_config({})), (REQUEST,))[0][0].evidence.endswith(
        "there are no outputs"
    )


@pytest.mark.parametrize(("has_expected", "status"), [(False, "unchecked"), (True, "ok")])
def test_a_sequence_of_one_may_be_answered_without_outputs(has_expected, status):
    sequence = read_served_config({**SERVED, "sequence_batching": {"max_sequence_idle_microseconds": 1}})
    loaded = LoadedModel(Client(()), "m", sequence)
    ((check,), _) = check_smoke(loaded, (REQUEST,), has_expected=has_expected)
    assert check.status == status
    assert "returned no output" in check.evidence if has_expected else "no declared output" in check.evidence


def test_every_generated_request_is_sent():
    second = replace(REQUEST, description="with two items in one request")
    client = Client(output(1.0), output(2.0, 3.0))
    ((check,), _) = check_smoke(LoadedModel(client, "m", CONFIG), (REQUEST, second))
    assert (check.status, len(client.sent)) == ("ok", 2)
    assert check.evidence == "returned OUT FP32[1]; sent with every input, with two items in one request"
    assert check_smoke(LoadedModel(Client(output(1.0), ()), "m", CONFIG), (REQUEST, second))[0][0].status == "failed"


def served_rows(count, **how):
    return read_served_config({**SERVED, "max_batch_size": count, **how})


def request_of(*data, items):
    return replace(REQUEST, inputs=(Tensor("IN", "FP32", (items, len(data) // items), data),))


@pytest.mark.parametrize("second", [(), ({"OUT": 1.0},)])
def test_streams_without_any_response_are_mentioned(second):
    (answered, *warned), _ = check_smoke(LoadedModel(Client((), second), "m", STREAMED), (REQUEST, REQUEST))
    assert answered.status == "ok"
    assert [(check.id, check.status) for check in warned] == ([] if second else [("responses", "warning")])


@pytest.mark.parametrize(
    ("config", "request_", "limits", "count"),
    [
        (served_rows(5), request_of(1.0, 2.0, items=1), {}, 5),
        (served_rows(5), request_of(1.0, 2.0, 3.0, 4.0, items=2), {}, 5),
        (served_rows(5), request_of(1.0, 2.0, items=1), {"_MOST_IN_A_BATCH": 8}, 4),
        (served_rows(5), request_of(1.0, 2.0, items=1), {"_FULL_BATCH_SECONDS": 0.0}, 0),  # it would take too long
        (served_rows(2), request_of(1.0, 2.0, items=2), {}, 0),  # they are two
        (served_rows(0), request_of(1.0, 2.0, items=1), {}, 0),
        (served_rows(5, sequence_batching={}), request_of(1.0, 2.0, items=1), {}, 0),
        (served_rows(5, model_transaction_policy={"decoupled": True}), request_of(1.0, 2.0, items=1), {}, 0),
        (served_rows(5), request_of(items=1), {}, 5),  # no boxes, for example
        (served_rows(5), replace(REQUEST, inputs=()), {}, 0),
    ],
)
def test_the_last_request_is_repeated_with_as_many_items_as_the_model_takes(
    monkeypatch, config, request_, limits, count
):
    for name, limit in limits.items():
        monkeypatch.setattr(requests_of_models, name, limit)
    first, *more = and_full_batch(config, [request_])
    assert first is request_
    assert [each.description for each in more] == ([f"with {count} items in one request"] if count else [])
    for tensor in (each.inputs[0] for each in more):
        assert (tensor.shape[0], tensor.size_fault) == (count, "")
        assert tensor.data[:2] == request_.inputs[0].data[:2]


@pytest.mark.parametrize(
    ("values", "warned"),
    [((math.nan,), True), ((math.inf,), True), ((-math.inf,), True), ((1.0,), False)],
)
def test_an_output_without_a_finite_number_is_a_warning(values, warned):
    checks, _ = check_smoke(LoadedModel(Client(output(*values)), "m", CONFIG), (REQUEST,))
    assert [check.status for check in checks] == (["ok", "warning"] if warned else ["ok"])
    if warned:
        assert checks[1].evidence == "no element of OUT is a finite number: all are NaN or infinite"


def test_an_output_that_is_always_empty_is_a_warning_unless_samples_expect_it():
    served = read_served_config({**SERVED, "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]})
    model = LoadedModel(Client(output(shape=(0,)), output(1.0)), "m", served)
    evidence = "OUT has no element in any response, so none of its values was seen"
    (_, *warned), _ = check_smoke(model, (REQUEST,))
    assert [(check.id, check.status, check.evidence) for check in warned] == [("values", "warning", evidence)]
    for requests, expected in (((REQUEST, REQUEST), False), ((REQUEST,), True)):
        model = LoadedModel(Client(output(shape=(0,)), output(1.0)), "m", served)
        assert [check.status for check in check_smoke(model, requests, has_expected=expected)[0]] == ["ok"]


@pytest.mark.parametrize(
    ("responses", "status", "evidence"),
    [
        (({"OUT": 1.0}, {"OUT": [1.0, 2.0]}), "ok", "streamed 2 responses; sent with every input"),
        (({"OUT": 0.0},), "ok", "streamed 1 response; sent with every input"),
        (
            ({"OUT": 1.0}, {"X": 1}),
            "failed",
            f"{SENT}the output OUT is missing: {NO_OUTPUT}",
        ),
    ],
)
def test_a_decoupled_models_responses(responses, status, evidence):
    ((check,), _) = check_smoke(LoadedModel(Client(responses), "m", STREAMED), (REQUEST,))
    assert (check.id, check.status, check.evidence) == ("infer", status, evidence)


# What is expected of a stream of the two responses 1 and 2, and the mismatch.
STREAMS = {
    "equal": ((output(1.0), output(2.0)), ""),
    "a subset": (((), output(2.0)), ""),
    "not given": (None, ""),
    "another value": ((output(1.0), output(3.0)), "response 1: OUT element 0 is 2 instead of 3"),
    "one more": ((output(1.0),), "2 responses instead of 1"),
    "nothing": ((), "2 responses instead of 0"),
}


@every_row("name", STREAMS)
def test_every_sample_of_a_decoupled_model_is_compared_with_its_own_stream(name):
    expected, mismatch = STREAMS[name]
    client = Client(({"OUT": 1.0}, {"OUT": 2}), ({"OUT": 7.0},))
    two = Samples((Sample(REQUEST.inputs, expected), Sample(REQUEST.inputs, (output(7.0),))))
    check, count = check_samples(LoadedModel(client, "m", STREAMED), two)
    right = 1 + (expected is not None and not mismatch)
    assert (check.ok, count.right, count.expected) == (not mismatch, right, 1 + (expected is not None))
    assert mismatch in check.evidence


@pytest.mark.parametrize(
    ("values", "part", "value"),
    [([3.0], 99, 3), ([2.0, 1.0], 50, 1.5), ([1.0, 2.0], 95, 1.95), ([3.0, 1.0, 2.0], 50, 2), ([0.0] * 50, 99, 0)],
)
def test_percentiles_lie_between_the_nearest_values(values, part, value):
    assert percentile(values, part) == pytest.approx(value)
    assert percentile(list(range(101)), part) == part


def test_as_many_requests_are_timed_as_asked_for():
    client = Client(output(1.0))
    latency, last = measure_latency(LoadedModel(client, "m", CONFIG), REQUEST, 3)
    assert last == (output(1.0),)
    assert client.sent == [("m", REQUEST.inputs, True, REQUEST.parameters)] * 3
    assert (latency.requests, len(client.sent)) == (3, 3)
    assert 0 < latency.p50 <= latency.p95
    assert measure_latency(LoadedModel(client, "m", CONFIG), REQUEST, 0) is None

"""Ensembles: in which order their steps run, what each step gets, and what comes back."""

from dataclasses import replace

import pytest

from envpack.local import NOTHING, ModelFailed, Response
from envpack.local.ensemble import LocalEnsemble
from envpack.local.model_config import complete_config
from envpack.repository import parse_config
from tests.unit.local.conftest import CONFIG, DECOUPLED, numbers, request, tensor

SUM = CONFIG.replace("OUT", "SUM")


def step(model, inputs, outputs, version=-1):
    def maps(kind, pairs):
        return " ".join(f'{kind} {{ key: "{p.split(":")[0]}" value: "{p.split(":")[1]}" }}' for p in pairs.split())

    place = f'model_name: "{model}" model_version: {version}'
    return f"{{ {place} {maps('input_map', inputs)} {maps('output_map', outputs)} }}"


def ensemble_config(*steps, tensors=CONFIG, batch=0):
    tensors = tensors.replace('backend: "python"', 'platform: "ensemble"')
    return f"max_batch_size: {batch}\n{tensors}ensemble_scheduling {{ step [ {', '.join(steps)} ] }}"


# Models without processes


class Models:
    """Answers the requests of steps, and notes them."""

    def __init__(self, **answers):
        self.asked, self.answers = [], answers

    def run(self, asked):
        self.asked.append(asked)
        found = self.answers[asked.model](asked)
        for number, response in enumerate(found):
            yield response, number == len(found) - 1

    def ensemble(self, *steps, configs=(), **options):
        config = parse_config(ensemble_config(*steps, **options), "config.pbtxt")
        known = {name: complete_config(parse_config(text, "c"), name) for name, text in dict(configs).items()}
        return LocalEnsemble(config, "e", self.run, known.get)


def answer(change=lambda n: n, name="OUT", shape=None):
    def answered(asked):
        (found,) = asked.inputs
        values = [change(n) for n in memoryview(bytes(found.content)).cast("i")]
        return [Response((tensor(name, *values, shape=shape or found.shape),))]

    return answered


def results(ensemble, asked):
    return [
        (found.error or (found is NOTHING and "nothing") or numbers(found), last)
        for found, last in ensemble.stream(asked)
    ]


def test_a_step_runs_when_its_inputs_are_there():
    models = Models(double=answer(lambda n: 2 * n), add=answer(lambda n: n + 1))
    ensemble = models.ensemble(step("add", "IN:MID", "OUT:OUT"), step("double", "IN:IN", "OUT:MID", version=3))
    assert results(ensemble, request("e", 5, id="x", timeout=9)) == [([11], True)]
    assert [(asked.model, asked.version, asked.id, asked.timeout) for asked in models.asked] == [
        ("double", 3, "x", 9),
        ("add", -1, "x", 9),
    ]
    assert [[entry.name for entry in asked.inputs] for asked in models.asked] == [["IN"], ["IN"]]
    assert all(asked.outputs == {"OUT"} for asked in models.asked)


def test_each_response_of_a_step_runs_the_later_steps():
    many = lambda asked: [Response((tensor("OUT", n),)) for n in (1, 2)] + [NOTHING]  # noqa: E731
    models = Models(many=many, double=answer(lambda n: 2 * n), none=lambda asked: [NOTHING])
    ensemble = models.ensemble(step("many", "IN:IN", "OUT:MID"), step("double", "IN:MID", "OUT:OUT"))
    assert results(ensemble, request("e", 5)) == [([2], False), ([4], True)]
    assert results(models.ensemble(step("none", "IN:IN", "OUT:OUT")), request("e", 5)) == [("nothing", True)]


def test_an_error_of_a_step_ends_the_ensemble():
    def fails(asked):
        raise ModelFailed("refused")

    error = lambda asked: [Response(error="boom", code=4)]  # noqa: E731
    for broken, says, code in ((error, "boom", 4), (fails, "refused", 3)):
        models = Models(broken=broken, double=answer())
        ensemble = models.ensemble(step("broken", "IN:IN", "OUT:MID"), step("double", "IN:MID", "OUT:OUT"))
        ((response, last),) = ensemble.stream(request("e", 5))
        assert (response.error, response.code, last) == (f"in ensemble 'e', {says}", code, True)
        assert [asked.model for asked in models.asked] == ["broken"]


TWO_OUTPUTS = CONFIG + 'output [ { name: "MID" data_type: TYPE_INT32 dims: [ -1 ] } ]\n'


def test_only_the_outputs_that_are_asked_for_are_made():
    models = Models(first=answer(), second=answer(lambda n: -n))
    steps = step("first", "IN:IN", "OUT:OUT"), step("second", "IN:IN", "OUT:MID")
    ensemble = models.ensemble(*steps, tensors=TWO_OUTPUTS)
    assert results(ensemble, request("e", 5, outputs=frozenset({"MID"}))) == [([-5], True)]
    assert [asked.model for asked in models.asked] == ["second"]
    ((response, _),) = ensemble.stream(request("e", 5))
    assert {output.name for output in response.outputs} == {"OUT", "MID"}


def test_an_output_that_a_step_does_not_write_is_absent():
    models = Models(
        first=lambda asked: [Response(())], second=lambda asked: [Response((tensor("OUT", len(asked.inputs)),))]
    )
    ensemble = models.ensemble(step("first", "IN:IN", "OUT:MID"), step("second", "IN:MID", "OUT:OUT"))
    assert results(ensemble, request("e", 5)) == [([0], True)]
    models = Models(first=lambda asked: [Response(())])
    ((response, _),) = models.ensemble(step("first", "IN:IN", "OUT:OUT")).stream(request("e", 5))
    assert (response.error, response.outputs) == (None, ())


def test_an_output_that_no_step_makes_is_an_error():
    ensemble = Models(first=answer()).ensemble(step("first", "IN:IN", "OUT:OUT"), tensors=TWO_OUTPUTS)
    for asked, shown in ((request("e", 1), "<id_unknown>"), (request("e", 1, id="7"), "7")):
        ((text, last),) = results(ensemble, asked)
        assert last
        assert text.startswith(
            f"in ensemble 'e', [request id: {shown}] unexpected deadlock, at least one output is not"
        )


def test_a_step_gets_a_batch_dimension_if_only_its_model_has_one():
    batched = CONFIG + "max_batch_size: 4\n"
    for configs, shapes in (({"m": batched}, (1, 2)), ({"m": CONFIG}, (2,)), ({}, (2,))):
        models = Models(m=answer())
        ensemble = models.ensemble(step("m", "IN:IN", "OUT:OUT"), configs=configs)
        ((response, _),) = ensemble.stream(request("e", 1, 2))
        assert models.asked[0].inputs[0].shape == shapes
        assert response.outputs[0].shape == (2,)
    models = Models(m=answer(shape=(2, 1)))
    ((response, _),) = models.ensemble(step("m", "IN:IN", "OUT:OUT"), configs={"m": batched}).stream(request("e", 1, 2))
    assert response.outputs[0].shape == (2, 1), "only a batch of one is taken away"


def test_an_ensemble_with_a_batch_passes_it_on():
    models = Models(m=answer())
    ensemble = models.ensemble(step("m", "IN:IN", "OUT:OUT"), configs={"m": CONFIG + "max_batch_size: 4\n"}, batch=2)
    asked = replace(request("e"), inputs=(tensor("IN", 1, 2, shape=(2, 1)),))
    ((response, _),) = ensemble.stream(asked)
    assert (models.asked[0].inputs[0].shape, response.outputs[0].shape) == ((2, 1), (2, 1))


def test_a_request_that_does_not_fit_the_ensemble_is_rejected():
    models = Models(m=answer())
    ensemble = models.ensemble(step("m", "IN:IN", "OUT:OUT"))
    with pytest.raises(ModelFailed, match="unexpected inference output 'NONE' for model 'e'"):
        ensemble.stream(request("e", 1, outputs=frozenset({"NONE"})))
    assert [ensemble.serves(version) for version in (-1, 1, 2, 0)] == [True, True, False, False]
    assert not ensemble.decoupled


# Loading


def test_an_ensemble_runs_the_models_of_the_repository(repository, server):
    repository.add(
        "first",
        "def execute(requests, stub):\n    return [out(r, lambda n: [3 * each for each in n]) for _, r in requests]\n",
    )
    repository.add("second")
    steps = step("first", "IN:IN", "OUT:MID"), step("second", "IN:MID", "OUT:OUT", version=1)
    repository.add("e", "", ensemble_config(*steps))
    assert numbers(server.infer(request("e", 5, 6))) == [15, 18]
    assert server.own_model("e") is server.model("e")


def test_an_ensemble_is_refused_as_by_a_server(repository, server):
    repository.add("m")
    repository.add("broken", "raise ValueError('wrong')", version="4")
    repository.add("other", config=CONFIG.replace("INT32", "FP32"))
    ensembles = {
        "missing": (("none", -1), "ensemble missing contains models that are not available or ambiguous: none"),
        "unloaded": (
            ("broken", -1),
            (
                "ensemble 'unloaded' depends on 'broken' which has no loaded version. Model 'broken' loading failed "
                "with error: version 4 is at UNAVAILABLE state: Internal: wrong;"
            ),
        ),
        "version": (("m", 9), "ensemble 'version' depends on 'm' whose required version 9 is not loaded."),
        "circle": (("circle", -1), "circular dependency between ensembles: circle -> ... -> circle -> circle"),
        "types": (
            ("other", -1),
            (
                "in ensemble types, ensemble tensor IN: inconsistent data type: TYPE_INT32 is inferred from model "
                "types while TYPE_FP32 is inferred from model other"
            ),
        ),
    }
    said = {}
    for name, ((model, version), _) in ensembles.items():
        repository.add(name, "", ensemble_config(step(model, "IN:IN", "OUT:OUT", version=version)))
        with pytest.raises(ModelFailed) as raised:
            server.model(name)
        said[name] = raised.value.text
    assert said == {name: text for name, (_, text) in ensembles.items()}


def test_an_ensemble_streams_what_its_decoupled_model_sends(repository, server):
    code = """
def execute(requests, stub):
    for last in (False, True):
        stub.send(requests[0][0], out(requests[0][1]), last=last)
    return [0]
"""
    repository.add("m", code, CONFIG + DECOUPLED)
    repository.add("e", "", ensemble_config(step("m", "IN:IN", "OUT:OUT")))
    assert [(numbers(found), last) for found, last in server.stream(request("e", 5))] == [([5], False), ([5], True)]

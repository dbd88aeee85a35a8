"""Models and ensembles that a server does not load, because of their configuration or of other models."""

from tests.local.faithful_models import JSON_OUT, PLAIN, Case

_IDLE = "pass"
_OUTPUT = PLAIN[PLAIN.index("output") :]


def entry(**changes):
    """A configuration with one input; changes replace its fields, None removes one."""
    fields = {"name": '"X"', "data_type": "TYPE_FP32", "dims": "[ 1 ]"} | changes
    text = " ".join(f"{name}: {value}" for name, value in fields.items() if value is not None)
    return f"input [ {{ {text} }} ]\n{_OUTPUT}"


REFUSED = {
    "without_dims": Case(_IDLE, entry(dims="[ ]")),
    "zero_dims": Case(_IDLE, entry(dims="[ 0 ]")),
    "without_name": Case(_IDLE, entry(name=None)),
    "without_type": Case(_IDLE, entry(data_type=None)),
    "scalar": Case(_IDLE, entry(reshape="{ shape: [ ] }")),
    "other_size": Case(_IDLE, entry(dims="[ 4 ]", reshape="{ shape: [ 3 ] }")),
    "output_without_dims": Case(_IDLE, PLAIN.replace(_OUTPUT, _OUTPUT.replace("dims: [ -1 ]", ""))),
    "cannot_start": Case("def initialize(self, args):\n    raise ValueError('größe')", JSON_OUT),
}


def step(model, inputs, outputs, version=-1):
    """A step of an ensemble."""
    maps = [f'input_map {{ key: "{own}" value: "{name}" }}' for own, name in inputs.items()]
    maps += [f'output_map {{ key: "{own}" value: "{name}" }}' for own, name in outputs.items()]
    return f'{{ model_name: "{model}" model_version: {version} {" ".join(maps)} }}'


def ensemble(*steps, dims=-1, batch=0):
    """An ensemble that makes OUT of IN."""
    return (
        f'platform: "ensemble" max_batch_size: {batch}\n'
        f'input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ {dims} ] }} ]\n'
        'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n"
    )


X, Y = {"X": "IN"}, {"Y": "OUT"}
REFUSED_ENSEMBLES = {
    "e_missing": ensemble(step("nobody", X, Y)),
    "e_broken": ensemble(step("cannot_start", X, Y)),
    "e_version": ensemble(step("default", X, Y, version=7)),
    "e_type": ensemble(step("int8", X, Y)),
    "e_output_type": ensemble(step("default", X, {"Y": "M"}), step("int8", {"X": "M"}, Y)),
    "e_shape": ensemble(step("more", X, Y), dims=2),
    "e_batch": ensemble(step("batched", X, Y), batch=8),
    "e_input": ensemble(step("default", {"Q": "IN"}, Y)),
    "e_output": ensemble(step("default", X, {"Q": "OUT"})),
    "e_unmapped": ensemble(step("optional", {"Z": "IN"}, Y)),
    "e_itself": ensemble(step("e_itself", {"IN": "IN"}, {"OUT": "OUT"})),
    "e_circle": ensemble(step("e_circle_back", {"IN": "IN"}, {"OUT": "OUT"})),
}
# Of a circle. The server refuses both halves at once, and gives its reason for the one that it is to load.
OTHER_HALF = {"e_circle_back": ensemble(step("e_circle", {"IN": "IN"}, {"OUT": "OUT"}))}
# These can be loaded.
SPARSE = {
    "e_nothing_in_the_middle": ensemble(step("only_undeclared", X, {"Y": "M"}), step("default", {"X": "M"}, Y)),
    "e_nothing_in_the_end": ensemble(step("only_undeclared", X, Y)),
    "e_other_batching": ensemble(step("reshaped", X, Y)),
    "e_other_batching_inside": ensemble(step("reshaped", X, {"Y": "M"}), step("default", {"X": "M"}, Y)),
}

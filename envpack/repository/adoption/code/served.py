"""The part of a model.py that is the same for all artifacts. Above it are `load` and `predict`, and the imports."""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.outputs = {output["name"]: output["data_type"] for output in config["output"]}
        self.has_rows = config["max_batch_size"] > 0
        self.model = load(Path(__file__).parent)

    def execute(self, requests):
        if self.has_rows and len(requests) > 1:
            try:
                return self.respond(requests)  # one call of the model, with the rows of all requests
            except Exception:
                pass  # one of them is wrong, or their inputs differ: each is answered alone
        return [self.respond_alone(request) for request in requests]

    def respond_alone(self, request):
        try:
            return self.respond([request])[0]
        except Exception as error:  # a model may raise anything, and only this request is to fail
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))

    def respond(self, requests):
        tables = [{tensor.name(): tensor.as_numpy() for tensor in request.inputs()} for request in requests]
        ends = np.cumsum([len(next(iter(table.values()))) for table in tables]) if self.has_rows else [1]
        names = sorted(set().union(*tables))
        inputs = {name: np.concatenate([table[name] for table in tables]) for name in names}
        answer = named(predict(self.model, inputs), list(self.outputs))
        outputs = {name: to_array(answer[name], datatype) for name, datatype in self.outputs.items()}
        if self.has_rows:
            if any(len(values) != ends[-1] for values in outputs.values()):
                raise ValueError(f"the model did not answer with {ends[-1]} rows: such a model needs max_batch_size: 0")
            outputs = {name: values.reshape(len(values), *values.shape[1:] or [1]) for name, values in outputs.items()}
        parts = {name: np.split(values, ends[:-1]) for name, values in outputs.items()}
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(name, part[number]) for name, part in parts.items()])
            for number in range(len(requests))
        ]


def named(answer, names):
    """The outputs by their names, whatever form the answer has."""
    if isinstance(answer, list) and answer and isinstance(answer[0], dict) and set(names) <= set(answer[0]):
        return {name: [row[name] for row in answer] for name in names}
    is_table = hasattr(answer, "columns")
    if (is_table or isinstance(answer, dict)) and set(names) <= set(answer):
        return {name: answer[name] for name in names}
    if len(names) == 1:
        return {names[0]: answer.to_numpy() if is_table else answer}
    return dict(zip(names, np.asarray(answer).T))


def to_array(values, datatype):
    """An output as an array of its type; it is an error if a number does not fit into that."""
    values = values if isinstance(values, (list, tuple)) or np.ndim(values) else [values]
    if datatype != "TYPE_STRING":
        array = np.asarray(values)
        array = np.array(list(array)) if array.dtype == object else array  # whose rows are lists
        casting = "unsafe" if array.dtype.kind in "biuf" else "same_kind"  # a signature may say boolean of 0 and 1
        wanted = array.astype(pb_utils.triton_string_to_numpy(datatype), casting=casting)
        is_cut = wanted != array if wanted.dtype.kind in "biu" else np.isfinite(wanted) != np.isfinite(array)
        if is_cut.any():
            raise OverflowError(f"the model answered {array[is_cut].flat[0]}, which does not fit into {datatype}")
        return wanted
    array = values if isinstance(values, np.ndarray) else np.empty(len(values), dtype=object)
    encoded = np.empty(array.size, dtype=object)
    encoded[:] = [to_bytes(value) for value in (array.ravel() if array is values else values)]
    return encoded.reshape(array.shape)


def is_missing(value):
    """Whether a value is pandas' or Python's word for none."""
    is_nan = isinstance(value, float) and np.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def to_bytes(value):
    if is_missing(value):
        return b""  # a tensor has no other way to lack a text
    if isinstance(value, (dict, list, tuple, np.ndarray)) or hasattr(value, "model_dump"):
        return json.dumps(value, default=plain).encode()
    if isinstance(value, bytes):
        return value
    return str(value.isoformat() if hasattr(value, "isoformat") else value).encode()


def plain(value):
    """What JSON has for a value of NumPy, pandas or pydantic."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    return value.tolist() if hasattr(value, "tolist") else str(value)

"""Models, each by the library that wrote it: the tensors, an example, and the answer to one.

An example has a list or an array for each input that is no parameter, by its name.
"""

import importlib.util
import inspect
import json
import sys
import typing
from pathlib import Path

import forms
import numpy as np

MOST_ROWS = 8
# Triton's types by NumPy's.
DATATYPES = {name: name.upper() for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")}
DATATYPES.update({"uint64": "UINT64", "float16": "FP16", "float32": "FP32", "float64": "FP64"})
# The forms of arrays with one dimension, and with any other, by the kind of their type; of all others, they are texts.
ARRAYS = dict(dict.fromkeys("biufS", ("numbers", "array")), U=("plain_texts", "plain_strings"))
JSON = ("STRING", "documents")
# The types of columns in a signature, each with the type and the form of its tensor; of all others, a row is JSON.
COLUMNS = {
    "boolean": ("BOOL", "numbers"),
    "integer": ("INT32", "numbers"),
    "long": ("INT64", "numbers"),
    "float": ("FP32", "numbers"),
    "double": ("FP64", "numbers"),
    "string": ("STRING", "texts"),
    "binary": ("STRING", "binaries"),
    "datetime": ("STRING", "times"),
}
# Hints of a function, each with the type and the form of its tensor.
HINTS = {
    str: ("STRING", "text"),
    bytes: ("STRING", "item"),
    int: ("INT64", "item"),
    float: ("FP64", "item"),
    bool: ("BOOL", "item"),
}
# Made-up integers, by their place in a row plus the row's number: rows differ in every element. The second is for
# models that know few categories; the last, whose rows are equal, for those that refuse the others.
INTEGERS = (lambda places: 1 + places % 100, lambda places: (1 + places) % 2, np.ones_like)


class Tensor:
    """An input or output; ``shape`` has -1 for what varies, and that of a parameter is the shape of one value."""

    def __init__(self, name, datatype, shape, form="array", is_optional=False, is_parameter=False):
        self.name, self.datatype, self.shape, self.form = str(name), datatype, list(shape), form
        self.is_optional, self.is_parameter = is_optional, is_parameter

    @classmethod
    def of_array(cls, name, dtype, shape, is_optional=False):
        """A tensor for an array; one with a single dimension is flattened, since Triton's have two then."""
        dtype = np.dtype(dtype)
        flat, other = ARRAYS.get(dtype.kind, ("texts", "strings"))
        return cls(name, DATATYPES.get(dtype.name, "STRING"), shape, flat if len(shape) == 1 else other, is_optional)

    def dims(self, batched):
        return (self.shape[1:] if batched and not self.is_parameter else self.shape) or [1]

    def report(self, batched):
        return dict({key: value for key, value in vars(self).items() if key != "shape"}, dims=self.dims(batched))


class MLflow:
    """An MLflow model: its signature, and its example."""

    may_refuse_example = False

    def __init__(self, facts):
        import mlflow.pyfunc

        self.facts, self.params, self.folder = facts, {}, str(Path(facts["folder"]) / "model")
        self.model = mlflow.pyfunc.load_model(self.folder)

    def declare(self):
        signature = self.model.metadata.signature.to_dict()
        specs = {key: json.loads(signature.get(key) or "[]") for key in ("inputs", "outputs", "params")}
        self.inputs = tensors_of(specs["inputs"], "inputs", "input")
        self.dtypes = {
            one.name: spec["tensor-spec"]["dtype"]
            for one, spec in zip(self.inputs, specs["inputs"])
            if spec["type"] == "tensor"
        }
        if self.facts["is_hinted"]:  # with a type of Python's own, which numbers of NumPy do not have
            for one in self.inputs:
                one.form = "items" if one.form == "numbers" else one.form
        is_known = all(spec["type"] != "any" for spec in specs["outputs"]) or not self.facts["has_example"]
        self.outputs = tensors_of(specs["outputs"], "predictions", "output") if is_known else []
        self.inputs += [parameter_of(spec) for spec in specs["params"]]
        names, is_tensor = [spec.get("name") for spec in specs["inputs"]], specs["inputs"][0].get("type") == "tensor"
        has_names = all(isinstance(name, str) for name in names)  # those of columns may be numbers
        call = ("arrays" if has_names else "array") if is_tensor else "table" if has_names else "columns"
        columns = [number if name is None else name for number, name in enumerate(names)]
        self.details = {"call": "list" if self.facts["is_hinted"] else call, "columns": columns}

    def example(self):
        import pandas as pd

        if not self.facts["has_example"]:
            return None
        metadata, call = self.model.metadata, self.details["call"]
        example = metadata.load_input_example(self.folder)
        example = example.toarray() if hasattr(example, "toarray") else example  # a sparse matrix of SciPy
        if hasattr(metadata, "load_input_example_params"):
            self.params = metadata.load_input_example_params(self.folder) or {}
        if call in ("table", "columns"):
            is_row = isinstance(example, dict) and all(np.ndim(value) == 0 for value in example.values())
            example = pd.DataFrame([example] if is_row else example)
        if isinstance(example, pd.DataFrame):
            example = {name: example[name].tolist() if call == "list" else example[name].array for name in example}
        names = [one.name for one in self.inputs if not one.is_parameter]
        example = example if isinstance(example, dict) else {names[0]: example}
        keys = names if set(names) & set(example) else list(example)
        example = {name: example[key] for name, key in zip(names, keys) if key in example}
        for name in self.dtypes.keys() & example.keys():  # the example may be a list, which MLflow takes for no tensor
            example[name] = np.asarray(example[name], self.dtypes[name])
        return example

    def predict(self, data):
        call = self.details["call"]
        if call in ("table", "columns"):
            import pandas as pd

            columns = dict(zip([one.name for one in self.inputs], self.details["columns"]))
            data = pd.DataFrame({columns[name]: values for name, values in data.items()})
        elif call in ("list", "array"):
            (data,) = data.values()
        return self.model.predict(data, params=self.params) if self.params else self.model.predict(data)


def tensors_of(specs, alone, numbered):
    """The tensors for one side of a signature."""
    found = []
    for number, spec in enumerate(specs if isinstance(specs, list) else [specs]):
        name = spec.get("name", alone if len(specs) == 1 else f"{numbered}_{number}")
        if spec["type"] == "tensor":
            inner = spec["tensor-spec"]
            found.append(Tensor.of_array(name, inner["dtype"], inner["shape"]))
            continue
        inner, shape, is_optional = spec, [], spec.get("required") is False or spec.get("optional") is True
        while inner["type"] == "array":
            inner, shape = inner["items"], [-1, *shape]
        datatype, form, shape = column(inner["type"], shape)
        found.append(Tensor(name, datatype, [-1, *shape], form, is_optional))
    return found


def parameter_of(spec):
    datatype, form, shape = column(spec["type"], spec.get("shape") or [])
    return Tensor(spec["name"], datatype, shape, form, is_optional=True, is_parameter=True)


def column(name, shape):
    """The type, the form and the shape of the values in a column, or of a parameter."""
    datatype, form = COLUMNS.get(name, JSON)
    if not shape:
        return datatype, form, []
    return (datatype, "lists", shape) if form == "numbers" else (*JSON, [])


class Estimator:
    """A scikit-learn model; its example is made up, from the number of its features."""

    outputs, params, may_refuse_example = [], {}, False

    def __init__(self, facts):
        import joblib

        self.model = joblib.load(str(Path(facts["folder"]) / "model.joblib"))

    def declare(self):
        if not hasattr(self.model, "predict"):
            raise TypeError(f"it is a {type(self.model).__name__}, which has no predict")
        has_pandas = importlib.util.find_spec("pandas") is not None  # without it, arrays do for most
        columns = list(map(str, getattr(self.model, "feature_names_in_", ()))) if has_pandas else []
        self.count = getattr(self.model, "n_features_in_", None)
        shape = [-1] if self.count is None else [-1, int(self.count)]
        self.inputs = [Tensor.of_array("inputs", "str" if self.count is None else "float64", shape)]
        self.details = {"columns": columns, "has_probabilities": hasattr(self.model, "predict_proba")}

    def example(self):
        if self.count is None:
            return {"inputs": ["a text", "another text"]}
        # Many models were trained on numbers of which none is negative, and refuse any that is.
        return {"inputs": np.random.default_rng(0).exponential(size=(MOST_ROWS, self.count))}

    def predict(self, data):
        rows = data["inputs"]
        if self.details["columns"]:
            import pandas as pd

            rows = pd.DataFrame(rows, columns=self.details["columns"])
        answer = {"predictions": self.model.predict(rows)}
        if self.details["has_probabilities"]:
            answer["probabilities"] = self.model.predict_proba(rows)
        return answer


class MadeUp:
    """A model whose example is made up of what its inputs declare."""

    params, details, may_refuse_example = {}, {}, True

    def example(self, integers):
        return {one.name: made_up(one, integers) for one in self.inputs if not one.is_optional}


class ONNX(MadeUp):
    """An ONNX model."""

    def __init__(self, facts):
        import onnxruntime

        path = str(Path(facts["folder"]) / "model.onnx")
        self.session = onnxruntime.InferenceSession(path, providers=onnxruntime.get_available_providers())

    def declare(self):
        self.inputs = [self.tensor(one) for one in self.session.get_inputs()]
        self.outputs = [self.tensor(one) for one in self.session.get_outputs()]

    @staticmethod
    def tensor(one):
        name = one.type[len("tensor(") : -1]
        dtype = {"float": "float32", "double": "float64", "string": "str"}.get(name, name)
        if not one.type.startswith("tensor(") or (dtype != "str" and dtype not in DATATYPES):
            raise TypeError(f"{one.name} is {one.type}, which is no tensor of a Python model")
        return Tensor.of_array(one.name, dtype, [dim if isinstance(dim, int) else -1 for dim in one.shape])

    def predict(self, data):
        return dict(zip([one.name for one in self.outputs], self.session.run(None, data)))


class Function(MadeUp):
    """A function; its hints are its inputs and outputs."""

    def __init__(self, facts):
        self.function = getattr(importlib.import_module(facts["module"]), facts["function"])

    def declare(self):
        hints = hints_of(self.function)
        parameters = inspect.signature(self.function).parameters.values()
        self.inputs = []
        for one in parameters:
            if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):  # it does without
                continue
            optional = one.default is not one.empty
            self.inputs.append(self.tensor(one.name, hints.get(one.name), "the parameter " + one.name, optional))
        if len(parameters) and not self.inputs:
            raise TypeError("it has only *args or **kwargs, perhaps of a decorator without functools.wraps")
        answer = hints.get("return")
        several = getattr(answer, "__origin__", None) in (tuple, typing.Tuple)  # the latter on Python 3.6
        parts = answer.__args__ if several else [answer]
        names = [f"result_{number}" for number in range(len(parts))] if several else ["result"]
        self.outputs = [self.tensor(name, part, "the return value") for name, part in zip(names, parts)]

    @staticmethod
    def tensor(name, hint, what, is_optional=False):
        inner = [part for part in getattr(hint, "__args__", ()) if part is not type(None)]
        if getattr(hint, "__origin__", None) is typing.Union or type(hint).__name__ == "UnionType":
            hint = inner[0] if len(inner) == 1 else hint
        if hint in HINTS:
            datatype, form = HINTS[hint]
            return Tensor(name, datatype, [1], form, is_optional)
        if getattr(hint, "__origin__", None) in (list, typing.List) and inner[0] in HINTS:
            return Tensor(name, HINTS[inner[0]][0], [-1], "words" if inner[0] is str else "items", is_optional)
        if getattr(hint, "__module__", "").startswith("PIL."):
            return Tensor(name, "STRING", [1], "picture", is_optional)
        notes = getattr(hint, "__metadata__", ())
        shapes = [note for note in notes if isinstance(note, (tuple, list))]
        dtypes = [note for note in notes if not isinstance(note, (tuple, list))]
        array = hint.__args__[0] if notes else None
        alias = getattr(array, "__origin__", None)
        if alias is np.ndarray:  # numpy.typing.NDArray
            dtypes, array = [array.__args__[1].__args__[0], *dtypes], np.ndarray
        elif getattr(getattr(alias, "__value__", None), "__origin__", None) is np.ndarray:  # of NumPy 2.5 and later
            dtypes, array = [*array.__args__, *dtypes], np.ndarray
        if array is not np.ndarray or not shapes or not dtypes:
            raise TypeError(f"{what} has the hint {hint}, which is no tensor" if hint else f"{what} has no hint")
        shape = [-1 if dim is None else int(dim) for dim in shapes[0]]
        dtype = np.dtype(dtypes[0])
        if dtype.name not in DATATYPES and dtype.kind not in "SUO":
            raise TypeError(f"{what} is an array of {dtype.name}, a type that Triton's tensors do not have")
        return Tensor.of_array(name, "S" if dtype.kind == "O" else dtype, shape, is_optional)  # both have bytes

    def predict(self, data):
        answer = self.function(**data)
        parts = zip(self.outputs, answer if len(self.outputs) > 1 else [answer])
        return {one.name: forms.png(part) if one.form == "picture" else part for one, part in parts}


def hints_of(function):
    if sys.version_info >= (3, 9):
        return typing.get_type_hints(function, include_extras=True)
    try:
        from typing_extensions import get_type_hints
    except ImportError:  # then nothing is annotated by it
        return typing.get_type_hints(function)
    return get_type_hints(function, include_extras=True)


def made_up(one, integers):
    """A value for an input of which only type, shape and form are known."""
    if one.form == "picture":
        from PIL import Image

        return Image.new("RGB", (8, 8), "red")
    shape = [2 if dim < 0 and not axis else abs(dim) for axis, dim in enumerate(one.shape)]
    numbers = np.asarray(integers(np.indices(shape, dtype=int).sum(axis=0)))
    if one.datatype == "STRING":
        texts = [b"text" if integers is INTEGERS[-1] else b"text %d" % number for number in numbers.flat]
        tensor = np.array(texts, dtype=object).reshape(shape)
    elif one.datatype.startswith("FP"):
        tensor = in_type(np.random.default_rng(0).normal(size=shape), one)
    else:
        tensor = in_type(numbers % 2 if one.datatype == "BOOL" else numbers, one)
    return getattr(forms, one.form)(tensor)


def in_type(array, one):
    return array.astype({datatype: name for name, datatype in DATATYPES.items()}[one.datatype])

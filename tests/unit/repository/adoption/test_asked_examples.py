"""What is compared if an example has one row, with a module in place of MLflow: each form of an example."""

import sys
from pathlib import Path

import pytest

from envpack.repository.adoption.answers import ask
from envpack.repository.adoption.artifact import Artifact
from tests.tables import every_row

TENSOR = '{{"name": "x", "type": "tensor", "tensor-spec": {{"dtype": "{0}", "shape": [-1, 2]}}}}'
MLFLOW = """
import json

import numpy as np


class Model:
    metadata = property(lambda self: self)
    signature = property(lambda self: self)

    def to_dict(self):
        return {{"inputs": json.dumps([{inputs}]), "outputs": json.dumps([{outputs}])}}

    def load_input_example(self, folder):
        return {example}

    def predict(self, data):
        {body}


def load_model(folder):
    return Model()
"""


@pytest.fixture
def answers(tmp_path):
    """The answers of a model by its inputs, its example and the body of its predict()."""
    for name in ("mlflow", "pandas"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("class DataFrame: pass\n")

    def asked(inputs, example, body, outputs='{"type": "double", "name": "y"}'):
        module = MLFLOW.format(inputs=inputs, example=example, body=body, outputs=outputs)
        (tmp_path / "mlflow/pyfunc.py").write_text(module)
        details = {"has_example": True, "is_hinted": example.startswith("[")}
        made = Artifact(kind="mlflow", title="", source=tmp_path, files={}, requirements={}, details=details)
        return ask(made, tmp_path, Path(sys.executable), 60)

    return asked


TEXT, OBJECT = '{"name": "x", "type": "string"}', '{"name": "x", "type": "object"}'
ARRAY = TENSOR.format("float32")
TEXTS = TENSOR.format("str")
BOTH = ARRAY + ', {"name": "t", "type": "tensor", "tensor-spec": {"dtype": "bytes", "shape": [-1]}}'
WORD = "{'x': np.array([[1, 2]], np.float32), 't': np.array([b'a'], object)}"
FLOATS = "{'x': np.array([[1, 2]], np.float32)}"
OBJECTS = "[{'a': [1, 2.5], 'b': True, 'c': 'word', 'd': None}]"


@every_row(
    ("inputs", "example", "body", "is_batched", "is_independent"),
    [
        (ARRAY, FLOATS, "return data['x'].sum(axis=1)", True, True),
        (ARRAY, FLOATS, "return (data['x'] / data['x'].max(axis=0)).sum(axis=1)", False, False),
        (ARRAY, FLOATS, "assert (data['x'] == [1, 2]).all(); return data['x'].sum(axis=1)", True, False),
        (ARRAY, "{'x': np.array([[1, 2]] * 3, np.float32)}", "return np.sort(data['x'][:, 0])", False, False),
        (TEXTS, "{'x': np.array([['a', 'b']], object)}", "return [len(row[0]) for row in data['x']]", True, True),
        (TEXT, "['a']", "return [float(len(one)) for one in data]", True, True),
        (TEXT, "['a']", "return [{'a': 1.0}[one] for one in data]", True, False),
        # The number is made up alone if the model refuses another text.
        (BOTH, WORD, "return [{b'a': row.sum()}[word] for row, word in zip(data['x'], data['t'])]", True, True),
        (BOTH, WORD, "return [{b'a': data['x'][0].sum()}[word] for word in data['t']]", False, False),
        # A made-up text is no JSON document, so no row differs from that of the example.
        (OBJECT, OBJECTS, "return [one['a'][0] + one['b'] + len(one['c']) for one in data]", True, False),
    ],
)
def test_one_row_is_compared_with_one_that_is_made_up(answers, inputs, example, body, is_batched, is_independent):
    found = answers(inputs, example, body)
    assert (found.is_batched, found.rows_are_independent) == (is_batched, is_independent)
    notes = [] if is_independent else ["it is unknown" if is_batched else "the answer to a row depends"]
    assert [note[: len(start)] for note, start in zip(found.notes, notes, strict=True)] == notes
    assert len(found.data) == (example.count("* 3") * 2 + 1 if is_batched else 1)


def test_a_hint_gets_numbers_of_python(answers):
    found = answers('{"type": "long"}', "[1, 2]", "return [float(one) for one in data if type(one) is int]")
    assert ([one.form for one in found.inputs], found.is_batched) == (["items"], True)


@pytest.mark.parametrize("example", ["{'x': [[1, 2], [3, 4]]}", "((1, 2), (3, 4))"])
def test_a_tensor_gets_an_array_of_an_example_without_one(answers, example):
    found = answers(ARRAY, example, "assert data['x'].dtype == 'float32'; return data['x'].sum(axis=1)")
    assert [one["y"] for one in found.validation_data] == [[3.0], [7.0]]


NUMBERS = '{"type": "array", "items": {"type": "long"}, "name": "y"}'
WORDS = NUMBERS.replace("long", "string")
THING = '{"type": "object", "name": "y"}'


@every_row(
    ("outputs", "body", "answer"),
    [
        (WORDS, "return [one.split() for one in data]", '["a", "b"]'),
        (WORDS, "return [np.array(one.split()) for one in data]", '["a", "b"]'),
        (NUMBERS, "return [[len(word) for word in one.split()] for one in data]", "[1, 1]"),
        (THING, "return [type('T', (), {'model_dump': lambda self: {'n': 1}})() for one in data]", '{"n": 1}'),
        (THING, "return [{'n': np.float32(1.5), 'p': __import__('pathlib').Path('a')} for _ in data]", None),
    ],
)
def test_an_answer_that_is_no_tensor_is_json(answers, outputs, body, answer):
    asked = answers(TEXT, "['a b', 'c']", body, outputs)
    (output,) = asked.outputs
    assert (output.datatype, output.dims, asked.is_batched) == ("STRING", [1], True)
    assert asked.validation_data[0]["y"] == [answer or '{"n": 1.5, "p": "a"}']


def test_the_samples_of_a_table_have_the_shape_of_its_outputs(answers):
    """An answer with fewer dimensions than the signature says, of a model whose rows depend on each other."""
    asked = answers(ARRAY, FLOATS.replace("[1, 2]", "[1, 2], [3, 5]"), "return data['x'].mean(axis=0)", NUMBERS)
    (output,) = asked.outputs
    assert (output.dims, asked.validation_data) == ([-1], [{"y": [2.0, 3.5]}])


def test_a_model_whose_example_cannot_be_read_is_served_without_samples(answers):
    """As one that MLflow 1 wrote for an array."""
    asked = answers(ARRAY, "json.loads('{')", "return data['x'].sum(axis=1)")
    assert (asked.is_batched, asked.data, len(asked.notes)) == (True, [], 1)
    assert asked.notes[0].startswith("its example cannot be read, so verify compares no answers; add samples: JSON")


def test_what_a_model_writes_where_it_runs_does_not_stay_in_its_folder(answers, tmp_path):
    """MLflow 2 makes a folder mlruns."""
    answers(ARRAY, FLOATS, "import os; os.makedirs('mlruns', exist_ok=True); return data['x'].sum(axis=1)")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["mlflow", "pandas"]


def test_a_sparse_example_is_sent_as_an_array(answers):
    """SciPy's matrices have no length."""
    example = "type('Sparse', (), {'toarray': lambda self: np.array([[1, 0], [0, 2]], np.float32)})()"
    asked = answers(ARRAY, example, "return data['x'].sum(axis=1)")
    assert asked.data == [{"x": [1.0, 0.0]}, {"x": [0.0, 2.0]}]

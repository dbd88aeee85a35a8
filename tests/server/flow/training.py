"""Trains small models in their own environment, logs them by MLflow, and writes what each answers to random inputs.

    python training.py FOLDER REQUIREMENT...

Each model is a folder or a file of FOLDER; NAME.json beside it has samples for `envpack verify`, made without envpack.
"""

import json
import sys
import warnings
from pathlib import Path

import joblib
import mlflow
import numpy as np
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

FOLDER, REQUIREMENTS = Path(sys.argv[1]), sys.argv[2:]
RANDOM = np.random.default_rng(7)
NUMBERS = pd.DataFrame(RANDOM.normal(size=(40, 3)), columns=["width (cm)", "height", "größe"])
SUM = NUMBERS.sum(axis=1).to_numpy()
CLASSES = (SUM > 0).astype(np.int64)


def log(name, flavor, model, example, answer, **more):
    """Log a model; the answer is one to the example, by which MLflow infers the signature."""
    signature = more.pop("signature", None) or infer_signature(example, answer)
    more.update(signature=signature, input_example=more.pop("input_example", example), pip_requirements=REQUIREMENTS)
    if flavor is mlflow.pyfunc:
        flavor.save_model(str(FOLDER / name), python_model=model, **more)
    else:
        flavor.save_model(model, str(FOLDER / name), **more)


def write_samples(name, data, answers):
    content = {"data": data, "validation_data": answers, "envpack": {"rtol": 1e-4, "atol": 1e-6}}
    (FOLDER / f"{name}.json").write_text(json.dumps(content))


def write_columns(name, table, outputs=("predictions",)):
    """Samples of a model with a table, one for each row: the answers are those of MLflow to the whole table."""
    answer = mlflow.pyfunc.load_model(str(FOLDER / name)).predict(table)
    rows = [{column: [row[column]] for column in table.columns} for row in table.to_dict("records")]
    columns = answer if isinstance(answer, pd.DataFrame) else pd.DataFrame({outputs[0]: np.asarray(answer)})
    answers = [{column: [row[column]] for column in columns} for row in columns.to_dict("records")]
    write_samples(name, rows, answers)


def new_numbers():
    return pd.DataFrame(RANDOM.normal(size=(5, 3)), columns=NUMBERS.columns)


class Shout(mlflow.pyfunc.PythonModel):
    """Texts, two outputs, an optional column, parameters, and code beside the model."""

    def predict(self, context, model_input, params=None):
        from shouting import shout

        marks = (params or {}).get("marks", 1)
        end = model_input["end"] if "end" in model_input else [""] * len(model_input)
        texts = [shout(text, marks) + last for text, last in zip(model_input["text"], end)]
        return pd.DataFrame({"shouted": texts, "length": [len(text) for text in texts]})


class EveryKind(mlflow.pyfunc.PythonModel):
    """Columns of every type: each is an output, changed a little."""

    def predict(self, context, model_input, params=None):
        found = model_input
        return pd.DataFrame(
            {
                "flag": ~found["flag"],
                "small": found["small"] + np.int32(1),
                "large": found["large"] + 1,
                "single": found["single"] * np.float32(2),
                "moment": found["moment"] + pd.Timedelta(days=1),
                "bytes": [bytes(reversed(one)) for one in found["content"]],
                "total": [float(np.sum(one)) for one in found["numbers"]],
                "name": [one["name"] for one in found["person"]],
            }
        )


class Arrays(mlflow.pyfunc.PythonModel):
    """Arrays by names; the answer to a row depends on the others."""

    def predict(self, context, model_input, params=None):
        line = model_input["line"]
        return {"sums": model_input["grid"].sum(axis=(1, 2)), "centred": line - line.mean(axis=0)}


class Words(mlflow.pyfunc.PythonModel):
    """Answers whose rows have different lengths."""

    def predict(self, context, model_input, params=None):
        words = [text.split() for text in model_input["text"]]
        return pd.DataFrame({"words": words, "lengths": [[len(word) for word in row] for row in words]})


CODE = """
import mlflow

class Loud(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [text.upper() for text in model_input["text"]]

mlflow.models.set_model(Loud())
"""


class Anything(mlflow.pyfunc.PythonModel):
    """A signature without types, as MLflow writes for pipelines of transformers."""

    def predict(self, context, model_input, params=None):
        texts = model_input.iloc[:, 0]
        return pd.DataFrame({"label": [text[:2] for text in texts], "score": [len(text) / 10 for text in texts]})


def train_flavors():
    import lightgbm
    import mlflow.lightgbm
    import mlflow.sklearn
    import mlflow.statsmodels
    import mlflow.xgboost
    import statsmodels.api
    import xgboost

    mixed = pd.DataFrame({"city": ["Rom", "Bonn"] * 20, "age": np.arange(40), "vip": [True, False, False, True] * 10})
    categories = ColumnTransformer([("c", OneHotEncoder(handle_unknown="ignore"), ["city"])], remainder="passthrough")
    pipeline = make_pipeline(categories, LogisticRegression()).fit(mixed, np.where(CLASSES, "yes", "no"))
    log("sklearn", mlflow.sklearn, pipeline, mixed[:4], pipeline.predict(mixed[:4]))
    write_columns("sklearn", mixed.sample(5, random_state=1))

    booster = xgboost.train({"max_depth": 3}, xgboost.DMatrix(NUMBERS, SUM), num_boost_round=5)
    log("xgboost", mlflow.xgboost, booster, NUMBERS[:4], booster.predict(xgboost.DMatrix(NUMBERS[:4])))
    write_columns("xgboost", new_numbers())

    trees = lightgbm.LGBMRegressor(n_estimators=5, min_child_samples=2, verbose=-1).fit(NUMBERS.to_numpy(), SUM)
    array = NUMBERS.to_numpy()
    log("lightgbm", mlflow.lightgbm, trees, array[:1], trees.predict(array[:1]))
    new = RANDOM.normal(size=(5, 3))
    answer = mlflow.pyfunc.load_model(str(FOLDER / "lightgbm")).predict(new)
    write_samples("lightgbm", [{"inputs": row} for row in new.tolist()], [{"predictions": [one]} for one in answer])

    years = NUMBERS.set_axis([2023, 2024, 2025], axis=1)  # names of columns that are no text
    fitted = statsmodels.api.OLS(SUM, years).fit()
    log("statsmodels", mlflow.statsmodels, fitted, years[:4], fitted.predict(years[:4]).to_numpy())
    write_columns("statsmodels", new_numbers().set_axis(years.columns, axis=1))


def train_shout():
    import mlflow.pyfunc

    (FOLDER / "shouting").mkdir()
    (FOLDER / "shouting/__init__.py").write_text("def shout(text, marks):\n    return text.upper() + '!' * marks\n")
    sys.path.insert(0, str(FOLDER))
    columns = Schema([ColSpec("string", "text"), ColSpec("string", "end", required=False)])
    outputs = Schema([ColSpec("string", "shouted"), ColSpec("long", "length")])
    params = ParamSchema([ParamSpec("marks", "long", 1)])
    table = pd.DataFrame({"text": ["grüße", "hello"]})
    shout = {"signature": ModelSignature(columns, outputs, params), "code_paths": [str(FOLDER / "shouting")]}
    log("shout", mlflow.pyfunc, Shout(), table, None, input_example=(table, {"marks": 2}), **shout)
    model = mlflow.pyfunc.load_model(str(FOLDER / "shout"))
    plain, full = pd.DataFrame({"text": ["a"]}), pd.DataFrame({"text": ["a"], "end": ["z"]})
    asked = [(plain, None), (full, None), (full, {"marks": 3})]
    answers = [model.predict(table, params=marks).to_dict("list") for table, marks in asked]
    data = [{**table.to_dict("list"), **({"marks": [marks["marks"]]} if marks else {})} for table, marks in asked]
    write_samples("shout", data, answers)


def register(name):
    """Give the registry in the variable MLFLOW_TRACKING_URI a version of a model."""
    registry = mlflow.MlflowClient()
    registry.create_registered_model(name)
    registry.create_model_version(name, source=(FOLDER / name).as_uri())


def log_to_run(name):
    """Give a run of the tracking store in the variable MLFLOW_TRACKING_URI a model; its id is in the file `run`."""
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(FOLDER / name), name)
    (FOLDER / "run").write_text(run.info.run_id)


def train_signatures():
    import mlflow.pyfunc

    every = pd.DataFrame(
        {
            "flag": [True, False],
            "small": np.array([1, 2], dtype=np.int32),
            "large": [3, 4],
            "single": np.array([0.5, 1.5], dtype=np.float32),
            "moment": [pd.Timestamp("2024-02-28T12:00:00"), pd.Timestamp("1999-12-31T00:00:07")],
            "content": [b"\xff\x00a", b"bc"],
            "numbers": [[1.0, 2.0], [3.0, 4.5]],
            "person": [{"name": "Ada", "age": 36}, {"name": "Bo", "age": 7}],
        }
    )
    log("every_kind", mlflow.pyfunc, EveryKind(), every, EveryKind().predict(None, every))
    sample = {"flag": [True], "small": [7], "large": [8], "single": [0.25], "moment": ["2024-02-28T00:00:00"]}
    sample |= {"content": ["abc"], "numbers": [1.0, 2.0, 3.0], "person": ['{"name": "Cy", "age": 1}']}
    answer = {"flag": [False], "small": [8], "large": [9], "single": [0.5], "moment": ["2024-02-29T00:00:00"]}
    write_samples("every_kind", [sample], [{**answer, "bytes": ["cba"], "total": [6.0], "name": ["Cy"]}])

    arrays = {"grid": RANDOM.normal(size=(3, 2, 2)).astype(np.float32), "line": np.arange(6.0).reshape(3, 2)}
    log("arrays", mlflow.pyfunc, Arrays(), arrays, Arrays().predict(None, arrays))
    grid = {"content": [1, 2, 3, 4, 5, 6, 7, 8], "shape": [2, 2, 2]}
    line = {"content": [1, 2, 3, 6], "shape": [2, 2]}
    centred = {"content": [-1, -2, 1, 2], "shape": [2, 2]}
    write_samples("arrays", [{"grid": grid, "line": line}], [{"sums": [10, 26], "centred": centred}])

    texts = pd.DataFrame({"text": ["a bc", "d"]})
    log("words", mlflow.pyfunc, Words(), texts, Words().predict(None, texts))
    write_samples("words", [{"text": ["xy z"]}], [{"words": ['["xy", "z"]'], "lengths": ["[2, 1]"]}])
    (FOLDER / "loud.py").write_text(CODE)
    log("loud", mlflow.pyfunc, str(FOLDER / "loud.py"), texts, ["A BC", "D"])
    (FOLDER / "loud.py").unlink()
    write_samples("loud", [{"text": ["é"]}], [{"predictions": ["É"]}])

    from mlflow.types.schema import AnyType

    anything = ModelSignature(Schema([ColSpec(AnyType())]), Schema([ColSpec(AnyType())]))
    log("anything", mlflow.pyfunc, Anything(), ["a text", "other"], None, signature=anything)
    write_samples("anything", [{"inputs": ['"word"']}], [{"label": ["wo"], "score": [0.4]}])


def train_files():
    estimator = LogisticRegression().fit(NUMBERS, CLASSES)
    joblib.dump(estimator, FOLDER / "classifier.joblib", compress=3)
    new = RANDOM.normal(size=(3, 3))
    table = pd.DataFrame(new, columns=NUMBERS.columns)
    answers = [
        {"predictions": [int(one)], "probabilities": row.tolist()}
        for one, row in zip(estimator.predict(table), estimator.predict_proba(table))
    ]
    write_samples("classifier", [{"inputs": row} for row in new.tolist()], answers)

    import onnx
    from onnx import helper

    regression = LinearRegression().fit(NUMBERS.to_numpy(), SUM)
    weights = helper.make_tensor("w", onnx.TensorProto.FLOAT, [3, 1], regression.coef_.astype(np.float32))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows", 1])],
        [weights],
    )
    opset = helper.make_opsetid("", 13)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), FOLDER / "linear.onnx")
    products = new @ regression.coef_
    write_samples("linear", [{"x": row} for row in new.tolist()], [{"y": [float(one)]} for one in products])
    (FOLDER / "requirements.txt").write_text("\n".join(REQUIREMENTS))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    train_flavors()
    if sys.version_info >= (3, 12):
        train_signatures()
        train_files()
    else:
        train_shout()
        register("shout")
        log_to_run("statsmodels")

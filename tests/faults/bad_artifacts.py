"""Trained artifacts that cannot be served, and what `envpack init --from` must say of them."""

from __future__ import annotations

import gzip

from tests.faults.bad_input import BadInput, usage

_MLMODEL = (
    "flavors:\n  python_function:\n    loader_module: mlflow.sklearn\n    model_path: model.pkl\n"
    "    python_version: 3.10.13\n"
)
_SIGNATURE = 'signature:\n  inputs: \'[{"type": "double", "name": "x"}]\'\n  outputs: \'[{"type": "double"}]\'\n'
_ARTIFACT: dict[str, str | bytes] = {
    "a/MLmodel": _MLMODEL + _SIGNATURE,
    "a/model.pkl": b"\x80\x04N.",
    "a/requirements.txt": "numpy\n",
}


def _artifact(
    name: str, files: dict[str, str | bytes], *says: str, code: int = 3, kind: str = "bad-artifact", words: str = "a"
) -> BadInput:
    return BadInput(
        f"artifact: {name}", f"init --json REPOSITORY/new --from REPOSITORY/{words}", code, kind, says, files
    )


ARTIFACTS = (
    _artifact("nothing there", _ARTIFACT, "/none: ", "no such file", "models:/NAME/1", words="none"),
    _artifact("folder without MLmodel", {"a/x": ""}, "/a: ", "no file MLmodel"),
    _artifact("no signature", _ARTIFACT | {"a/MLmodel": _MLMODEL}, "a/MLmodel", "no signature", "set_signature(FOLDER"),
    _artifact(
        "signature without inputs",
        _ARTIFACT | {"a/MLmodel": f"{_MLMODEL}signature:\n  inputs: null\n"},
        "a/MLmodel:6: ",
        "infer_signature",
    ),
    _artifact(
        "neither outputs nor an example",
        _ARTIFACT | {"a/MLmodel": f"{_MLMODEL}signature:\n  inputs: '[]'\n"},
        "a/MLmodel:6: ",
        "names no outputs",
        "input_example=X[:5]",
    ),
    _artifact(
        "missing file",
        {name: content for name, content in _ARTIFACT.items() if name != "a/model.pkl"},
        "a/MLmodel:4: ",
        "'model.pkl'",
        "copy the whole folder",
    ),
    _artifact(
        "no packages",
        {name: content for name, content in _ARTIFACT.items() if name != "a/requirements.txt"},
        "/a: ",
        "python_env.yaml",
        "scikit-learn==1.5.2",
    ),
    _artifact(
        "other flavor", {"a/MLmodel": "flavors:\n  crate:\n    version: 1\n"}, "a/MLmodel:1: ", "python_function"
    ),
    _artifact(
        "file elsewhere",
        _ARTIFACT | {"a/MLmodel": _MLMODEL.replace("model.pkl", "../m/config.pbtxt") + _SIGNATURE},
        "a/MLmodel:4: ",
        "outside",
    ),
    _artifact("MLmodel is no YAML", {"a/MLmodel": "flavors: [\n"}, "a/MLmodel:2: ", "not valid YAML"),
    _artifact("MLmodel is no table", {"a/MLmodel": "- flavors\n"}, "a/MLmodel: ", "must be a table"),
    _artifact("MLmodel is no text", {"a/MLmodel": b"\xff\xfe"}, "a/MLmodel: ", "cannot be read"),
    _artifact(
        "MLmodel with another type", {"a/MLmodel": "flavors: none\n"}, "a/MLmodel:1: ", "flavors must be a table"
    ),
    _artifact(
        "wrong requirement",
        _ARTIFACT | {"a/requirements.txt": "numpy=1\n"},
        "a/requirements.txt:1: ",
        "numpy==1",
        kind="bad-requirements",
    ),
    _artifact(
        "other Python", _ARTIFACT, "Python 3.12 (--python)", "==3.10.*", kind="other-python", words="a --python 3.12"
    ),
    _artifact(
        "old Python",
        _ARTIFACT | {"a/python_env.yaml": "python: 3.5.2\ndependencies: [-r requirements.txt]\n"},
        "a/python_env.yaml: ",
        "'3.5' is too old",
        code=2,
        kind="bad-python-version",
    ),
    _artifact("native", _ARTIFACT, "--native is for ONNX files", code=2, kind="usage", words="a --native"),
    _artifact("no model", {"x.txt": "hello"}, "x.txt: ", "no model", "mlflow.pytorch.save_model(", words="x.txt"),
    _artifact("empty file", {"x.onnx": ""}, "x.onnx: ", "no model", words="x.onnx"),
    _artifact(
        "pickle of numbers",
        {"x.pkl": b"\x80\x04K\x01."},
        "x.pkl: ",
        "no model of scikit-learn",
        "package:function",
        words="x.pkl",
    ),
    _artifact(
        "pickle of a script's class",
        {"x.pkl": b"\x80\x04\x8c\x08__main__\x94\x8c\x04Mine\x94\x93\x94)\x81\x94."},
        "Mine",
        "__main__",
        "module beside the file",
        words="x.pkl",
    ),
    _artifact(
        "archive", {"x.tar.gz": gzip.compress(bytes(1024))}, "x.tar.gz: ", "no pickle", "unpack", words="x.tar.gz"
    ),
    BadInput(
        "artifact: file at a URI",
        "init --json REPOSITORY/new --from https://example.org/m.onnx",
        3,
        "bad-artifact",
        ("https://example.org/m.onnx: ", "not a file", "download"),
    ),
    _artifact("broken compression", {"x.gz": b"\x1f\x8bnonsense"}, "x.gz: ", "cannot be decompressed", words="x.gz"),
    BadInput(
        "artifact: module", "init --json REPOSITORY/new --from nowhere:f", 3, "bad-artifact", ("no module nowhere",)
    ),
    BadInput(
        "artifact: name of the model", "init --json REPOSITORY/a+b! --from REPOSITORY/a", 3, "bad-model-name", ("'!'",)
    ),
    BadInput(
        "artifact: into itself",
        "init --json REPOSITORY/a/new --from REPOSITORY/a",
        3,
        "not-empty",
        ("a/new: ", "elsewhere"),
        _ARTIFACT,
    ),
    BadInput("artifact: model exists", "init --json REPOSITORY/m --from REPOSITORY/a", 3, "not-empty", ("/m: ",)),
    usage("artifact: and template", "init --json --from a --template bls REPOSITORY/new", "only one"),
    usage("artifact: option without it", "init --json --native REPOSITORY/new", "--native is for --from"),
)

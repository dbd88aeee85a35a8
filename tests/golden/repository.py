"""The model repository of the golden outputs: two models with what they require, and an ensemble of them."""

from tests.faults.broken_models import CONFIG, DOUBLE

_PAIR = """platform: "ensemble"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "double" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "T" } },
  { model_name: "half" model_version: -1 input_map { key: "IN" value: "T" } output_map { key: "OUT" value: "OUT" } }
] }
"""
FILES = {
    "double/config.pbtxt": CONFIG,
    "double/1/model.py": DOUBLE,
    "double/requirements.txt": "numpy==1.26.4\n",
    "double/envpack/smoke.json": '{"data": [{"IN": [1, 2]}], "validation_data": [{"OUT": [2, 4]}]}\n',
    "half/config.pbtxt": CONFIG,
    "half/1/model.py": DOUBLE.replace("data * 2", "data / 2"),
    "half/environment.yml": "dependencies: [python=3.11, numpy]\n",
    "pair/config.pbtxt": _PAIR,
    "pair/1/.keep": "",
}


def write_repository(folder, only="", project=""):
    """Write the models, or the one that is named, and envpack.toml if it has a text; returns the folder."""
    files = {path: text for path, text in FILES.items() if path.startswith(f"{only}/" if only else "")}
    for path, text in (files | ({"envpack.toml": project} if project else {})).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder

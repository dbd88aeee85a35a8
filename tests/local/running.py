"""The command `envpack run` on models of a repository, for the modules that test it."""

import json
import shutil


def document(run, *arguments, status=0, sent=""):
    code, output, errors = run(*arguments, "--json", sent=sent)
    assert code == status, errors
    return json.loads(output)


def outputs(answer):
    (response,) = answer["responses"]
    return {tensor["name"]: tensor["data"] for tensor in response["outputs"]}


def ensemble(repository, name="pipeline", step="default"):
    """An ensemble of one step."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(
        'platform: "ensemble" input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ] '
        'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ] ensemble_scheduling { step [ '
        f'{{ model_name: "{step}" model_version: -1 input_map {{ key: "X" value: "IN" }} '
        'output_map { key: "Y" value: "OUT" } } ] }'
    )


def copied(repository, name, source):
    """The model `default`, with another source."""
    shutil.copytree(repository / "default", repository / name, symlinks=True)
    (repository / name / "1/model.py").write_text(source)

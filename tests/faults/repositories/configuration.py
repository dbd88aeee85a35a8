"""Configurations, samples and ensembles that do not say what they should."""

import shutil

from tests.faults.repositories.broken import Broken, Site

_STEP = """step {{
  model_name: "{model}" model_version: -1
  input_map {{ key: "{input}" value: "IN" }}
  output_map {{ key: "OUT" value: "OUT" }}
}}
"""
_ENSEMBLE = """platform: "ensemble"
max_batch_size: 4
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: {datatype} dims: [ -1 ] }} ]
ensemble_scheduling {{ {steps} }}
"""


def _ensemble(site: Site, model: str, *, takes: str = "IN", datatype: str = "TYPE_FP32") -> None:
    """Turn the model into an ensemble; what it was becomes ``<name>_member``, which is a good model."""
    member = site.model.with_name(f"{site.model.name}_member")
    shutil.copytree(site.model, member)
    for entry in site.model.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (site.model / "1").mkdir()
    steps = _STEP.format(model=model or member.name, input=takes)
    site.write("config.pbtxt", _ENSEMBLE.format(steps=steps, datatype=datatype))


def _append(text):
    return lambda site: site.append(text)


def _samples(text):
    return lambda site: site.write("envpack/smoke.json", text) and None


def _configure(old, new):
    return lambda site: site.configure(old, new)


def _cycle(site: Site):
    _ensemble(site, f"{site.model.name}_other")
    other = site.model.with_name(f"{site.model.name}_other")
    shutil.copytree(site.model, other)
    steps = _STEP.format(model=site.model.name, input="IN")
    (other / "config.pbtxt").write_text(_ENSEMBLE.format(steps=steps, datatype="TYPE_FP32"))


def _broken_member(site: Site):
    _ensemble(site, "")
    code = site.model.with_name(f"{site.model.name}_member") / "1/model.py"
    text = code.read_text()
    code.unlink()
    code.write_text("import not_installed\n" + text)


def _other_name(site: Site):
    site.append('name: "another"\n')


ENTRIES = (
    Broken(
        "config-syntax",
        "a bracket is missing in `config.pbtxt`",
        _configure("[ -1 ] } ]", "[ -1 } ]"),
        "bad-config",
        'config.pbtxt:3: not a valid Triton model configuration: … Expected ","',
        "correct this line, or give the one before it its value; Triton's model configuration guide has the form",
    ),
    Broken(
        "config-field",
        "`config.pbtxt` has a field that does not exist",
        _append("max_batch: 4\n"),
        "bad-config",
        'config.pbtxt:9: … has no field named "max_batch"',
        "write max_batch_size if that is meant; else see Triton's model configuration guide; the field may be newer",
    ),
    Broken(
        "config-escape",
        "`config.pbtxt` has a single backslash in a text",
        _append('parameters { key: "folder" value { string_value: "C:\\models" } }\n'),
        "bad-config",
        "config.pbtxt:9: … Invalid escape sequence in string literal",
        "correct this line, or give the one before it its value; Triton's model configuration guide has the form",
    ),
    Broken(
        "config-datatype",
        "`config.pbtxt` calls a type `FP32`",
        _configure("TYPE_FP32", "FP32"),
        "bad-config",
        'config.pbtxt:3: … Enum type "inference.DataType" has no value named FP32',
        "write one of TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, ",
    ),
    Broken(
        "config-start",
        "`config.pbtxt` has a value of `ENVPACK_START` that the stub does not know",
        _append('parameters { key: "ENVPACK_START" value { string_value: "hot" } }\n'),
        "bad-config",
        "config.pbtxt: the parameter ENVPACK_START is 'hot'",
        "write cold or warm, or remove the parameter",
    ),
    Broken(
        "config-name",
        "`config.pbtxt` gives the model another name than its folder has",
        _other_name,
        "model-name-mismatch",
        "the configuration names the model 'another', but its folder is",
        "remove the name field or rename the folder",
    ),
    Broken(
        "config-too-new",
        "`config.pbtxt` has a field that this release does not know yet",
        _append('model_metrics { metric_control { metric_identifier { family: "f" } } }\n'),
        "bad-config",
        'config.pbtxt:9:15: … has no field named "model_metrics"',
        "remove model_metrics from config.pbtxt, or serve the model with a newer release",
        found_by="verify",
    ),
    Broken(
        "config-batch",
        "`config.pbtxt` says -1 as the batch size",
        _configure("max_batch_size: 4", "max_batch_size: -1"),
        "bad-config",
        "'max_batch_size' must be non-negative value",
        "correct config.pbtxt",
        found_by="verify",
    ),
    Broken(
        "config-dims",
        "`config.pbtxt` has an input of no dimension",
        _configure('name: "IN" data_type: TYPE_FP32 dims: [ -1 ]', 'name: "IN" data_type: TYPE_FP32'),
        "bad-config",
        "model input 'IN' must specify 'dims'",
        "correct config.pbtxt",
        found_by="verify",
    ),
    Broken(
        "group-gpu",
        "the model wants a GPU (`KIND_GPU`) and the machine has none",
        _append("instance_group { kind: KIND_GPU }\n"),
        "no-gpu",
        "has kind KIND_GPU but no GPUs are available",
        "verify with --gpu on a machine that has one, or set KIND_CPU without gpus in instance_group",
        found_by="verify",
    ),
    Broken(
        "group-gpus",
        "the model wants the first GPU (`gpus: [0]`) and the machine has none",
        _append("instance_group { kind: KIND_GPU gpus: [ 0 ] }\n"),
        "no-gpu",
        "specifies invalid or unsupported gpu id 0",
        "verify with --gpu on a machine that has one, or set KIND_CPU without gpus in instance_group",
        found_by="verify",
    ),
    Broken(
        "backend-unknown",
        "`config.pbtxt` names a backend that does not exist",
        _configure('backend: "python"', 'backend: "pyton"'),
        "backend-missing",
        "no server comes with the backend 'pyton'",
        'write backend: "python"; or name the folder that contains pyton with --set backends=DIRECTORY',
    ),
    Broken(
        "backend-unheard-of",
        "`config.pbtxt` names a backend that this server does not have",
        _configure('backend: "python"', 'backend: "ours"'),
        "backend-missing",
        "unable to find backend library for backend 'ours'",
        "correct backend in config.pbtxt, or name what has ours: --server FOLDER, or --set backends=DIRECTORY",
        found_by="verify",
    ),
    Broken(
        "agent-missing",
        "`config.pbtxt` names a repository agent that this server does not have",
        _append('model_repository_agents { agents [ { name: "checksum" } ] }\n'),
        "bad-config",
        "unable to find 'libtritonrepoagent_checksum.so' for repo agent 'checksum'",
        "verify with a server that has this agent: --image IMAGE, or --server FOLDER; or correct its name",
        found_by="verify",
    ),
    Broken(
        "samples-syntax",
        "`smoke.json` is no JSON",
        _samples('{"data": [{"IN": }]}'),
        "bad-samples",
        "smoke.json:1: invalid samples: Expecting value",
        "the format is perf_analyzer's --input-data",
        found_by="verify",
        step="inference",
    ),
    Broken(
        "samples-tensor",
        "the samples name an input that the model does not have",
        _samples('{"data": [{"INPUT": [1]}]}'),
        "bad-samples",
        "data[0]: the model has no tensor 'INPUT', only IN",
        "the format is perf_analyzer's --input-data",
        found_by="verify",
        step="inference",
    ),
    Broken(
        "samples-batch",
        "the samples have more in a batch than `max_batch_size`",
        _samples('{"data": [{"IN": {"content": [1, 2, 3, 4, 5], "shape": [5, 1]}}]}'),
        "bad-samples",
        "data[0].IN: the shape [5, 1] does not fit [-1]; a sample omits the batch dimension",
        "the format is perf_analyzer's --input-data",
        found_by="verify",
        step="inference",
    ),
    Broken(
        "samples-wrong",
        "the outputs differ from those that the samples expect",
        _samples('{"data": [{"IN": [1]}], "validation_data": [{"OUT": [3]}]}'),
        "wrong-answers",
        "0 of 1 samples right, 1 needed (0: OUT element 0 is 2 instead of 3)",
        "correct the model, or the expected outputs of the samples",
        found_by="verify",
        step="inference",
    ),
    Broken(
        "ensemble-step",
        "an ensemble runs a model that is not there",
        lambda site: _ensemble(site, "preprocess"),
        "step-missing",
        "the ensemble runs preprocess, which is not in the repository",
        "add that model, or remove the step",
    ),
    Broken(
        "ensemble-path",
        "an ensemble names its step by a path",
        lambda site: _ensemble(site, "../models/preprocess"),
        "bad-config",
        "the ensemble's step '../models/preprocess' is not the name of a model",
        "name a model of this repository in model_name",
        also=("step-missing",),
    ),
    Broken(
        "config-twice",
        "an input is declared twice",
        _append('input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'),
        "declared-twice",
        "config.pbtxt: the input 'IN' is declared 2 times",
        "give each input its own name",
        options=("--strict",),
    ),
    Broken(
        "state",
        "the state of a sequence is left to the server",
        _append(
            'sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [ 1 ]'
            ' initial_state { name: "zero" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } }\n'
        ),
        "state-ignored",
        "config.pbtxt: Triton's Python backend updates no state of sequence_batching: S is the initial one in each",
        "keep the state in the model, by request.correlation_id()",
        options=("--strict",),
    ),
    Broken(
        "template-parameter",
        "a parameter has a word of a template as its value",
        _append('parameters { key: "tokenizer_dir" value { string_value: "${tokenizer_dir}" } }\n'),
        "template-unfilled",
        "config.pbtxt: parameters have words of a template as values, which no server fills in: tokenizer_dir is ${",
        "write the values",
        options=("--strict",),
    ),
    Broken(
        "ensemble-map",
        "an ensemble maps an input that its step does not have",
        lambda site: _ensemble(site, "", takes="INPUT"),
        "ensemble-mismatch",
        "ensemble tensor IN is mapping to non-existing input INPUT in model",
        "compare the maps and types in config.pbtxt",
        found_by="verify",
    ),
    Broken(
        "ensemble-type",
        "an ensemble promises another type than its step gives",
        lambda site: _ensemble(site, "", datatype="TYPE_INT32"),
        "ensemble-mismatch",
        "ensemble tensor OUT: inconsistent data type: TYPE_INT32 is inferred from … while TYPE_FP32",
        "compare the maps and types in config.pbtxt",
        found_by="verify",
    ),
    Broken(
        "ensemble-cycle",
        "two ensembles run each other",
        _cycle,
        "ensemble-cycle",
        "the ensembles … run each other",
        "remove one of them from the steps of another",
    ),
    Broken(
        "ensemble-member",
        "a step of the ensemble is broken itself",
        _broken_member,
        "step-failed",
        "its member … is not fit to serve",
        "correct … first",
        found_by="verify",
        also=("module-missing",),
    ),
)

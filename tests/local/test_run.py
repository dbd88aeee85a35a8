"""`envpack run`: what it sends, and what it shows of the answers."""

import contextlib
import json
import os
import re
import shutil

import numpy as np
import pytest

from envpack.server.launch import find_server
from envpack.support.errors import ServerError
from tests.local.running import copied, document, ensemble, outputs
from tests.rings import parameters


def pytest_generate_tests(metafunc):
    """Not the Pythons of the other modules."""


def test_a_request_is_made_up_and_the_answer_is_a_table(run):
    code, output, _ = run("default")
    assert code == 0
    assert output.splitlines()[1].split() == ["Y", "FP32", "[1]", "2"]


def test_samples_come_from_standard_input(run):
    found = document(run, "default", "--input", "-", sent='{"data": [{"X": [1.5]}, {"X": [4]}]}')
    assert [outputs(answer) for answer in found["answers"]] == [{"Y": [3.0]}, {"Y": [8.0]}]


def test_errors_name_standard_input(run):
    code, _, errors = run("default", "--input", "-", sent="[]")
    assert code == 3
    assert errors.splitlines()[-2].startswith("error: standard input: invalid samples: the document is no JSON object")


def test_arrays_go_in_and_out(run, tmp_path):
    np.save(tmp_path / "x.npy", np.array([1, 2], dtype=np.float32))
    code, _, errors = run("default", "--input", "X=x.npy", "--output", "out.npz")
    assert code == 0, errors
    assert np.load(tmp_path / "out.npz")["Y"].tolist() == [2, 4]


def test_any_file_is_the_content_of_an_input_of_strings(run, tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8cat")
    found = document(run, "bytes", "--input", "cat.jpg")
    assert outputs(found["answers"][0]) == {"Y": ["\\xff\\xd8cat"]}


def test_a_decoupled_model_streams(run):
    found = document(run, "stream")
    responses = found["answers"][0]["responses"]
    assert [response["outputs"][0]["data"] for response in responses] == [[0.0], [1.0], [2.0]]


def test_what_only_a_server_runs_is_run_on_one(repository, run):
    ensemble(repository)
    try:
        find_server()
    except ServerError as error:
        pytest.skip(str(error))
    code, output, errors = run("pipeline", "--input", "-", "--json", sent='{"data": [{"IN": [1, 2]}]}')
    assert code == 0, errors
    found = json.loads(output)
    assert outputs(found["answers"][0]) == {"OUT": [2.0, 4.0]}
    assert re.fullmatch(r"on Triton \d\d\.\d\d, a process of this machine", found["where"])
    assert f"{found['where']}, since pipeline is an ensemble" in errors
    code, _, errors = run("pipeline", "--profile")
    assert code == 2
    assert "on a server, --debug, --profile and --memory cannot be used: pipeline is an ensemble" in errors
    code, output, _ = run("default", "--json", "--server", str(find_server().executable))
    assert (code, json.loads(output)["where"]) == (0, found["where"])


def test_what_a_model_prints_and_logs_cannot_control_a_terminal(repository, command):
    source = (repository / "default/1/model.py").read_text()
    evil = "\\x1b[2J\\x1b]0;gone\\x07"
    says = f"print('{evil}out'); print('{evil}error', file=__import__('sys').stderr)"
    copied(
        repository,
        "evil",
        source.replace("return [self", f"{says}; pb_utils.Logger.log_info('{evil}log')\n        return [self"),
    )
    ours, theirs = os.openpty()
    with command("evil", stdout=theirs, stderr=theirs, stdin=theirs) as child:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 1 << 16):
                shown += piece
    os.close(ours)
    assert child.returncode == 0
    for word in ("out", "error", "log"):
        assert f"\\x1b[2J\\x1b]0;gone\\x07{word}" in shown.decode()
    assert b"\x1b]0;" not in shown


def test_an_error_of_the_model_is_shown_with_its_lines(run):
    code, output, _ = run("raises")
    assert code == 1
    assert output.startswith("wrong: Failed to process the request(s) for model 'raises_0', message: ValueError: größe")
    assert "raises/1/model.py(8): execute" in output
    code, quiet, errors = run("raises", "--quiet")
    assert (code, quiet, errors) == (1, output, ""), "as of a negative verdict"


@pytest.mark.thorough
def test_a_known_error_has_its_fix(repository, run):
    source = (repository / "default/1/model.py").read_text()
    copied(repository, "strings", source.replace("array * 2", "np.array(['a'])"))
    code, output, _ = run("strings")
    assert (code, output.splitlines()[-1]) == (1, "  fix: give Y its strings as an array of objects: .astype(object)")
    copied(repository, "forgets", f"{source}\n    def auto_complete_config(config):\n        pass\n")
    code, output, errors = run("forgets")
    assert (code, output) == (3, "")
    assert errors.splitlines()[-1] == "  fix: return the configuration at the end of auto_complete_config"


def test_a_model_that_it_calls_and_that_is_missing_is_no_refusal(repository, run):
    asked = "model_name='nobody', inputs=requests[0].inputs(), requested_output_names=['Y']"
    copied(
        repository,
        "asks_the_missing",
        "import triton_python_backend_utils as pb_utils\n\nclass TritonPythonModel:\n    def execute(self, requests):\n"
        f"        error = pb_utils.InferenceRequest({asked}).exec().error()\n"
        "        return [pb_utils.InferenceResponse(error=error)]\n",
    )
    code, output, _ = run("asks_the_missing")
    assert code == 1
    assert output.splitlines()[-1].strip().startswith("fix: add the model that it calls to the repository")


def test_an_output_that_the_configuration_does_not_declare_is_wrong(run):
    found = document(run, "undeclared", status=1)
    assert found["answers"][0]["fault"] == "the output Y is INT32, not FP32"


@pytest.mark.thorough
def test_a_file_that_is_no_array_is_one_line(run, tmp_path):
    (tmp_path / "x.npy").write_text("text")
    code, output, errors = run("default", "--input", "x.npy")
    assert (code, output) == (3, "")
    assert errors.splitlines()[-2].startswith("error: x.npy: cannot be read: ")


def saved(file, content):
    with file.open("wb") as stream:
        np.savez(stream, **content) if isinstance(content, dict) else np.save(stream, content, allow_pickle=True)


ONES = np.ones(2, dtype=np.float32)


# What is in the file x, and what is sent; each with a part of the error.
WRONG_INPUTS = {
    "objects": ("x.npy", np.array([{}, "x"], dtype=object), ["x.npy"], "x.npy: cannot be read: it holds Python"),
    "objects in npz": (
        "x.npz",
        {"X": np.array([{}], dtype=object)},
        ["x.npz"],
        "x.npz: cannot be read: it holds Python",
    ),
    "complex": ("x.npy", np.array([1j]), ["x.npy"], "X: arrays of complex128 fit no type"),
    "other name": ("x.npz", {"Q": ONES}, ["x.npz"], "x.npz: the model has no input 'Q', only X"),
    "no input": ("x.npy", ONES, ["Q=x.npy"], "Q=x.npy: the model has no input 'Q', only X"),
    "twice": ("x.npy", ONES, ["x.npy", "X=x.npy"], "x.npy: the input 'X' is given twice"),
    "samples and a file": ("x.json", b"{}", ["x.json", "X=x.json"], "x.json: samples hold all inputs of a request"),
    "no strings": ("x.jpg", b"", ["x.jpg"], "x.jpg: the model has no input of strings"),
    "empty": ("x.npy", b"", ["x.npy"], "x.npy: cannot be read: "),
    "no zip": ("x.npz", b"PK\x03\x04", ["x.npz"], "x.npz: cannot be read: "),
    "a list": ("x.json", b"[1]", ["x.json"], "x.json: invalid samples: the document is no JSON object"),
    "missing": ("y.npy", b"", ["x.npy"], "x.npy: cannot be read: No such file"),
}


@pytest.mark.parametrize("case", parameters(WRONG_INPUTS, {"objects", "no input"}))
def test_a_wrong_input_is_one_line(run, tmp_path, case):
    name, content, given, expected = WRONG_INPUTS[case]
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        saved(tmp_path / name, content)
    code, output, errors = run("default", *(f"--input={source}" for source in given))
    assert (code, output) == (3, "")
    assert errors.splitlines()[-2].startswith(f"error: {expected}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--input=X=x.npy"], "x.npy: cannot be read: No such file or directory"),
        (["--input=."], ".: cannot be read: Is a directory"),
    ],
)
def test_files_are_looked_at_before_anything_is_made(run, given, expected):
    code, output, errors = run("default", *given)
    assert (code, output) == (3, "")
    assert errors.splitlines()[0].startswith(f"error: {expected} (bad-input)")


def test_a_pipe_is_not_waited_for(run, tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    code, _, errors = run("default", "--input", "x.npy")
    assert code == 3
    assert "error: x.npy: cannot be read: it is not a regular file" in errors


@pytest.mark.thorough
def test_strings_that_numpy_would_shorten_are_not_saved(run, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"\xff\0")
    code, _, errors = run("bytes", "--input", "x.bin", "--output", "out.npz")
    assert code == 3
    assert "Y: its strings cannot be saved: one ends with a zero byte" in errors
    assert not (tmp_path / "out.npz").exists()


def test_what_a_model_prints_is_not_in_the_document(repository, run):
    source = (repository / "default/1/model.py").read_text()
    loud = source.replace("import asyncio", "print('import', flush=True)\nimport asyncio")
    loud = loud.replace("return [self", "import os; os.write(1, b'raw')\n        return [self")
    copied(repository, "loud", loud)
    assert outputs(document(run, "loud")["answers"][0]) == {"Y": [2.0]}


@pytest.mark.thorough
def test_what_was_sent_and_answered_becomes_a_sample(repository, run, tmp_path):
    shutil.copytree(repository / "bytes", repository / "samples", symlinks=True)
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    code, output, errors = run("samples", "--input", "cat.png", "--save-sample")
    file, image = repository / "samples/envpack/smoke.json", {"b64": "iVBORw=="}
    assert (code, errors.splitlines()[-1]) == (0, f"saved: {file} has what was sent, and the answers")
    assert json.loads(file.read_text()) == {"data": [{"X": image}], "validation_data": [{"Y": image}]}
    code, output, _ = run("samples")
    assert (code, output.splitlines()[-1]) == (0, "1 of 1 samples right")
    file.write_text(file.read_text().replace("iVBORw==", "iVBORwo=", 1))
    code, output, _ = run("samples")
    assert code == 1
    assert output.splitlines()[-1] == "0 of 1 samples right, 1 needed"
    assert output.splitlines()[-2].startswith("wrong: Y element 0 is ")


def test_a_wrong_answer_becomes_no_sample(repository, run):
    code, _, errors = run("raises", "--input", "-", "--save-sample", sent='{"data": [{"X": [1]}]}')
    assert code == 1
    assert "warning: no sample is saved, because an answer is wrong" in errors
    assert not (repository / "raises/envpack").exists()


@pytest.mark.thorough
def test_a_sample_is_saved_only_of_what_is_given(run):
    code, _, errors = run("default", "--save-sample")
    assert code == 2
    assert "--save-sample needs --input" in errors


def test_numbers_that_are_not_finite_are_strings_in_the_document(repository, run):
    source = (repository / "default/1/model.py").read_text()
    copied(repository, "divides", source.replace("array * 2", "array / np.float32(0)"))
    sent = '{"data": [{"X": [1, -1, 0]}]}'
    code, output, errors = run("divides", "--input", "-", "--json", sent=sent)
    assert code == 0, errors
    found = json.loads(output, parse_constant=pytest.fail)
    assert outputs(found["answers"][0]) == {"Y": ["Infinity", "-Infinity", "NaN"]}


def test_a_model_that_is_not_there_is_one_line(run):
    code, _, errors = run("nobody")
    assert code == 3
    assert "model 'nobody' not found" in errors


def test_time_and_memory_are_shown(run):
    found = document(run, "default", "--repeat", "20", "--profile", "--memory")
    assert len(found["answers"][0]["seconds"]) == 20
    assert found["peak_memory"] > 10 << 20
    calls = {function["function"]: function["calls"] for function in found["functions"]}
    assert calls.get("execute") == 20
    phases = found["phases"]
    assert list(phases) == ["start", "import", "initialize", "execute"]
    assert phases["import"] > 0
    assert sum(phases[name] for name in ("start", "import", "initialize")) == pytest.approx(found["load_seconds"])
    assert phases["execute"] == pytest.approx(sum(found["answers"][0]["seconds"]))


@pytest.mark.thorough
def test_repetitions_are_shown_as_a_table_of_latencies(run):
    code, output, _ = run("default", "--repeat", "20")
    assert code == 0
    head, row = output.splitlines()[-2:]
    assert head.split() == ["requests", "mean", "ms", "p50", "ms", "p95", "ms", "p99", "ms", "longest", "ms"]
    count, mean, *ordered = map(float, row.split())
    assert count == 20
    assert ordered == sorted(ordered)
    assert 0 < mean <= ordered[-1]

"""The README's first command, on the recipe itself: three Pythons served, and nothing to do the second time."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.server.kserve import Client
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import read_served_config
from envpack.verification.samples import read_samples
from tests.needed_pythons import need

pytestmark = pytest.mark.thorough

DEMO = Path(__file__).parents[3] / "ci" / "demo.py"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    for minor in ("3.8", "3.10", "3.12"):
        need(minor)
    return tmp_path_factory.mktemp("demo") / "digits"


def _run(repository):
    done = subprocess.run([sys.executable, DEMO, repository], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_three_pythons_classify_real_images(repository):
    shown, _ = _run(repository)
    assert "VERDICT: yes – 4 of 4 models serve, nothing left behind" in shown
    for model, python, numpy in (
        ("preprocessing", "3.8.", "1."),
        ("core", "3.10.", "1."),
        ("postprocessing", "3.12.", "2."),
    ):
        row = next(line.split() for line in shown.splitlines() if line.strip().startswith(f"{model} "))
        assert row[1] == "ok"
        assert row[2].startswith(python)
        assert row[3].startswith(numpy)
        assert row[4] == "envpack"
    pipeline = next(line for line in shown.splitlines() if line.strip().startswith("pipeline "))
    right, sent, needed = re.search(r"(\d+) of (\d+) images right(?:, (\d+) needed)?", pipeline).groups()
    assert (int(sent), int(needed or sent) <= int(right)) == (180, True)
    assert int(right) >= 171


def test_a_run_without_a_server_gives_the_same_answers(repository):
    if not (repository / "pipeline/envpack/smoke.json").exists():
        pytest.fail("the first run did not finish")
    line = [sys.executable, "-m", "envpack", "run", "pipeline", "--repository", repository, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)["answers"]
    # The order of the outputs of an ensemble is open.
    found = [_by_name(response["outputs"]) for answer in answers for response in answer["responses"]]
    with ProcessRuntime(find_server()).start(repository) as server:
        client = Client(server.url)
        for model in ("preprocessing", "core", "postprocessing", "pipeline"):
            client.load(model, timeout=120)
        config = read_served_config(client.config("pipeline"))
        samples = read_samples(repository / "pipeline/envpack/smoke.json", config).samples
        expected = [client.infer("pipeline", sample.inputs, binary=True) for sample in samples]
    assert found == [_by_name(map(_as_json, outputs)) for outputs in expected]
    assert len(found) == len(samples) > 0


def _by_name(outputs):
    return {output["name"]: output for output in outputs}


def _as_json(tensor):
    """A tensor as `envpack run` prints it."""
    data = [item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else item for item in tensor.data]
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": data}


def test_the_second_time_everything_is_up_to_date(repository):
    if not (repository / "pipeline/envpack/smoke.json").exists():
        pytest.fail("the first run did not finish")
    said, shown = _run(repository)
    assert "the classifier is trained: up to date" in said
    before_verify = shown.partition("start Triton")[0]
    ignored = (" s so far", "needs no environment")
    steps = [line for line in before_verify.splitlines() if "…" in line and not line.endswith(ignored)]
    assert len(steps) == 9  # three environments, three stubs compiled, three stubs placed
    assert all("up to date" in step for step in steps)

"""A model that loads, unloads and asks about other models."""

import json

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE

ERROR = "try:\n    {what}\n    return [reply('nothing')]\nexcept {error} as error:\n    return [reply(str(error))]"
SERVER_PART = "Failed to process the request for model 'script_0', message: "


def error_of(served, what, error="pb_utils.TritonModelException"):
    return served.run_code(ERROR.format(what=what, error=error))


def test_readiness_of_loaded_and_unknown_models(served):
    assert served.evaluate("[pb_utils.is_model_ready('batches'), pb_utils.is_model_ready('nobody')]") == [True, False]


def test_readiness_of_a_version(served):
    assert served.evaluate("[pb_utils.is_model_ready('batches', v) for v in ('1', '2')]") == [True, False]


def test_a_version_that_is_no_number_is_told_a_hundred_times(served):
    for _ in range(100):
        message = error_of(served, "pb_utils.is_model_ready('batches', 'first')")
        assert message.startswith("Failed to check model readiness: " + SERVER_PART)
        assert "version should be an integral value > 0" in message


def test_a_model_is_unloaded_and_loaded_again(served):
    code = (
        "import time\n"
        "pb_utils.unload_model('batches')\n"
        "until = time.monotonic() + 60\n"
        "while pb_utils.is_model_ready('batches') and time.monotonic() < until:\n    time.sleep(0.05)\n"
        "gone = not pb_utils.is_model_ready('batches')\n"
        "pb_utils.load_model('batches')\n"
        "return [reply([gone, pb_utils.is_model_ready('batches')])]"
    )
    assert served.run_code(code) == [True, True]


@pytest.mark.parametrize("python", [find_release(DEFAULT_RELEASE).python])
def test_a_model_is_loaded_from_a_configuration_and_a_file(served, python):
    """On the Python of the release's own stub, which serves a model that is one file.

    One file only: of two, the 24.10 server writes the content of one under both names, so no stub can come along.
    """
    config = json.loads(served.evaluate("self.args['model_config']"))
    config["name"] = "from_a_file"
    del config["instance_group"]
    code = (
        f"config = {json.dumps(config)!r}\n"
        "model = b'class TritonPythonModel:\\n    def execute(self, requests):\\n        return []\\n'\n"
        "pb_utils.load_model('from_a_file', config=config, files={'file:1/model.py': model})\n"
        "ready = pb_utils.is_model_ready('from_a_file')\n"
        "pb_utils.unload_model('from_a_file', unload_dependents=True)\n"
        "return [reply(ready)]"
    )
    assert served.run_code(code) is True


def test_an_unknown_model_is_told(served):
    assert error_of(served, "pb_utils.load_model('nobody')").startswith("Failed to load model: " + SERVER_PART)


def test_wrong_files_are_told(served):
    text = "failed to load model 'x', files should be a dictionary of file paths and file contents"
    assert error_of(served, "pb_utils.load_model('x', files=[])") == text
    call = "pb_utils.load_model('x', files={'file:1/model.py': 'text'})"
    assert "must be bytes" in error_of(served, call, "TypeError")

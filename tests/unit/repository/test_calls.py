"""The models that code calls: their names are in its strings and its configuration."""

import os
import re
from pathlib import Path

import pytest

from envpack.repository.code import (
    called_models,
    missing_models,
    named_and_left_out,
    paths_elsewhere,
    reads_parameter,
    reads_requested_outputs,
    returns_nothing,
    sends_requests,
)
from envpack.repository.model import open_model
from tests.tables import every_row

CONFIG = 'backend: "python"\n'


@pytest.fixture
def asker(tmp_path):
    """The folder of a model, in a repository with the models `scale`, `other.v2` and `core`."""
    for name in ("asker", "scale", "other.v2", "core"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(CONFIG)
    (tmp_path / "docs").mkdir()
    return tmp_path / "asker"


@pytest.mark.parametrize(
    ("code", "called"),
    [
        ('pb_utils.InferenceRequest(model_name="scale", inputs=[])', ("scale",)),
        ("NAMES = ['scale', 'other.v2', 'scales', 'asker', 'docs', '..']", ("other.v2", "scale")),
        ('NAMES = "scale,core".split(",")', ("core", "scale")),
        ("PLACES = ['/srv/scale/1/', 'core/1/x.bin', '../other.v2']", ()),
        ("TO = '{\"model\": \"scale\"}'; AT = 'model=core'", ("core", "scale")),
        ("core = 1  # what core does", ()),
        ('"""Says what core does."""', ()),
        ('text = """\nscale\n"""\nname = "core"', ("core",)),
        ("it = 'a\\'b'; name = 'core'", ("core",)),
    ],
)
def test_names_in_strings_of_the_code(asker, code, called):
    (asker / "1" / "model.py").write_text(code)
    assert called_models(asker) == called


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ('pb_utils.InferenceRequest(\n    model_name="gone", inputs=[])', ("gone",)),
        ("InferenceRequest(request_id='1', model_name='gone')", ("gone",)),
        ('InferenceRequest(model_name="scale"); InferenceRequest(model_name=name)', ()),
        ("InferenceRequest(model_name=f'{one}_gone'); Other(model_name='gone')", ()),
        ('"""InferenceRequest(model_name="gone")"""', ()),
        ("    # InferenceRequest(\n    #     model_name='gone'\n", ()),
    ],
)
def test_models_that_code_calls_and_that_are_not_there(asker, code, missing):
    (asker / "1/model.py").write_text(code)
    assert missing_models(asker) == missing


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("open(os.path.join(os.path.dirname(os.path.dirname(HERE)), 'labels.txt'), 'r')", ("labels.txt",)),
        ("open(HERE / '.key', 'r')", ("asker/1/.key",)),
        (
            "open(f\"{args['model_repository']}/.key\"); os.path.join(HERE, 'data', '.cache', 'x')",
            ("asker/1/.key", "asker/1/data/.cache"),
        ),
        ("from_pretrained(HERE / 'data' / '.cache'); HERE / 'data'", ("asker/1/data/.cache",)),
        ("open(HERE.parent / 'tests' / 'it.txt'); a+'/'+b", ("asker/tests",)),
        ("open('../tests/it.txt'); 'tests'", ("asker/tests",)),
        ("sys.path.append(PARENT)\nimport test_it", ("asker/test_it.py",)),
        ("load_dotenv()", ("asker/.env",)),
        ("import test_it; '.'; '..'; '../..'; HERE.parent / 'labels.csv'", ()),
        ("open(Path(__file__).parents[2] / 'docs' / 'labels.txt')", ("docs",)),
        ("open(os.path.join(os.path.dirname(__file__), '..', '..', 'docs', 'labels.txt'))", ("docs",)),
        ("open(os.path.join(HERE, '../../docs/labels.txt')); open(ROOT / 'labels.txt')", ("docs", "labels.txt")),
        ("open(ROOT + '/docs/labels.txt')", ()),
        ("open('REPOSITORY/docs/labels.txt')", ("docs",)),
        (
            "import sys; sys.path.insert(0, REPOSITORY)\nfrom docs.text import clean\nimport helpers",
            ("docs", "helpers.py"),
        ),
        ("import docs, helpers", ()),
        ("sys.path.append(HERE)\nimport own\nimport json", ()),
        ("it['docs']; HERE / 'own.py'; open('../../scale/1/model.py'); open('docs/gone')", ()),
        ("'https://docs/labels.txt'; '../' * 3000; 'a/b'; '/'; '../../..'", ()),
    ],
)
def test_what_code_names_and_no_deployment_has(asker, code, left):
    repository = asker.parent
    (asker / "1/data/.cache").mkdir(parents=True)
    (asker / "tests").mkdir()
    for name in ("docs/labels.txt", "labels.txt", "labels.csv", "helpers.py", "own.py", "asker/1/own.py"):
        (repository / name).touch()
    for name in ("1/.key", "1/data/.cache/x", ".env", "tests/it.txt", "test_it.py", "labels.csv"):
        (asker / name).touch()
    (asker / "1/model.py").write_text(code.replace("REPOSITORY", str(repository)))
    assert named_and_left_out(asker, open_model(asker).config) == left


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ('output { name: "Y" data_type: TYPE_INT8 dims: 1 label_filename: ".labels" }', ("asker/.labels",)),
        ('parameters { key: "at" value { string_value: "../../labels.txt" } }', ("labels.txt",)),
        ('parameters { key: "at" value { string_value: "labels.txt" } }', ()),
        ('parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/../.env" } }', ()),
    ],
)
def test_what_a_configuration_names_and_no_deployment_has(asker, config, left):
    for name in (".labels", "../labels.txt", "../.env"):
        (asker / name).touch()
    (asker / "1/model.py").touch()
    (asker / "config.pbtxt").write_text(CONFIG + config)
    assert named_and_left_out(asker, open_model(asker).config) == left


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize(
    ("code", "config", "found"),
    [
        (f"open('{__file__}')", "", [__file__]),
        ("", f'parameters {{ key: "LABELS" value {{ string_value: "{__file__}" }} }}', [__file__]),
        ("", f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{__file__}" }} }}', []),
        (f"open('{__file__}.missing'); text.split('/'); HERE = '/{'x' * 5000}'", "", []),
        ("open('/usr/bin/env'); open('/tmp'); open('//dev/null'); open('/etc/hosts')", "", []),
        (f'"""Reads \'{__file__}\'."""', "", []),
    ],
)
def test_files_of_this_machine_outside_of_the_repository_are_found(asker, code, config, found):
    (asker / "1/model.py").write_text(code)
    (asker / "config.pbtxt").write_text(CONFIG + config)
    assert list(paths_elsewhere(asker, open_model(asker).config)) == found


@pytest.mark.usefixtures("own_files")
def test_what_a_version_links_to_outside_of_the_repository_is_found(asker):
    (asker / "1/model.py").symlink_to(__file__)
    (asker / "1/config.pbtxt").symlink_to(asker / "config.pbtxt")
    assert list(paths_elsewhere(asker, open_model(asker).config))[:1] == [os.path.realpath(__file__)]


def test_a_link_to_a_temporary_file_is_found_and_its_name_in_code_is_not(asker, tmp_path_factory):
    file = tmp_path_factory.mktemp("elsewhere") / "weights.bin"
    file.touch()
    (asker / "1/model.py").write_text(f"open('{file}')")
    assert list(paths_elsewhere(asker, open_model(asker).config)) == []
    (asker / "1/weights.bin").symlink_to(file)
    assert list(paths_elsewhere(asker, open_model(asker).config)) == [str(file)]


def test_a_path_into_the_repository_is_one_of_this_machine(asker, monkeypatch):
    monkeypatch.setattr("envpack.repository.code._WRITTEN", re.compile(r"/$"))  # the repository is below /tmp here
    (asker.parent / "link").symlink_to(asker)
    (asker / "1/labels.txt").symlink_to(asker / "config.pbtxt")
    path = f"{asker.parent}/link/config.pbtxt"
    (asker / "1/model.py").write_text(f"open('{path}')")
    assert list(paths_elsewhere(asker, open_model(asker).config)) == [path]


def test_a_path_into_a_repository_that_containers_have_there_too_is_no_fault(asker, monkeypatch):
    (asker / "1/model.py").write_text("open('/models/asker/config.pbtxt')")
    folder, config = Path("/models/asker"), open_model(asker).config
    monkeypatch.setattr("os.path.exists", lambda path: str(path) == "/models/asker/config.pbtxt")
    monkeypatch.setattr("envpack.repository.code._code", lambda _: [asker / "1/model.py"])
    monkeypatch.setattr("envpack.repository.code.version_folders", lambda _: [])
    assert list(paths_elsewhere(folder, config)) == []


def test_names_in_the_configuration_and_beside_the_model(asker):
    parameter = 'parameters { key: "to" value { string_value: "scale" } }'
    (asker / "config.pbtxt").write_text(CONFIG + parameter)
    (asker / "1" / "routes.py").write_text('ROUTES = {"a": "core"}')
    assert called_models(asker) == ("core", "scale")


def test_a_source_that_cannot_be_read_names_nothing(asker):
    (asker / "1" / "model.py").write_bytes(b'name = "core"\xff')
    (asker / "1" / "large.py").write_text('name = "core"' + " " * (1 << 20))
    assert called_models(asker) == ()


@every_row(
    ("code", "sends"),
    [
        ("pb_utils.InferenceRequest(model_name=name)", True),
        ("from m import InferenceRequest as R\nInferenceRequest (\n  name)", True),
        ("import tritonclient.http as client", True),
        ("from tritonclient.utils import triton_to_np_dtype", False),
        ("def execute(requests: list[pb_utils.InferenceRequest]): ...", False),
        ('"""Uses InferenceRequest(model_name=…) in a future version."""', False),
    ],
)
def test_code_that_sends_requests(tmp_path_factory, code, sends):
    version = tmp_path_factory.mktemp("asker") / "1"
    version.mkdir()
    (version / "model.py").write_text(code)
    assert sends_requests(version.parent) == sends


def test_words_that_no_file_can_be_called(asker):
    words = ["x" * 300, "é" * 200, "a\0b", "..", "/", "x/" * 3000]
    (asker / "1" / "model.py").write_text(f"WORDS = {words}\nNAME = 'core'", encoding="utf-8")
    assert called_models(asker) == ("core",)


def test_a_folder_that_does_not_exist_calls_nothing(tmp_path):
    assert called_models(tmp_path / "missing") == ()


@every_row(
    ("code", "reads"),
    [
        ("json.loads(args['model_config'])['parameters'][\"scale\"]", True),
        ("self.parameters = config['parameters']\nself.parameters.get('scale')", True),
        ("config['parameters']['scales']", False),
        ("args['scale']", False),
    ],
)
def test_a_parameter_that_the_code_may_read(asker, code, reads):
    (asker / "1" / "model.py").write_text(code)
    assert reads_parameter(asker, "scale") == reads


def test_code_that_reads_which_outputs_are_asked_for(tmp_path):
    version = tmp_path / "1"
    version.mkdir()
    for code, reads in {
        "names = request.requested_output_names()": True,
        "InferenceRequest(requested_output_names=['A'])": False,
        "# request.requested_output_names()": False,
    }.items():
        (version / "model.py").write_text(code)
        assert reads_requested_outputs(version.parent) is reads


@pytest.mark.parametrize(
    ("body", "nothing"),
    [
        ("[answer(one) for one in requests]", True),
        ("if not requests: return None\n        return", True),
        ("return [answer(one) for one in requests]", False),
        ("for one in requests: yield answer(one)", False),  # another mistake, which every stub names
        ("one.get_response_sender().send(answer)", False),
        ("return [", False),  # no code
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_execute_that_returns_nothing(asker, kind, body, nothing):
    code = f"class TritonPythonModel:\n    {kind} execute(self, requests):\n        {body}\n"
    (asker / "1/model.py").write_text(code)
    assert returns_nothing(asker) is nothing
    (asker / "1/model.py").write_text("from base import TritonPythonModel")
    assert not returns_nothing(asker)

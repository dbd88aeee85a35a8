import pytest

from envpack.repository import DEFAULT_CONFIG, config_text, find_models, open_model
from envpack.support.errors import InputError


def make(folder, config='backend: "python"\n', code="1/model.py"):
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    if code:
        (folder / code).parent.mkdir(parents=True)
        (folder / code).write_text("")
    return folder


def test_a_python_model(tmp_path):
    model = open_model(make(tmp_path / "core"))
    assert (model.name, model.backend, model.is_ensemble, model.steps) == ("core", "python", False, ())


def test_a_model_without_configuration_gets_the_default(tmp_path):
    model = open_model(make(tmp_path / "core", config=None))
    assert model.backend == "python"
    assert config_text(model) == DEFAULT_CONFIG


def test_default_model_filename_is_honoured(tmp_path):
    config = 'backend: "python" default_model_filename: "net.py"'
    assert open_model(make(tmp_path / "core", config, "3/net.py")).name == "core"


def test_an_ensemble_needs_no_code(tmp_path):
    config = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" }, { model_name: "b" } ] }'
    model = open_model(make(tmp_path / "all", config, code=""))
    assert model.is_ensemble
    assert model.steps == ("a", "b")


@pytest.mark.parametrize(
    ("name", "config", "code", "kind"),
    [
        ("core", 'backend: "python"', "", "model-without-code"),
        ("core", 'backend: "python"', "0/model.py", "model-without-code"),
        ("core", 'backend: "python"', "1/other.py", "model-without-code"),
        ("core", "nonsense", "1/model.py", "bad-config"),
        ("core", 'name: "other" backend: "python"', "1/model.py", "model-name-mismatch"),
        ("core", 'backend: "onnxruntime"', "1/model.onnx", "not-a-python-model"),
        ("my core", 'backend: "python"', "1/model.py", "bad-path"),
        ("core$x", 'backend: "python"', "1/model.py", "bad-path"),
    ],
)
def test_a_model_that_cannot_be_served(tmp_path, name, config, code, kind):
    folder = make(tmp_path / name, config, code)
    with pytest.raises(InputError) as caught:
        open_model(folder)
    assert caught.value.kind == kind
    assert str(folder) in caught.value.where
    assert caught.value.hint


def test_a_missing_model(tmp_path):
    with pytest.raises(InputError, match="model 'core' not found") as caught:
        open_model(tmp_path / "core")
    assert caught.value.kind == "model-missing"


def test_a_folder_that_the_server_loads_as_a_version(tmp_path):
    folder = make(tmp_path / "core")
    (folder / "2tmp").mkdir()
    with pytest.raises(InputError, match="loads this folder as a version"):
        open_model(folder)


def test_find_models_sorts_and_omits_other_folders(tmp_path):
    for name in ("b", "a", ".hidden"):
        make(tmp_path / name)
    make(tmp_path / "onnx", 'backend: "onnxruntime"', "1/model.onnx")
    (tmp_path / "notes").mkdir()
    (tmp_path / "envpack.toml").write_text("")
    assert [model.name for model in find_models(tmp_path)] == ["a", "b"]


def test_find_models_requires_a_folder(tmp_path):
    with pytest.raises(InputError, match="repository not found"):
        find_models(tmp_path / "nowhere")

import pytest

from envpack.repository.config import parse_config
from envpack.repository.folders import find_folder, looks_like_model
from envpack.repository.model import DEFAULT_CONFIG, config_text, examine_model, open_model
from envpack.repository.selection import chosen_folders, model_name, named_models, no_models, open_models
from envpack.support.errors import InputError
from tests.tables import every_row


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
    config = 'backend: "python_own" default_model_filename: "net.json"'
    assert open_model(make(tmp_path / "own", config, "3/net.json")).name == "own", "its code is elsewhere"


@pytest.mark.parametrize("name", ["net.py", "sub/net.py"])
def test_an_absolute_default_model_filename_names_a_file_below_the_version(tmp_path, name):
    """A server waits forever for a model whose file exists only at the root."""
    file = f"1/{name}"
    assert open_model(make(tmp_path / "good", f'default_model_filename: "{name}"', file)).name == "good"
    folder = tmp_path / "core"
    _, (path, code) = examine_model(make(folder, f'default_model_filename: "{folder / file}"', file))
    what = f"default_model_filename is '{folder / file}', and a server takes a path from the version's folder on"
    assert (path.kind, path.message, path.where) == ("bad-path", what, str(folder / "config.pbtxt"))
    assert path.hint == "write the file's name only, or FOLDER/NAME"
    assert (code.kind, code.where) == ("model-without-code", str(folder / "1"))


def test_the_largest_version_fits_into_64_bits(tmp_path):
    assert open_model(make(tmp_path / "core", code=f"{(1 << 63) - 1}/model.py")).name == "core"


def test_an_ensemble_needs_no_code(tmp_path):
    config = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" }, { model_name: "b" } ] }'
    model = open_model(make(tmp_path / "all", config, code=""))
    assert model.is_ensemble
    assert model.steps == ("a", "b")


def _steps(name):
    return f'platform: "ensemble" ensemble_scheduling {{ step [ {{ model_name: "{name}" }} ] }}'


def _environment(path):
    return f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'


@pytest.mark.parametrize(
    ("name", "config", "code", "kind"),
    [
        ("core", 'backend: "python"', "", "model-without-code"),
        ("core", 'backend: "python"', "01/model.py", "model-without-code"),
        ("core", 'backend: "python"', "1/other.py", "model-without-code"),
        ("core", "nonsense", "1/model.py", "bad-config"),
        ("core", 'name: "other" backend: "python"', "1/model.py", "model-name-mismatch"),
        ("core", 'backend: "onnxruntime"', "1/model.onnx", "not-a-python-model"),
        ("my core", 'backend: "python"', "1/model.py", "bad-path"),
        ("core$x", 'backend: "python"', "1/model.py", "bad-path"),
        ("core=x", 'backend: "python"', "1/model.py", "bad-path"),
        ("core", 'default_model_filename: "$(id)model.py"', "1/$(id)model.py", "bad-path"),
        ("core", 'default_model_filename: "my model.py"', "1/my model.py", "bad-path"),
        ("core", f'default_model_filename: "{"é" * 128}"', "1/model.py", "bad-path"),
        ("core", 'default_model_filename: "net.txt"', "1/net.txt", "bad-path"),
        ("core", 'default_model_filename: "net"', "1/net", "bad-path"),
        ("core", 'default_model_filename: "my.net.py"', "1/my.net.py", "bad-path"),
        ("core", 'default_model_filename: "/model.py"', "1/model.py", "bad-path"),
        ("core", 'default_model_filename: "./model.py"', "1/model.py", "bad-path"),
        ("core", 'default_model_filename: "sub//net.py"', "1/sub/net.py", "bad-path"),
        ("core", _environment("/srv/" + "x" * 256), "1/model.py", "bad-path"),
        ("core", 'backend: "python"', f"{1 << 63}/model.py", "odd-version"),
        ("core", 'platform: "python"', "1/model.py", "bad-config"),
        ("core", 'backend: "python" platform: "tensorflow_graphdef"', "1/model.py", "bad-config"),
        ("core", 'platform: "onnxruntime_onnx"', "1/model.py", "not-a-python-model"),
        ("core", 'backend: "onnxruntime"', "1/model.py", "not-a-python-model"),
        ("core", _steps("../other"), "", "bad-config"),
        ("core", _steps("/srv/other"), "", "bad-config"),
        ("core", _steps(".."), "", "bad-config"),
    ],
)
def test_a_model_that_cannot_be_served(tmp_path, name, config, code, kind):
    folder = make(tmp_path / name, config, code)
    with pytest.raises(InputError) as caught:
        open_model(folder)
    assert caught.value.kind == kind
    assert str(folder) in caught.value.where
    assert caught.value.hint


@every_row(
    ("line", "words"),
    [
        ("max_batch_size: ${triton_max_batch_size}", "${triton_max_batch_size} is"),
        ("max_batch_size: {{ batch }}", "{{ batch }} is"),
        ('input { name: "X" data_type: #DTYPE dims: [ #SIZE ] }', "#DTYPE, #SIZE are"),
        ("max_batch_size: %(batch)s", "%(batch)s is"),
        ("{% if batch %}\nmax_batch_size: 8\n{% endif %}", "{% if batch %}, {% endif %} are"),
        ("max_batch_size: $BATCH", "$BATCH is"),
        ("max_batch_size: @BATCH@", "@BATCH@ is"),
        ("max_batch_size: __BATCH__", "__BATCH__ is"),
        ("max_batch_size: <%= batch %>", "<%= batch %> is"),
        ("input < dims: [ <SIZE> ] >\nmax_batch_size: {batch}", "<SIZE>, {batch} are"),
        ("# ${not} a word\ndims ${a} ${b} ${c} ${d} ${e} ${f} ${a}", "${a}, ${b}, ${c}, ${d}, ${e} and 1 more are"),
    ],
)
def test_a_template_names_the_words_that_are_not_filled_in(line, words):
    with pytest.raises(InputError) as caught:
        parse_config(f'backend: "python"\n{line}', "config.pbtxt")
    assert caught.value.message == f"this is a template, in which {words} not filled in"
    assert caught.value.where == f"config.pbtxt:{3 if line.startswith('#') else 2}"


def test_words_like_those_of_templates_in_a_configuration_that_is_whole():
    assert parse_config('backend: "python" # ${x} {{y}}\nname: "$A" #B', "config.pbtxt").name == "$A"
    with pytest.raises(InputError, match="no field named"):
        parse_config("# ${x}\nnonsense: 1", "config.pbtxt")
    environment = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/a" } }\n'
    for text in (environment, "name: '${x} $$MODEL'\n"):
        with pytest.raises(InputError, match="no value named TYPE_FLOAT") as caught:
            parse_config(f"{text}input {{ data_type: TYPE_FLOAT }}", "config.pbtxt")
        assert caught.value.where == "config.pbtxt:2"
    with pytest.raises(InputError, match=r"\$\{y\}, \$\{x\} are not filled in"):
        parse_config(f'{environment}max_batch_size: ${{y}}\nname: "${{x}}"', "config.pbtxt")


def test_a_missing_model(tmp_path):
    with pytest.raises(InputError, match="model 'core' not found") as caught:
        open_model(tmp_path / "core")
    assert caught.value.kind == "model-missing"


def test_a_name_that_no_folder_can_have(tmp_path):
    with pytest.raises(InputError) as caught:
        open_model(tmp_path / ("x" * 256))
    assert caught.value.kind == "model-missing"
    assert find_folder(make(tmp_path / "core").parent, "x" * 256) is None
    assert find_folder(tmp_path, "core") == tmp_path / "core"
    assert [find_folder(tmp_path, name) for name in ("../" + tmp_path.name, ".", "", "core/1", "\0")] == [None] * 5


def test_a_folder_because_of_which_the_server_looks_for_another_version(tmp_path):
    folder = make(tmp_path / "core", code="2tmp/model.py")
    with pytest.raises(InputError) as caught:
        open_model(folder)
    what = "because of this folder, a server loads version 2 of the model from 2, which does not exist"
    assert (caught.value.kind, caught.value.message, caught.value.where) == ("odd-version", what, str(folder / "2tmp"))


@pytest.mark.parametrize("start", ["$$TRITON_MODEL_DIRECTORY", "<folder>"])
def test_the_path_of_an_environment_leads_back_from_the_link_to_a_model_as_on_a_server(tmp_path, start):
    folder = make(tmp_path / "elsewhere/real")
    (tmp_path / "repository").mkdir()
    link = tmp_path / "repository/core"
    link.symlink_to(folder)
    (folder / "config.pbtxt").write_text(_environment(f"{start.replace('<folder>', str(link))}/../other/env"))
    assert open_model(link).environment == tmp_path / "repository/other/env"


def test_a_version_that_is_not_served_needs_no_code(tmp_path):
    folder = make(tmp_path / "core", code="3/model.py")
    for name in ("1", "2", "3_old", "1.bak"):
        (folder / name).mkdir()
    assert open_model(folder).served_versions() == [3]


def test_without_names_models_are_sorted_and_other_folders_omitted(tmp_path):
    for name in ("b", "a", ".hidden"):
        make(tmp_path / name)
    make(tmp_path / "onnx", 'backend: "onnxruntime"', "1/model.onnx")
    (tmp_path / "notes").mkdir()
    (tmp_path / "envpack.toml").write_text("")
    assert [model.name for model in named_models(tmp_path, ())] == ["a", "b"]


def test_errors_say_what_is_wrong_and_where(tmp_path):
    folder = make(tmp_path / "core", 'name: "other" backend: "python"', code="")
    model, (mismatch, code) = examine_model(folder)
    assert (model.name, model.folder) == ("other", folder)
    assert (mismatch.kind, mismatch.where) == ("model-name-mismatch", str(folder / "config.pbtxt"))
    assert (code.kind, code.where) == ("model-without-code", str(folder))
    assert code.hint.endswith("core/1/model.py")


def test_every_version_without_code_is_an_error_the_newest_first(tmp_path):
    folder = make(tmp_path / "core", 'backend: "python" version_policy { all {} }')
    for name in ("2", "3", "0", "02", "x"):
        (folder / name).mkdir()
    assert [fault.where.rpartition("/")[2] for fault in examine_model(folder)[1]] == ["3", "2", "0"]


def test_zero_is_a_version(tmp_path):
    folder = make(tmp_path / "core", 'backend: "python"')
    (folder / "1").rename(folder / "0")
    assert open_model(folder).served_versions() == [0]


@pytest.mark.parametrize(
    ("config", "backend", "kinds"),
    [
        ("", "python", []),
        ('backend: "python_3_8"', "python_3_8", []),
        ('backend: "of_our_own"', "of_our_own", []),
        ('backend: "python" platform: "python"', "python", []),
        ('backend: "python" platform: "onnxruntime_onnx"', "python", []),
        ('platform: "ensemble"', "", []),
        ("ensemble_scheduling {}", "", []),
    ],
)
def test_a_model_with_code_is_a_python_model(tmp_path, config, backend, kinds):
    model, faults = examine_model(make(tmp_path / "core", config))
    assert (model.backend, [fault.kind for fault in faults]) == (backend, kinds)
    assert model.is_ensemble == (not backend)


def test_a_platform_of_another_backend(tmp_path):
    model, faults = examine_model(make(tmp_path / "core", 'platform: "tensorrt_plan"', "1/model.plan"))
    assert (model.backend, model.is_foreign, faults) == ("tensorrt", True, ())
    assert open_model(tmp_path / "core", foreign=True) == model
    with pytest.raises(InputError, match="this is a model of the backend 'tensorrt', not a Python model"):
        open_model(tmp_path / "core")


@pytest.mark.parametrize("backend", ["tensorrtllm", "dali", "fil", "onnxruntime"])
def test_a_backend_of_the_images_is_foreign_also_beside_code_for_the_python_backend(tmp_path, backend):
    model, _ = examine_model(make(tmp_path / "core", f'backend: "{backend}"', "1/model.py"))
    assert (model.is_foreign, model.has_stub) == (True, False)
    with pytest.raises(InputError, match=f"this is a model of the backend '{backend}', not a Python model"):
        open_model(tmp_path / "core")


@every_row(
    ("config", "files", "backend"),  # as a server of Triton 24.10 decides
    [
        (None, ("1/model.py",), "python"),
        (None, ("1/model.onnx",), "onnxruntime"),
        (None, ("1/model.py", "1/model.onnx"), "onnxruntime"),
        (None, ("1/model.pt", "2/model.py"), "pytorch"),
        (None, ("1/model.savedmodel/saved_model.pb",), "tensorflow"),
        ("", ("1/model.plan",), "tensorrt"),
        ('default_model_filename: "model.py"', ("1/model.py", "1/model.onnx"), "python"),
        ('default_model_filename: "model.xml"', ("1/model.py",), "openvino"),
        ('platform: "pytorch_libtorch"', ("1/model.py",), "pytorch"),
        ('platform: "onnxruntime_onnx" backend: "python"', ("1/model.py",), "python"),
        ('backend: "vllm"', ("1/model.json",), "vllm"),
    ],
)
def test_the_backend_of_a_model(tmp_path_factory, config, files, backend):
    folder = make(tmp_path_factory.mktemp("models") / "core", config, code="")
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    assert examine_model(folder)[0].backend == backend
    assert list(open_models(folder.parent)[0]) == ["core"]


@every_row(
    ("name", "config", "files", "backend", "found"),  # as a server of Triton 24.10 decides
    [
        ("core.dali", None, ("1/dali.py",), "dali", True),
        ("core.dali", None, (), "dali", False),  # without a version, as a folder of other files
        ("core.dali", "", ("1/dali.py",), "dali", True),
        ("core.dali", "", ("1/model.py",), "python", True),
        ("core.dali", 'backend: "vllm"', (), "vllm", True),
        ("core.own", "", ("1/data",), "own", True),
        ("core.own", None, ("1/data",), "own", False),
        ("llama-3.1-chat", "", (), "python", True),
    ],
)
def test_the_backend_in_the_name_of_a_model(tmp_path_factory, name, config, files, backend, found):
    folder = make(tmp_path_factory.mktemp("models") / name, config, code="")
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    assert examine_model(folder)[0].backend == backend
    assert looks_like_model(folder) == found


def test_a_model_of_another_backend_needs_no_configuration(tmp_path):
    assert config_text(make(tmp_path / "core", config=None, code="1/model.onnx")) == ""
    with pytest.raises(InputError, match="no Python model in this repository"):
        named_models(tmp_path, ())
    assert chosen_folders(make(tmp_path / "other").parent, []) == ("other",)
    with pytest.raises(InputError, match="not a Python model"):
        chosen_folders(tmp_path, ["core"])


@pytest.mark.parametrize("code", ["", "1/weights.bin"])
@pytest.mark.parametrize(
    ("config", "named"), [("max_batch_size: 8", "config.pbtxt names none"), ("# to do\n", "config.pbtxt is empty")]
)
def test_a_model_needs_a_backend_or_a_file_that_tells_it(tmp_path, config, named, code):
    """As servers say: "Could not determine backend"."""
    (fault,) = examine_model(make(tmp_path / "core", config, code))[1]
    what = f"a server cannot determine the backend: {named}, and no version has a model.py"
    assert (fault.kind, fault.message, fault.where) == ("model-without-code", what, str(tmp_path / "core"))


@pytest.mark.parametrize(
    ("config", "other", "refused"),
    [
        ("max_batch_size: 8", ".ipynb_checkpoints/model.txt", True),
        ("max_batch_size: 8", "01/model.txt", True),
        ("max_batch_size: 8", "docs/model.txt", False),
        ('backend: "python"', ".ipynb_checkpoints/model.txt", False),
        ('default_model_filename: "model.py"', ".ipynb_checkpoints/model.txt", False),
        (None, ".ipynb_checkpoints/model.txt", False),  # a build writes the backend
    ],
)
def test_a_file_shows_the_backend_only_in_the_first_folder(tmp_path, config, other, refused):
    """Seen with Triton 23.04 and 24.10, which say that they could not determine the backend."""
    folder = make(tmp_path / "core", config)
    (folder / other).parent.mkdir()
    (folder / other).touch()
    faults = examine_model(folder)[1]
    assert [fault.kind for fault in faults] == (["model-without-code"] if refused else [])
    assert not refused or f"{other.partition('/')[0]} has no file of one" in faults[0].message


def test_a_file_of_another_backend_shows_it_only_in_the_first_folder(tmp_path):
    folder = make(tmp_path / "core", "max_batch_size: 8", code="1/model.onnx")
    (folder / ".cache").mkdir()
    (fault,) = examine_model(folder)[1]
    assert fault.hint.startswith('write backend: "onnxruntime": ')


@pytest.mark.parametrize("character", list(" \"'`$&|;<>()*?[]{}\\!\t"))
def test_paths_with_characters_of_the_shell_are_rejected(tmp_path, character):
    _, faults = examine_model(make(tmp_path / f"a{character}b"))
    assert [fault.kind for fault in faults] == ["bad-path"]
    assert repr(character) in faults[0].message


@pytest.mark.parametrize("config", ['platform: "onnxruntime_onnx"', 'backend: "fil"', _steps("other")])
def test_no_shell_reads_the_path_of_a_model_without_a_stub(tmp_path, config):
    assert examine_model(make(tmp_path / "a model", config, code=""))[1] == ()


def test_an_ensembles_steps_are_listed_once(tmp_path):
    steps = ", ".join(f'{{ model_name: "{name}" }}' for name in "bab")
    model = open_model(make(tmp_path / "all", f"ensemble_scheduling {{ step [ {steps} ] }}", code=""))
    assert model.steps == ("b", "a")


@pytest.mark.parametrize("name", ["", ".", "..", "b/1"])
def test_a_step_that_is_no_name_of_a_model_is_a_fault(tmp_path, name):
    steps = f'ensemble_scheduling {{ step [ {{ model_name: "{name}" }}, {{ model_name: "a" }} ] }}'
    _, faults = examine_model(make(tmp_path / "all", steps, code=""))
    assert [(fault.kind, repr(name) in fault.message) for fault in faults] == [("bad-config", True)]


def test_models_are_named_by_folder_or_path(tmp_path, monkeypatch):
    make(tmp_path / "models/core")
    repository = tmp_path / "models"
    monkeypatch.chdir(repository / "core")
    for text in ("core", "core/", str(repository / "core"), "../core", ".", "./"):
        assert model_name(repository, text) == "core"
    (tmp_path / "link").symlink_to(repository)
    assert model_name(tmp_path / "link", str(repository / "core")) == "core"
    with pytest.raises(InputError) as caught:
        model_name(repository, str(tmp_path / "other/core"))
    assert caught.value.kind == "other-repository"
    assert caught.value.hint.startswith("name a model of this repository")


def test_named_models_are_read_once_and_all_of_them_without_names(tmp_path):
    for name in ("b", "a"):
        make(tmp_path / name)
    assert [model.name for model in named_models(tmp_path, ["b", "a", "b"])] == ["b", "a"]
    assert [model.name for model in named_models(tmp_path, [])] == ["a", "b"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        named_models(tmp_path / "empty", [])
    assert (caught.value.kind, caught.value.where) == ("repository-empty", str(tmp_path / "empty"))


def test_a_model_that_is_taken_for_a_repository_is_told_apart(tmp_path):
    folder = make(tmp_path / "models/core")
    error = no_models(folder)
    assert error.message == "this folder is a model, not a model repository"
    assert error.hint == f"give the folder that contains the model: --repository {tmp_path / 'models'}"
    inside = no_models(folder / "1")
    assert inside.message == "this folder is in the model core, not a model repository"
    assert inside.hint == error.hint


def test_named_models_reports_errors_of_python_models(tmp_path):
    make(tmp_path / "onnx", 'backend: "onnxruntime"', "1/model.onnx")
    make(tmp_path / "bad", "nonsense")
    with pytest.raises(InputError) as caught:
        named_models(tmp_path, ())
    assert caught.value.kind == "bad-config"


def test_a_configuration_that_is_no_text_is_an_error(tmp_path):
    folder = make(tmp_path / "core")
    (folder / "config.pbtxt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8 text") as caught:
        open_model(folder)
    assert (caught.value.kind, caught.value.where) == ("bad-config", str(folder / "config.pbtxt"))


def test_named_models_requires_a_folder(tmp_path):
    with pytest.raises(InputError, match="repository not found"):
        named_models(tmp_path / "nowhere", ())


@every_row(
    ("config", "fix"),
    [('backend: "onnxruntime"', "models of other backends need no environment"), (None, "creates a working example")],
)
def test_a_repository_without_python_models_may_be_complete(tmp_path_factory, config, fix):
    folder = make(tmp_path_factory.mktemp("models") / "core", config=config, code="")
    with pytest.raises(InputError, match="no Python model in this repository") as refused:
        named_models(folder.parent, ())
    assert fix in refused.value.hint


def test_a_line_of_a_megabyte_is_not_repeated():
    with pytest.raises(InputError) as caught:
        parse_config("parameters [ " * 100_000, "config.pbtxt")
    assert len(caught.value.message) < 500
    assert caught.value.message.endswith('Expected "{"')

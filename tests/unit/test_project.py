"""envpack.toml: what it says, and what it must not say."""

from pathlib import Path

import pytest

from envpack.repository.placement import backends_folder
from envpack.settings.project import open_project, server_variables
from envpack.settings.table import Settings
from envpack.support.errors import InputError, UsageError


def test_without_a_file_nothing_is_said(tmp_path):
    project = open_project(tmp_path)
    assert project.of().triton == ""
    assert project.of("anything").python == ""


def test_models_have_their_python_and_requirements(tmp_path):
    (tmp_path / "envpack.toml").write_text('[models.core]\npython = "3.10"\nrequirements = "shared/core.txt"\n')
    settings = open_project(tmp_path).of("core")
    assert settings.python == "3.10"
    assert settings.requirements == tmp_path / "shared/core.txt"


def test_a_model_can_take_over_an_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "envpack.toml").write_text(
        "[models.a]\nfrom_prefix = 'env'\n[models.b]\nfrom_prefix = '/env'\n[models.c]\nfrom_prefix = '~/env'\n"
    )
    project = open_project(tmp_path)
    found = [str(project.of(name).from_prefix) for name in ("a", "b", "c")]
    assert found == [f"{tmp_path}/env", "/env", "/home/me/env"]


def test_settings_for_a_model_that_is_not_there_are_mentioned(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "envpack.toml").write_text("[models.core]\n[models.croe]\n[models.old]\n")
    assert open_project(tmp_path).warnings == (
        "envpack.toml has settings for croe and old, and there is no such folder",
    )
    (tmp_path / "envpack.toml").write_text("[models.core]\n")
    assert open_project(tmp_path).warnings == ()


def test_a_file_beside_the_repository_is_not_read_without_a_word(tmp_path, monkeypatch):
    repository = tmp_path / "clone/models"
    repository.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert not open_project(repository).warnings
    belongs = f"is not read: the settings of this repository belong in {repository}/envpack.toml"
    for beside, name in ((tmp_path / "clone", f"{tmp_path}/clone/envpack.toml"), (tmp_path, "envpack.toml")):
        (beside / "envpack.toml").write_text("nothing = valid")
        assert open_project(repository).warnings == (f"{name} {belongs}",)
    (repository / "envpack.toml").touch()
    assert not open_project(repository).warnings


def test_a_repository_above_the_working_folder_is_the_same_as_by_its_name(tmp_path, monkeypatch):
    """Its backends lie beside it, not in the model's folder."""
    (tmp_path / "models/m/1").mkdir(parents=True)
    for place, text in (
        ("models", "."),
        ("models/m", ".."),
        ("models/m/1", "../.."),
        ("models/m/1", "../../../models"),
    ):
        monkeypatch.chdir(tmp_path / place)
        project = open_project(Path(text))
        assert (project.repository, backends_folder(project)) == (tmp_path / "models", tmp_path / "backends")


def test_what_shows_settings_shows_no_secret(tmp_path):
    said = Settings(channels=("https://me:secret@conda.example/x",), env=("TOKEN=secret", "HOME"))
    shown = repr(open_project(tmp_path, said))
    assert "secret" not in shown
    assert "channels=('https://***@conda.example/x',), env=('TOKEN', 'HOME')" in shown


def test_layouts_and_the_folder_of_backends(tmp_path):
    (tmp_path / "envpack.toml").write_text(
        "layout = 'backend'\nbackends = '../shared'\n[models.core]\nlayout = 'model'\n"
    )
    project = open_project(tmp_path)
    assert [project.of(name).layout for name in ("", "core", "other")] == ["backend", "model", "backend"]
    assert project.of().backends == tmp_path.parent / "shared"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[models", "not valid TOML"),
        ("pythn = '3.8'", "unknown key 'pythn'"),
        ("[models.core]\npythn = '3.8'", "unknown key 'pythn' in [models.core]"),
        ("[models.core]\npython = 3.10", "must be text"),
        ("layout = 'folder'", "unknown layout 'folder' in the top level"),
        ("layout = '{0} {x} {'", "unknown layout '{0} {x} {' in the top level"),
        ("[models.core]\nlayout = 'folder'", "unknown layout 'folder' in [models.core]"),
        ("backends = 3", "backends in the top level must be text"),
        ("[models.core]\nrequirements = 'r.txt'\nfrom_prefix = 'env'", "both requirements and from_prefix"),
        ("[models.core]\nfrom_prefix = 3", "from_prefix in [models.core] must be text"),
        ("models = 3", "models must be a table"),
        ("[models]\ncore = 3", "[models.core] must be a table"),
    ],
)
def test_what_it_must_not_say_is_named_with_the_file(tmp_path, text, complaint):
    file = tmp_path / "envpack.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        open_project(tmp_path)
    assert complaint in caught.value.message
    assert caught.value.where == str(file)


def test_the_name_of_a_model_with_a_dot_is_quoted(tmp_path):
    (tmp_path / "envpack.toml").write_text('[models.yolo.v5]\nrequirements = "r.txt"\n')
    with pytest.raises(InputError) as raised:
        open_project(tmp_path)
    error = raised.value
    assert error.message == "unknown table 'v5' in [models.yolo]"
    assert error.hint == 'quote the name of a model that contains a dot: [models."yolo.v5"]'
    (tmp_path / "envpack.toml").write_text('[models."yolo.v5"]\nrequirements = "r.txt"\n')
    assert open_project(tmp_path).of("yolo.v5").requirements == tmp_path / "r.txt"


def test_a_repository_that_is_not_there(tmp_path):
    with pytest.raises(InputError) as caught:
        open_project(tmp_path / "nowhere")
    assert caught.value.kind == "repository-missing"


def test_a_variable_for_the_server_without_a_value_has_that_of_this_process(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "a=b")
    assert server_variables(("HF_TOKEN", "A=", "B=c=d")) == {"HF_TOKEN": "a=b", "A": "", "B": "c=d"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("HF_TOKEN", "env has 'HF_TOKEN' without a value, and this shell has no such variable"),
        ("=x", "env has '=x', which names no variable"),
        ("", "env has '', which names no variable"),
    ],
)
def test_a_variable_for_the_server_without_a_value_or_a_name(monkeypatch, entry, message):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(UsageError) as raised:
        server_variables((entry,))
    assert (raised.value.message, raised.value.hint[:16]) == (message, "write NAME=VALUE")


@pytest.mark.parametrize(("leads_to", "reason"), [("/proc/self/mem", "Input/output error"), ("/", "Is a directory")])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, leads_to, reason):
    (tmp_path / "envpack.toml").symlink_to(leads_to)
    with pytest.raises(InputError, match=f"this file cannot be read: {reason}") as raised:
        open_project(tmp_path)
    assert raised.value.hint == "make it a file that you can read, or remove it: envpack works without one, too"

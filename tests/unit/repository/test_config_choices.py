"""Custom configurations, which a server reads in place of config.pbtxt: which files they are, how they are edited."""

import pytest

from envpack.repository import placement
from envpack.repository.config import parse_config
from envpack.repository.config_choices import custom_configs, python_configs
from envpack.repository.model import examine_model, open_model
from envpack.repository.placement import in_model_folder, point_to_environment
from envpack.support.errors import InputError

CUSTOM = '# for large cards\nbackend: "python"\nmax_batch_size: 64\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "core/1").mkdir(parents=True)
    (tmp_path / "core/1/model.py").write_text("")
    (tmp_path / "core/configs").mkdir()
    (tmp_path / "core/config.pbtxt").write_text('backend: "python"\n')
    (tmp_path / "core/configs/large.pbtxt").write_text(CUSTOM)
    return tmp_path / "core"


def environments(folder):
    """The name of the environment in each configuration, ``""`` for none."""
    files = {folder / "config.pbtxt", *folder.glob("configs/*.pbtxt")}
    models = {file.name: examine_model(folder, parse_config(file.read_text(), file))[0] for file in files}
    return {name: place.name if (place := model.environment) else "" for name, model in models.items()}


def test_a_server_chooses_among_the_files_of_one_folder(folder):
    for name in ("notes.txt", ".hidden.pbtxt", "deeper/other.pbtxt"):
        (folder / "configs" / name).parent.mkdir(exist_ok=True)
        (folder / "configs" / name).write_text("")
    (config,) = custom_configs(folder)
    assert (config.file, config.text, config.faults) == (folder / "configs/large.pbtxt", CUSTOM, ())
    assert config.model.config.max_batch_size == 64
    (folder / "configs/large.pbtxt").unlink()
    assert list(custom_configs(folder)) == []
    assert list(custom_configs(folder / "1")) == []


def test_what_is_wrong_names_the_file_of_the_custom_configuration(folder):
    file = folder / "configs/large.pbtxt"
    for text, kind, where in (
        ("max_batch_size: many\n", "bad-config", f"{file}:1"),
        ('name: "other"\n', "model-name-mismatch", str(file)),
        ('platform: "onnx"\n', "bad-config", str(file)),
    ):
        file.write_text(text)
        (config,) = custom_configs(folder)
        assert [(fault.kind, fault.where) for fault in config.faults] == [(kind, where)]
        with pytest.raises(InputError) as refused:
            python_configs(folder)
        assert (refused.value.kind, refused.value.where) == (kind, where)


def test_the_environment_is_named_in_every_configuration_that_runs_python(folder):
    network = 'platform: "onnxruntime_onnx"\n'
    (folder / "configs/network.pbtxt").write_text(network)
    assert point_to_environment(open_model(folder), in_model_folder("env"), "python_3_8", "warm")
    assert (folder / "configs/network.pbtxt").read_text() == network
    text = (folder / "configs/large.pbtxt").read_text()
    assert text.startswith('# for large cards\nbackend: "python_3_8"\nmax_batch_size: 64\n')
    assert "ENVPACK_START" in text
    assert environments(folder) == {"config.pbtxt": "env", "large.pbtxt": "env", "network.pbtxt": ""}
    assert not point_to_environment(open_model(folder), in_model_folder("env"), "python_3_8", "warm")


def test_nothing_is_edited_if_one_configuration_is_wrong(folder):
    (folder / "configs/zero.pbtxt").write_text("max_batch_size: many\n")
    before = {file: file.read_text() for file in folder.rglob("*.pbtxt")}
    with pytest.raises(InputError, match="zero.pbtxt"):
        point_to_environment(open_model(folder), in_model_folder("env"))
    assert {file: file.read_text() for file in folder.rglob("*.pbtxt")} == before


def test_nothing_is_edited_if_one_configuration_cannot_be_replaced(folder, tmp_path, permissions_for_root):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "config.pbtxt").rename(elsewhere / "config.pbtxt")
    (folder / "config.pbtxt").symlink_to(elsewhere / "config.pbtxt")
    elsewhere.chmod(0o555)
    before = {file: file.read_text() for file in folder.rglob("*.pbtxt")}
    with pytest.raises(PermissionError) as refused:
        point_to_environment(open_model(folder), in_model_folder("env"))
    assert refused.value.filename == str(elsewhere)
    assert {file: file.read_text() for file in folder.rglob("*.pbtxt")} == before
    elsewhere.chmod(0o755)
    assert point_to_environment(open_model(folder), in_model_folder("env"))
    elsewhere.chmod(0o555)
    assert not point_to_environment(open_model(folder), in_model_folder("env")), "nothing is to be changed"


@pytest.mark.parametrize("written", [0, 1, 2])
def test_an_end_between_two_files_leaves_all_valid_and_config_pbtxt_for_the_next_build(folder, monkeypatch, written):
    (folder / "configs/small.pbtxt").write_text(CUSTOM)
    point_to_environment(open_model(folder), in_model_folder("old"))
    write, left = placement.write_text, [None] * written

    def write_some(file, text):
        left.pop()  # an IndexError in place of a kill
        write(file, text)

    monkeypatch.setattr(placement, "write_text", write_some)
    with pytest.raises(IndexError):
        point_to_environment(open_model(folder), in_model_folder("new"))
    order = ("large.pbtxt", "small.pbtxt", "config.pbtxt")
    assert environments(folder) == {name: "new" if place < written else "old" for place, name in enumerate(order)}
    monkeypatch.undo()
    assert point_to_environment(open_model(folder), in_model_folder("new"))
    assert set(environments(folder).values()) == {"new"}

"""The findings in a repository: models, configurations, files and links."""

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from envpack.inspection.repository import inspect_repository, is_repository
from envpack.repository.config_editor import set_backend
from envpack.repository.placement import in_model_folder
from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import InputError
from tests.tables import every_row
from tests.unit.inspection.findings import kinds, name_environment


def test_a_good_repository_has_no_findings(project, release):
    found = inspect_repository(project, release)
    assert found.findings == ()
    assert found.models == ("both", "one", "two")
    assert found.ok


@pytest.fixture
def unprivileged():
    """A folder in the system's for temporary files, and a user who must obey the modes of files."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        user = os.geteuid()
        yield Path(folder), (lambda: os.seteuid(65534) if user == 0 else None)
        os.seteuid(user)


def test_a_model_that_cannot_be_read_does_not_hide_the_others(release, unprivileged):
    repository, become_nobody = unprivileged
    for name in ("config", "folder", "loose"):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text('backend: "python"\n')
    (repository / "config/config.pbtxt").chmod(0)
    (repository / "folder").chmod(0)
    become_nobody()
    found = inspect_repository(Project(repository=repository), release)
    assert [(finding.kind, finding.where, finding.fix) for finding in found.findings] == [
        ("unreadable", repository / "config/config.pbtxt", f"make it readable: `chmod -R u+rX {repository}/config`"),
        ("unreadable", repository / "folder", f"make it readable: `chmod -R u+rX {repository}/folder`"),
        ("model-without-code", repository / "loose/1", found.findings[-1].fix),
    ]


def test_an_endless_link_is_named(project, release):
    endless_link(project.repository / "one")
    (finding,) = inspect_repository(project, release, ["one"]).findings
    assert finding.where == project.repository / "one/1/again"
    what = "this is a link to a folder that contains it: servers walk it many times, and it cannot be deployed"
    assert (finding.what, finding.fix) == (what, "remove the link, or let it name only what the model needs")


def test_modes_are_not_blamed_for_a_file_that_is_too_large(project, release):
    config = project.repository / "one/config.pbtxt"
    with config.open("r+b") as file:
        file.truncate(1 << 40)
    (finding,) = (found for found in inspect_repository(project, release, ["one"]).findings if found.where == config)
    assert (finding.kind, finding.fix) == ("unreadable", "replace it by a file that can be read, or remove it")
    assert finding.what == "cannot be read: it is larger than 4194304 bytes"


def test_an_ensemble_of_a_model_that_cannot_be_read(project, release, permissions_for_root):
    (project.repository / "two/config.pbtxt").chmod(0)
    assert inspect_repository(project, release, ["both"]).findings == ()


def test_settings_for_a_model_that_is_not_there_are_a_warning(project, release):
    named = dataclasses.replace(project, models={"one": Settings(), "oen": Settings()})
    found = inspect_repository(named, release)
    (finding,) = found.findings
    assert (finding.kind, finding.severity, finding.where) == ("settings-unused", "warning", project.file)
    assert finding.what == "[models.oen] is for a model that the repository does not have"
    assert inspect_repository(named, release, ["one"]).findings == (), "of a single model, nothing is said of others"


def test_repositories_and_environments_are_distinguished(project, environment, tmp_path):
    assert is_repository(project.repository)
    assert not is_repository(environment)
    assert not is_repository(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert not is_repository(tmp_path / "empty")
    (tmp_path / "empty/envpack.toml").touch()
    assert is_repository(tmp_path / "empty")


def stray(model):
    (model.parent / "notes").mkdir()


def hidden(model):
    (model.parent / ".git").mkdir()


def odd_version(model):
    (model / "2tmp").mkdir()
    (model / "2tmp/model.py").touch()


def empty_version(model):
    (model / "2").mkdir()


def no_code(model):
    (model / "1/model.py").unlink()


def broken_config(model):
    (model / "config.pbtxt").write_text("nonsense {")


def config_of_a_newer_server(model):
    (model / "config.pbtxt").write_text('backend: "python"\nno_such_field: 1\n')


def other_name(model):
    with (model / "config.pbtxt").open("a") as config:
        config.write('name: "other"\n')


def no_environment(model):
    shutil.rmtree(model / "env")


def unusable_environment(model):
    (model / "env/bin/activate").unlink()


def environment_without_libpython(model):
    next((model / "env/lib").glob("libpython*")).unlink()


def relative_environment(model):
    text = (model / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(text.replace("$$TRITON_MODEL_DIRECTORY/", ""))


def keyword_in_the_middle(model):
    text = (model / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(text.replace("$$TRITON", "/tmp/$$TRITON"))


def spaced_environment(model):
    (model / "env").rename(model / "my env")
    name_environment(model, in_model_folder("my env"))


def private_code(model):
    (model / "1/model.py").chmod(0o600)


def private_model(model):
    model.chmod(0o700)


def private_folder_of_an_environment(model):
    (model / "env/lib").chmod(0o750)


def changed_environment(model):
    listed = ["bin/activate", "file", "x", 99, "0" * 64, "", ""]
    (model / "env/envpack-files.json").write_text(json.dumps({"schema": 1, "files": [listed]}))
    (model / "env/envpack-environment.json").write_text(json.dumps({"key": "key"}))


def broken_link(model):
    (model / "1/weights").symlink_to("/nowhere/weights")


def endless_link(model):
    (model / "1/again").symlink_to("..")
    (model / "env/bin").mkdir(exist_ok=True)
    (model / "env/bin/X11").symlink_to(".")  # as packages of an environment have them


def no_step(model):
    shutil.rmtree(model)


def unknown_backend(model):
    config = model / "config.pbtxt"
    config.write_text(set_backend(config.read_text(), "python_3_10", config))


def not_a_stub(model):
    (model / "triton_python_backend_stub").write_text("#!/bin/sh\nexit 1\n")
    (model / "triton_python_backend_stub").chmod(0o755)


def dangling_stub(model):
    (model / "triton_python_backend_stub").symlink_to("../stub")


BREAKS = {
    stray: [("error", "stray-folder")],
    hidden: [("error", "stray-folder")],
    odd_version: [("error", "odd-version")],
    empty_version: [("error", "model-without-code")],
    no_code: [("error", "model-without-code")],
    broken_config: [("error", "bad-config")],
    config_of_a_newer_server: [("error", "bad-config")],
    other_name: [("error", "model-name-mismatch")],
    no_environment: [("error", "environment-missing")],
    unusable_environment: [("error", "environment-unusable")],
    environment_without_libpython: [("warning", "libpython-missing")],
    relative_environment: [("error", "bad-environment-path")],
    keyword_in_the_middle: [("error", "bad-environment-path")],
    spaced_environment: [("error", "bad-path")],
    private_code: [("warning", "not-for-everybody")],
    changed_environment: [("error", "environment-changed")],
    private_model: [("warning", "not-for-everybody")],
    private_folder_of_an_environment: [("warning", "not-for-everybody")],
    broken_link: [("error", "broken-link")],
    endless_link: [("warning", "endless-link")],
    no_step: [("error", "step-missing")],
    unknown_backend: [("error", "backend-missing")],
    not_a_stub: [("error", "not-a-stub")],
    dangling_stub: [("error", "broken-link"), ("error", "not-a-stub")],
}


@pytest.mark.parametrize("change", BREAKS, ids=lambda change: change.__name__)
def test_each_kind_of_damage_is_found(project, release, change):
    change(project.repository / "one")
    assert kinds(project, release) == BREAKS[change]


def test_the_hint_for_a_step_whose_folder_has_another_name_makes_it_found(project, release):
    config = project.repository / "one/config.pbtxt"
    config.write_text(f'name: "one"\n{config.read_text()}')
    config.parent.rename(project.repository / "uno")
    fixes = {finding.kind: finding.fix for finding in inspect_repository(project, release).findings}
    assert fixes["step-missing"] == "rename the folder uno to one"
    (project.repository / "uno").rename(project.repository / "one")
    assert kinds(project, release) == []


def test_a_configuration_in_the_folder_of_a_version_is_found_there(project, release):
    config = project.repository / "both/config.pbtxt"
    misplaced = config.parent / "1/config.pbtxt"
    misplaced.parent.mkdir(exist_ok=True)
    config.rename(misplaced)
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.where) == ("stray-folder", config.parent)
    assert finding.fix.startswith("move 1/config.pbtxt to both/config.pbtxt; or")
    misplaced.rename(config)
    assert kinds(project, release) == []


def test_a_template_that_nothing_has_filled_in_is_named(project, release):
    for model, name in (("both", "config.pbtxt.template"), ("one", "config.pbtxt.j2")):
        config = project.repository / model / "config.pbtxt"
        config.rename(config.with_name(name))
    other, template = inspect_repository(project, release).findings
    assert (other.kind, other.where, template.severity) == ("stray-folder", project.repository / "both", "warning")
    assert other.fix.startswith("fill in config.pbtxt.template as config.pbtxt; or, if this is no model, move it")
    assert (template.kind, template.where.name) == ("template-unfilled", "config.pbtxt.j2")


def test_an_environment_may_lie_in_the_folder_of_another_model(project, release):
    """The servers from 23.04 to 24.10 that were tried resolve such a path, and published models share archives so."""
    one = project.repository / "one"
    (one / "env").rename(project.repository / "two/of_one")
    text = (one / "config.pbtxt").read_text()
    (one / "config.pbtxt").write_text(text.replace(in_model_folder("env"), in_model_folder("../two/of_one")))
    assert kinds(project, release) == []


def test_no_shell_gets_the_path_of_an_archive(project, release):
    """The server of Triton 24.10 unpacks it."""
    spaced_environment(project.repository / "one")
    shutil.rmtree(project.repository / "one/my env")
    (project.repository / "one/my env").write_bytes(b"no archive")
    assert kinds(project, release) == [("error", "archive-unsupported")]


@pytest.mark.parametrize("link", [".", "one", "one/env"])
def test_a_link_to_an_environment_by_a_path_that_a_shell_splits(project, release, tmp_path, link):
    """A server hangs with it; it takes the model's own path as it is written."""
    linked, spaced = project.repository / link, tmp_path / "my files"
    linked.rename(spaced)
    linked.symlink_to(spaced)
    finding = inspect_repository(project, release, ["one"]).findings[0]
    environment = project.repository / "one/env"
    assert (finding.kind, finding.severity, finding.where) == ("bad-path", "error", environment)
    real = str(environment.resolve())
    assert finding.what == f"links lead to {real!r}, which contains ' ', and servers pass it to a shell unquoted"
    elsewhere = dataclasses.replace(project, said=Settings(served_from="/models"))
    assert inspect_repository(elsewhere, release, ["one"]).findings == ()


COMPLETES = (
    "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n        return config\n"
)
NO_VERSION = "version_policy allows none of the versions that are there"


@every_row(
    ("more", "what"),
    [
        ("version_policy { latest { } }", NO_VERSION),
        ("version_policy { latest { num_versions: 0 } }", NO_VERSION),
        ("version_policy { specific { versions: [5] } }", NO_VERSION),
        ("max_batch_size: -1", "'max_batch_size' must be non-negative value"),
        ("dynamic_batching { preferred_batch_size: 4 }", "preferred_batch_size is 4, and max_batch_size is 0"),
        ("instance_group { kind: KIND_CPU gpus: [0] }", "an instance_group has KIND_CPU and gpus"),
    ],
)
def test_what_neither_code_nor_a_backend_completes(release, tmp_path_factory, more, what):
    models = tmp_path_factory.mktemp("models")
    for name, backend, file, code in (
        ("plain", "python", "model.py", ""),
        ("completing", "python", "model.py", COMPLETES),
        ("other", "onnxruntime", "model.onnx", ""),
    ):
        (models / name / "1").mkdir(parents=True)
        (models / name / "1" / file).write_text(code)
        tensors = 'input { name: "X" data_type: TYPE_FP32 dims: [1] }\n'
        (models / name / "config.pbtxt").write_text(f'backend: "{backend}"\n{tensors}{more}\n')
    found = inspect_repository(Project(repository=models), release).findings
    errors = [finding for finding in found if finding.severity == "error"]
    assert [finding.what for finding in errors] == [what] * 3
    assert {(finding.kind, finding.where.name) for finding in errors} <= {
        ("bad-config", "config.pbtxt"),
        ("version-missing", "config.pbtxt"),
    }


def test_all_problems_are_found_at_once_with_a_fix(project, release):
    one, two = project.repository / "one", project.repository / "two"
    together = [stray, spaced_environment, other_name, private_code, broken_link, not_a_stub, odd_version]
    for change in together:
        change(one)
    broken_config(two)
    found = inspect_repository(project, release)
    expected = {kind for change in (*together, broken_config) for _, kind in BREAKS[change]}
    assert {finding.kind for finding in found.findings} == expected
    assert all(finding.what and finding.fix and finding.where.is_absolute() for finding in found.findings)
    assert not found.ok


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 36000000\n"


class TestPointers:
    """A file that git-lfs did not fetch is reported as such, and not as a damaged stub or archive as well."""

    def pointers(self, project, release):
        return [
            (f.kind, f.where.name, f.what.partition("itself")[2]) for f in inspect_repository(project, release).findings
        ]

    def test_a_stub(self, project, release):
        (project.repository / "one/triton_python_backend_stub").write_text(POINTER)
        (project.repository / "one/triton_python_backend_stub").chmod(0o755)
        assert self.pointers(project, release) == [("lfs-pointer", "triton_python_backend_stub", "")]

    def test_an_archive_in_the_model_and_other_files(self, project, release):
        one = project.repository / "one"
        shutil.rmtree(one / "env")
        for name in ("env.tar.gz", "1/weights.bin"):
            (one / name).write_text(POINTER)
        name_environment(one, in_model_folder("env.tar.gz"))
        assert self.pointers(project, release) == [("lfs-pointer", "env.tar.gz", " (and 1 more)")]

    def test_an_archive_outside_of_the_model(self, project, release, tmp_path):
        (tmp_path / "env.tar.gz").write_text(POINTER)
        name_environment(project.repository / "one", str(tmp_path / "env.tar.gz"))
        assert self.pointers(project, release) == [("lfs-pointer", "env.tar.gz", "")]


def test_named_models_and_a_missing_one(project, release):
    stray(project.repository / "one")
    broken_config(project.repository / "two")
    assert kinds(project, release, names=["one"]) == []
    with pytest.raises(InputError) as caught:
        inspect_repository(project, release, ["none"])
    assert caught.value.kind == "model-missing"


@pytest.mark.parametrize("said", ['platform: "torch_aoti"', 'runtime: "model.py"'])
def test_a_backend_may_have_files_of_other_names(project, release, said):
    (project.repository / "net/1").mkdir(parents=True)
    (project.repository / "net/config.pbtxt").write_text(f'backend: "pytorch" {said}')
    assert kinds(project, release) == []


def test_a_file_that_dvc_keeps_is_fetched_by_dvc(project, release):
    net = project.repository / "net"
    (net / "1").mkdir(parents=True)
    (net / "config.pbtxt").write_text('backend: "onnxruntime"')
    (net / "1/model.onnx.dvc").touch()
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.fix) == ("model-file-missing", f"fetch it: `dvc pull {net}/1/model.onnx.dvc`")
    (net / "1/model.onnx.dvc").rename(net / "1.dvc")
    (net / "1").rmdir()
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.fix) == ("version-missing", f"fetch it: `dvc pull {net}/1.dvc`")


def test_a_model_of_another_backend_has_versions_with_its_file(project, release):
    net = project.repository / "net"
    net.mkdir()
    (net / "config.pbtxt").write_text('backend: "onnxruntime"')
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.fix) == ("version-missing", "put model.onnx in net/1")
    (net / "1").mkdir()
    assert kinds(project, release) == [("error", "model-file-missing")]
    (net / "at_root.onnx").touch()
    (net / "config.pbtxt").write_text(f'backend: "onnxruntime" default_model_filename: "{net}/at_root.onnx"')
    assert kinds(project, release) == [("error", "model-file-missing")], "a server joins the name to the version"
    (net / "config.pbtxt").write_text('backend: "onnxruntime" default_model_filename: "/model.onnx"')
    (net / "1/model.onnx").touch()
    assert kinds(project, release) == []
    (net / "config.pbtxt").write_text('backend: "fastertransformer" default_model_filename: "gpt3_345M"')
    assert kinds(project, release) == [], "nobody knows what it loads"
    (net / "config.pbtxt").unlink()  # the server completes it
    assert kinds(project, release) == []
    (net / "config.pbtxt").write_text('backend: "of_our_own"')
    (net / "1/model.onnx").rename(net / "1/net.bin")
    assert kinds(project, release) == []


def test_an_ensemble_without_a_version_folder(project, release):
    (project.repository / "both/1").rmdir()
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.where) == ("version-missing", project.repository / "both")
    assert finding.fix.startswith(f"mkdir {project.repository}/both/1,")
    (project.repository / "both/1").mkdir()
    assert kinds(project, release) == []


@pytest.mark.parametrize(("kind", "name"), [("input", "X"), ("output", "Y")])
def test_a_tensor_that_is_declared_twice_is_served(project, release, kind, name):
    with (project.repository / "one/config.pbtxt").open("a") as config:
        config.write(f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: [1] }}')
    (finding,) = inspect_repository(project, release).findings
    assert (finding.severity, finding.kind) == ("warning", "declared-twice")
    assert finding.what.startswith(f"the {kind} '{name}' is declared 2 times")


def test_state_that_the_python_backend_does_not_update_is_a_warning(project, release):
    with (project.repository / "one/config.pbtxt").open("a") as config:
        config.write('sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [1] } }')
    (finding,) = inspect_repository(project, release).findings
    assert (finding.severity, finding.kind) == ("warning", "state-ignored")
    assert ": S is the initial one" in finding.what


def start_warm(folder):
    with (folder / "config.pbtxt").open("a") as config:
        config.write('parameters { key: "ENVPACK_START" value { string_value: "warm" } }\n')


def test_models_that_start_warm_are_named_and_need_a_stub_of_envpack(project, release, foreign_stub):
    folder = project.repository / "one"
    start_warm(folder)
    assert inspect_repository(project, release).warm == ("one",)
    assert kinds(project, release) == [("warning", "start-ignored")]
    shutil.copy(foreign_stub, folder)
    assert kinds(project, release) == [("warning", "stub-needs-libpython")]


def test_a_model_of_a_backend_for_its_python_has_a_stub_there(project, release):
    start_warm(project.repository / "one")
    config = project.repository / "one/config.pbtxt"
    config.write_text(set_backend(config.read_text(), "python_3_10", config))
    assert ("warning", "start-ignored") not in kinds(project, release)


class TestCustomConfigurations:
    """What a server reads in place of config.pbtxt is inspected like it, and findings name its file."""

    @pytest.fixture
    def custom(self, project):
        (project.repository / "one/configs").mkdir()
        return project.repository / "one/configs/large.pbtxt"

    def found(self, project, release):
        found = inspect_repository(project, release).findings
        return [
            (finding.severity, finding.kind, str(finding.where.relative_to(project.repository))) for finding in found
        ]

    def test_a_good_one(self, project, release, custom):
        custom.write_text((project.repository / "one/config.pbtxt").read_text() + "max_batch_size: 64\n")
        assert self.found(project, release) == []

    def test_one_that_is_not_valid(self, project, release, custom):
        custom.write_text('backend: "python"\nmax_batch_size: many\n')
        assert self.found(project, release) == [("error", "bad-config", "one/configs/large.pbtxt:2")]

    def test_one_without_the_environment(self, project, release, custom):
        custom.write_text('backend: "python"\n')
        assert self.found(project, release) == [("warning", "not-built", "one/configs/large.pbtxt")]

    def test_one_with_another_environment_that_does_not_exist(self, project, release, custom):
        text = (project.repository / "one/config.pbtxt").read_text()
        custom.write_text(text.replace("$$TRITON_MODEL_DIRECTORY/", "$$TRITON_MODEL_DIRECTORY/gone-"))
        assert self.found(project, release) == [("error", "environment-missing", "one/configs/large.pbtxt")]

    def test_one_of_an_ensemble_whose_step_is_missing(self, project, release, custom):
        text = (project.repository / "both/config.pbtxt").read_text()
        (project.repository / "both/configs").mkdir()
        (project.repository / "both/configs/other.pbtxt").write_text(text.replace('"one"', '"none"'))
        assert ("error", "step-missing", "both/configs/other.pbtxt") in self.found(project, release)

    def test_one_for_another_backend(self, project, release, custom):
        custom.write_text('platform: "onnxruntime_onnx"\n')
        assert self.found(project, release) == [("error", "model-file-missing", "one/1")]

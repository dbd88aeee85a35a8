"""The findings in what configurations say, and in custom ones."""

import shutil

import pytest

from envpack.inspection.repository import inspect_repository
from envpack.repository.config_editor import set_backend
from envpack.settings.project import Project
from tests.tables import every_row
from tests.unit.inspection.findings import kinds


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

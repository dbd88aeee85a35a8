"""What every server refuses of an ensemble by itself, and the fix."""

from envpack.inspection.configuration import ensemble_findings
from envpack.inspection.repository import inspect_repository
from envpack.repository.model import open_model
from envpack.settings.project import Project
from tests.tables import every_row

TENSORS = """input { name: "IN" data_type: TYPE_FP32 dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
"""
STEP = """step { model_name: "one" model_version: -1
  input_map { key: "X" value: "IN" } output_map { key: "Y" value: "OUT" } }
"""
ENSEMBLE = f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ {STEP} }}\n'
MAPS = "correct the steps and their maps"


def findings(folder, config):
    (folder / "both/1").mkdir(parents=True, exist_ok=True)
    (folder / "both/config.pbtxt").write_text(config)
    return [(finding.kind, finding.what, finding.fix) for finding in ensemble_findings(open_model(folder / "both"), {})]


def test_an_ensemble_whose_tensors_flow_has_no_findings(tmp_path):
    assert findings(tmp_path, ENSEMBLE) == []


@every_row(
    ("config", "code", "refused"),
    [
        ('backend: "python"', "class TritonPythonModel: pass", True),
        ('backend: "python"', "from models.base import TritonPythonModel", False),
        ('backend: "python"', "class TritonPythonModel:\n    auto_complete_config = None", False),
        ('backend: "onnxruntime"', "", False),
    ],
)
def test_a_step_without_declared_tensors_fits_only_if_something_can_add_them(
    tmp_path_factory, release, config, code, refused
):
    repository = tmp_path_factory.mktemp("repository")
    for name, text in {"one": config, "both": ENSEMBLE}.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(text)
    (repository / "one/1/model.py").write_text(code)
    found = inspect_repository(Project(repository=repository), release, ("both",)).findings
    assert [finding.what for finding in found] == [
        "in ensemble both, ensemble tensor IN is mapping to non-existing input X in model one",
        "in ensemble both, ensemble tensor OUT is mapped from non-existing output Y in model one",
    ] * refused


def test_ensembles_that_run_each_other_are_found_from_each_that_leads_to_them(tmp_path, release):
    for name, runs in {"first": "one", "one": "two", "two": "one"}.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(ENSEMBLE.replace('"one"', f'"{runs}"'))
    for names in ((), ("first",), ("one",), ("two",)):
        found = inspect_repository(Project(repository=tmp_path), release, names).findings
        assert [finding.what for finding in found if finding.kind == "ensemble-cycle"], names


@every_row(
    ("old", "new", "what", "fix"),
    [
        ("", "instance_group { count: 1 }\n", "an ensemble has no instances", "remove instance_group"),
        (
            "",
            'backend: "python"\n',
            'an ensemble must have platform: "ensemble" and no backend',
            'write platform: "ensemble" in place of backend',
        ),
        (
            'platform: "ensemble"',
            'backend: "python"',
            'an ensemble must have platform: "ensemble" and no backend',
            'write platform: "ensemble" in place of backend',
        ),
        (
            "output_map {",
            'output_map { key: "Z" value: "instance_group" } output_map {',
            "no step reads the tensor 'instance_group'",
            MAPS,
        ),
        (STEP, "", "the ensemble has no step in ensemble_scheduling", MAPS),
        ('output_map { key: "Y" value: "OUT" }', "", "step 0 has no output_map", MAPS),
        (
            "model_version: -1",
            "",
            "step 0 has no model_version",
            "write model_version: -1, which stands for the newest",
        ),
    ],
)
def test_each_fault_has_its_fix(tmp_path_factory, old, new, what, fix):
    ((kind, found, hint),) = findings(tmp_path_factory.mktemp("repository"), ENSEMBLE.replace(old, new, 1))
    assert kind == "ensemble-mismatch"
    assert found.startswith(what)
    assert hint == fix

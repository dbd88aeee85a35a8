"""A model is current, changed or unbuilt by the digest that a build records in the environment's metadata."""

import dataclasses
import json

import pytest

from envpack.inspection.repository import inspect_repository
from envpack.inspection.state import build_state, record_requirements
from envpack.repository.config_editor import set_execution_environment
from envpack.repository.model import open_model
from envpack.repository.placement import in_model_folder, point_to_environment
from envpack.requirements.format import read_requirements
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.support.placed_files import MANIFEST
from tests.tables import every_row


@pytest.fixture
def model(project):
    folder = project.repository / "one"
    (folder / "requirements.txt").write_text("numpy\n# a comment\npillow==10.4.0\n")
    return folder


@pytest.fixture(params=["folder", "archive"])
def placed(request, model):
    """A folder or an archive with metadata, as a build places it."""
    metadata = json.dumps({"minor": "3.10", "platform": "linux-64"})
    if request.param == "folder":
        (model / "env" / MANIFEST).write_text(metadata)
        return model / "env"
    archive = model / "env.tar.gz"
    archive.write_bytes(b"packed")
    archive.with_name("env.tar.gz.json").write_text(metadata)
    point_to_environment(open_model(model), in_model_folder("env.tar.gz"))
    return archive


def state(project, model, release):
    return build_state(project, open_model(model), release)


def kinds(project, release):
    return [finding.kind for finding in inspect_repository(project, release, ["one"]).findings]


def test_a_model_is_current_until_its_requirements_change(project, model, placed, release):
    assert state(project, model, release).status == "unknown"
    record_requirements(placed, read_requirements(model / "requirements.txt"))
    assert state(project, model, release).status == "current"
    (model / "requirements.txt").write_text("pillow==10.4.0\nnumpy\n")
    assert state(project, model, release).status == "current"
    (model / "requirements.txt").write_text("pillow==11.0.0\nnumpy\n")
    changed = state(project, model, release)
    assert changed.status == "changed"
    assert "requirements.txt" in changed.reason
    assert changed.fix == "run `envpack build one`"


def test_inspect_warns_of_changed_requirements(project, model, release):
    (model / "env" / MANIFEST).write_text(json.dumps({"minor": "3.10"}))
    record_requirements(model / "env", read_requirements(model / "requirements.txt"))
    assert kinds(project, release) == []
    (model / "requirements.txt").unlink()
    assert kinds(project, release) == ["requirements-changed"]
    assert inspect_repository(project, release, ["one"]).ok


@pytest.mark.parametrize("linked", [False, True])
def test_an_environment_of_another_model_was_built_from_that_ones_requirements(project, model, placed, release, linked):
    record_requirements(placed, read_requirements(model / "requirements.txt"))
    value = f"$$TRITON_MODEL_DIRECTORY/../one/{placed.name}"
    if linked:
        (project.repository / "two/linked").symlink_to(placed)
        value = in_model_folder("linked")
    config = project.repository / "two/config.pbtxt"
    config.write_text(set_execution_environment(config.read_text(), value, config))
    for requirements in ("numpy\n", ""):
        assert state(project, project.repository / "two", release).status == "unknown"
        (project.repository / "two/requirements.txt").write_text(requirements)
    assert state(project, model, release).status == "current"


def test_inspect_reports_how_to_build_a_model_that_was_never_built(project, model, release):
    (model / "config.pbtxt").unlink()
    (finding,) = inspect_repository(project, release, ["one"]).findings
    assert (finding.kind, finding.severity) == ("not-built", "warning")
    assert "requirements.txt" in finding.what
    assert finding.fix == "run `envpack build one`"


def test_inspect_names_imports_of_a_model_without_requirements_which_a_server_may_have(project, model, release):
    (model / "config.pbtxt").unlink()
    (model / "requirements.txt").unlink()
    code = model / "1/model.py"
    code.write_text(f"import numpy\n\nimport tree\n{code.read_text()}")
    inspected = inspect_repository(project, release, ["one"])
    (finding,) = inspected.findings
    assert inspected.ok
    assert (finding.kind, finding.severity, str(finding.where)) == ("requirements-missing", "warning", f"{code}:3")
    assert finding.fix.startswith(f"write numpy and tree into {model}/requirements.txt")
    (project.repository / "envpack.toml").write_text('[models.one]\nfrom_prefix = "/opt/conda"\n')
    assert kinds(open_project(project.repository), release) == []


def test_inspect_names_what_a_build_of_a_new_model_would_refuse(project, model, release):
    (model / "config.pbtxt").unlink()
    (model / "requirements.txt").write_text("numpy\npillow=>1\n")
    (finding,) = inspect_repository(project, release, ["one"]).findings
    assert (finding.kind, finding.severity) == ("bad-requirements", "error")
    assert str(finding.where) == f"{model / 'requirements.txt'}:2"


@every_row(
    ("line", "what"),
    [
        ("numpy-1-0.conda#" + "a" * 32, "the lock has no package python, so"),
        ("python-3.10.1-0.conda", "has no hash, so"),
    ],
)
def test_inspect_names_what_a_build_of_a_list_of_conda_would_refuse(project, model, release, line, what):
    (model / "config.pbtxt").unlink(missing_ok=True)
    (model / "requirements.txt").write_text(f"@EXPLICIT\nhttps://a.org/linux-64/{line}\n")
    (finding,) = inspect_repository(project, release, ["one"]).findings
    assert (finding.kind, finding.severity, finding.where) == (
        "bad-requirements",
        "error",
        model / "requirements.txt",
    )
    assert what in finding.what


def test_requirements_of_a_new_model_are_read_for_a_python_that_they_allow(project, model, release):
    (model / "config.pbtxt").unlink()
    (model / "requirements.txt").unlink()
    url = "https://a.org/six-1-cp312-cp312-linux_x86_64.whl"  # none for the newest
    wheel = f'wheels = [{{ url = "{url}", hashes = {{ sha256 = "{"0" * 64}" }} }}]'
    header = 'lock-version = "1.0"\nrequires-python = ">=3.12"\ncreated-by = "x"\n'
    (model / "pylock.toml").write_text(f'{header}[[packages]]\nname = "six"\nversion = "1"\n{wheel}\n')
    assert kinds(project, release) == ["not-built"]


def test_requirements_that_envpack_toml_names_must_be_there(project, model, release):
    (model / "config.pbtxt").unlink()
    named = dataclasses.replace(project, models={"one": Settings(requirements=model / "absent.txt")})
    (finding,) = inspect_repository(named, release, ["one"]).findings
    assert (finding.kind, finding.severity, finding.where) == ("bad-requirements", "error", model / "absent.txt")
    assert finding.fix == "create it, or correct its name in envpack.toml"


def test_a_model_without_requirements_and_environment_has_no_known_state(project, model, release):
    (model / "config.pbtxt").unlink()
    (model / "requirements.txt").unlink()
    assert state(project, model, release).status == "unknown"


def test_an_ensemble_is_never_built(project, release):
    assert state(project, project.repository / "both", release).status == "unknown"


def test_inspect_reports_requirements_that_cannot_be_read(project, model, release):
    (model / "env" / MANIFEST).write_text(json.dumps({"minor": "3.10"}))
    record_requirements(model / "env", read_requirements(model / "requirements.txt"))
    (model / "requirements.txt").write_text("numpy ===== 1\n")
    assert kinds(project, release) == ["bad-requirements"]


def test_an_environment_from_a_prefix_has_no_recorded_requirements(model):
    (model / "env" / MANIFEST).write_text(json.dumps({"minor": "3.10"}))
    before = (model / "env" / MANIFEST).read_text()
    record_requirements(model / "env", read_requirements(model / "requirements.txt"))
    assert json.loads((model / "env" / MANIFEST).read_text())["requirements"]
    record_requirements(model / "env", None)
    assert json.loads((model / "env" / MANIFEST).read_text()) == json.loads(before)


def test_a_change_of_the_requirements_of_all_models_is_one_of_each_without_its_own(project, model, placed, release):
    general = (model / "requirements.txt").rename(project.repository / "all.txt")
    (project.repository / "envpack.toml").write_text('requirements = "all.txt"\n')
    project = open_project(project.repository)
    record_requirements(placed, read_requirements(general))
    assert state(project, model, release).status == "current"
    general.write_text("pillow==11.0.0\n")
    assert state(project, model, release).status == "changed"


def test_a_build_adds_the_stub_that_the_code_of_a_new_model_needs(project, model, release):
    (model / "config.pbtxt").unlink()
    code = "import triton_python_backend_utils as pb_utils\ndef check(tensor: pb_utils.Tensor): ...\n"
    (model / "1/model.py").write_text(code)
    assert kinds(project, release) == ["not-built"]

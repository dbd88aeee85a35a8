"""Syntax in the code of a model that the Python which runs it refuses."""

from envpack.inspection.repository import inspect_repository
from envpack.settings.project import Project
from envpack.settings.table import Settings
from tests.tables import every_row
from tests.unit.inspection.findings import kinds


@every_row(
    ("code", "python", "found"),
    [
        (
            "def f():\n        a = 1\n    b = 2\n",
            "",
            "IndentationError: unindent does not match any outer indentation level",
        ),
        ("x = = 1\n", "3.10", "SyntaxError: invalid syntax"),
        ("x = = 1\n", "", ""),  # an environment of another program
        ("x = = 1\n", "3.99", ""),  # newer than this Python
        ("x = = 1\n", "3.6", ""),  # which has fewer words
        ("x = '\\d'  # a warning\n", "3.10", ""),
        ("x = 1\0\n", "3.6", ""),
    ],
)
def test_syntax_that_the_models_python_refuses(tmp_path_factory, release, code, python, found):
    repository = tmp_path_factory.mktemp("models")
    (repository / "m/1").mkdir(parents=True)
    (repository / "m/1/model.py").write_text(code)
    (repository / "m/2").mkdir()
    (repository / "m/2/model.py").write_text("def :")
    config = 'backend: "python"\nversion_policy { specific { versions: 1 } }\n'
    (repository / "m/config.pbtxt").write_text(config)
    if not python:
        (repository / "m/triton_python_backend_stub").touch()  # of another program
    project = Project(repository=repository, settings=Settings(python=python))
    findings = [one for one in inspect_repository(project, release).findings if one.kind == "syntax-error"]
    assert [one.what for one in findings] == ([found] if found else [])
    assert all(str(one.where).startswith(f"{repository}/m/1/model.py:") for one in findings)


def test_requirements_may_ask_for_a_python_that_takes_other_syntax(tmp_path, release):
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").write_text("x = = 1\n")
    (tmp_path / "m/config.pbtxt").write_text('backend: "python"\n')
    project = Project(repository=tmp_path, settings=Settings())
    assert "syntax-error" in {
        found.kind for found in inspect_repository(project, release).findings
    }  # by the Python of the release
    (tmp_path / "m/environment.yml").write_text("dependencies: [python=3.12, numpy]\n")
    assert ("error", "syntax-error") not in kinds(project, release)

import json

import pytest

from envpack.cli.main import run
from tests.unit.inspection.conftest import TENSORS


@pytest.fixture
def broken(project):
    (project.repository / "one/1/weights").symlink_to("/nowhere")
    (project.repository / "two/1/model.py").chmod(0o600)
    return project.repository


def test_json_has_every_finding(broken, capsys):
    assert run(["inspect", str(broken), "--json", "--quiet"]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert (document["ok"], document["triton"], document["models"]) == (False, "24.10", ["both", "one", "two"])
    assert all(list(finding) == ["kind", "severity", "where", "what", "fix"] for finding in document["findings"])
    assert [(finding["kind"], finding["severity"], finding["where"]) for finding in document["findings"]] == [
        ("broken-link", "error", str(broken / "one/1/weights")),
        ("not-for-everybody", "warning", str(broken / "two/1/model.py")),
    ]
    assert document["findings"][0]["what"].endswith(": /nowhere")
    assert document["findings"][1]["fix"] == f"chmod -R a+rX {broken / 'two'}"
    assert "3 models for Triton 24.10: 1 error, 1 warning" in captured.err.splitlines()


def test_one_model_and_strict_mode(broken, capsys):
    assert run(["inspect", str(broken / "two")]) == 0
    assert "1 model for Triton 24.10: 0 errors, 1 warning" in capsys.readouterr().out.splitlines()
    assert run(["inspect", str(broken / "two"), "--strict"]) == 1
    assert run(["inspect", str(broken / "one")]) == 1
    assert run(["inspect", str(broken / "both")]) == 0


def test_a_good_repository(project, capsys):
    assert run(["inspect", str(project.repository), "--triton", "24.09"]) == 0
    assert capsys.readouterr().out == "3 models for Triton 24.09: 0 errors, 0 warnings\n"
    assert run(["inspect", str(project.repository), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_missing_repository_is_named(tmp_path, capsys):
    assert run(["inspect", "--repository", str(tmp_path / "missing")]) == 3
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'missing'}: model repository not found (repository-missing)\n"
        "  fix: give the folder that holds the model folders with --repository\n"
    )


def test_options_that_models_do_not_support(project, capsys):
    assert run(["inspect", str(project.repository), "--sbom", "file"]) == 2
    assert run(["inspect", str(project.repository), "--triton", "1.2"]) == 2


def test_a_kind_in_brackets_and_odd_names_are_shown_as_they_are(project, capsys):
    (project.repository / "[bold]stray\n").mkdir()
    assert run(["inspect", str(project.repository)]) == 1
    assert "[bold]stray\\n: a server loads every folder" in capsys.readouterr().out


def test_what_usually_follows_is_named_unless_something_is_wrong(project, capsys, monkeypatch):
    repository = str(project.repository)

    def following(*words):
        status = run(["inspect", *words])
        return status, capsys.readouterr().err.splitlines()[-1:]

    assert following(repository) == (0, [f"next: envpack verify --repository {repository}"])
    (project.repository / "one/config.pbtxt").write_text(f'backend: "python"\n{TENSORS}')
    assert following(f"{repository}/one") == (0, [f"next: envpack build --repository {repository} one"])
    monkeypatch.chdir(repository)
    assert following() == (0, ["next: envpack build"])
    (project.repository / "one/1/model.py").write_text("import torch\n\n\nclass TritonPythonModel:\n    pass\n")
    assert following("one") == (0, [])  # a build would be refused
    (project.repository / "notes").mkdir()
    assert following() == (1, [])


def test_models_that_start_warm_are_counted(project, capsys):
    with (project.repository / "two/config.pbtxt").open("a") as config:
        config.write('parameters { key: "ENVPACK_START" value { string_value: "warm" } }\n')
    assert run(["inspect", str(project.repository), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["warm"] == ["two"]
    assert "3 models (1 with a warm start) for Triton 24.10: 0 errors, 1 warning" in captured.err.splitlines()


def test_a_model_of_the_repository_is_meant_before_a_folder_with_its_name(project, tmp_path, capsys, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "one").mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    assert run(["inspect", "one", "--repository", str(project.repository)]) == 0
    assert "1 model for Triton" in capsys.readouterr().out
    assert run(["inspect", str(project.repository / "one"), "--repository", str(project.repository)]) == 0

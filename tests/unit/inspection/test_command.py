import json

import pytest

from envpack.cli.main import run


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
    found = {finding["kind"]: finding for finding in document["findings"]}
    assert found["broken-link"]["severity"] == "error"
    assert found["broken-link"]["where"] == str(broken / "one/1/weights")
    assert "fix" in found["not-for-everybody"]
    assert "1 error, 1 warning" in captured.err


def test_one_model_and_strict_mode(broken, capsys):
    assert run(["inspect", str(broken / "two")]) == 0
    assert "not-for-everybody" in capsys.readouterr().out
    assert run(["inspect", str(broken / "two"), "--strict"]) == 1
    assert run(["inspect", str(broken / "one")]) == 1
    assert run(["inspect", str(broken / "both")]) == 0


def test_a_good_repository(project, capsys):
    assert run(["inspect", str(project.repository), "--triton", "24.09"]) == 0
    assert "3 models for Triton 24.09: 0 errors, 0 warnings" in capsys.readouterr().out
    assert run(["inspect", str(project.repository), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_options_that_models_do_not_support(project, capsys):
    assert run(["inspect", str(project.repository), "--sbom", "file"]) == 2
    assert run(["inspect", str(project.repository), "--triton", "1.2"]) == 2


def test_a_kind_in_brackets_and_odd_names_are_shown_as_they_are(project, capsys):
    (project.repository / "[bold]stray\n").mkdir()
    assert run(["inspect", str(project.repository)]) == 1
    assert "[bold]stray\\n: a server loads every folder" in capsys.readouterr().out

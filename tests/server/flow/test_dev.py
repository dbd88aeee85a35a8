"""`envpack dev`: models are changed while the real server runs them."""

import shutil

import pytest

from envpack.server.kserve import RequestError
from tests.server.flow.developing import ensemble, write_at_once


def replace(file, old, new):
    text = file.read_text()
    assert old in text
    write_at_once(file, text.replace(old, new))


def test_changes_of_code_configuration_and_requirements_reach_the_server(required, develop):
    (required.parent / "both/1").mkdir(parents=True)
    (required.parent / "both/config.pbtxt").write_text(ensemble("doubler"))
    running = develop(required.parent, "--json")
    running.wait_until_ready("both")
    assert running.answer() == (2, 4)
    code = (required / "1/model.py").read_text()

    replace(required / "1/model.py", "* 2", "* 3")
    running.wait_until_ready("both")
    assert running.answer() == running.answer("both", "IN") == (3, 6)

    (required / "1/model.py").write_text("raise ValueError('not yet')\n")
    running.wait_for("doubler: failed")
    assert "ValueError: not yet" in running.wait_for("not yet")
    assert running.wait_for("").split() == ["doubler/1/model.py:1", "in", "<module>"]
    assert running.wait_for("").strip() == "raise ValueError('not yet')"
    assert running.answer() == (3, 6), "the server goes on with what it had"

    (required / "1/model.py").write_text(f"import six\n{code}".replace("* 2", "* len(six.__name__)"))
    running.wait_for("doubler: failed")
    assert "No module named 'six'" in running.wait_for("six")
    (required / "requirements.txt").write_text("numpy\nsix\n")
    running.wait_until_ready("doubler")
    assert running.answer() == (3, 6)

    replace(required / "config.pbtxt", "dims: [ 2 ]", "dims: [ -1 ]")
    running.wait_until_ready("doubler")
    assert running.client.config("doubler")["input"][0]["dims"] == [-1]

    assert running.left()
    states = running.end()
    assert running.left() == []
    assert states["doubler"]["loads"] == 4
    assert states["doubler"]["memory"][0] > 1 << 20
    with pytest.raises(RequestError):
        running.client.index()


@pytest.mark.thorough
def test_code_that_was_wrong_from_the_start_is_loaded_when_it_is_right(required, develop):
    code = (required / "1/model.py").read_text()
    (required / "1/model.py").write_text("raise ValueError('not yet')\n")
    running = develop(required.parent)
    running.wait_for("doubler: failed")
    (required / "1/model.py").write_text(code)
    running.wait_until_ready("doubler")
    assert running.answer() == (2, 4)


@pytest.mark.thorough
def test_requirements_that_were_wrong_from_the_start_are_built_when_they_are_right(required, develop):
    (required / "requirements.txt").write_text("numpy\n-r ../base.txt\n")
    running = develop(required.parent)
    running.wait_for("doubler: failed")
    assert "requirements.txt:2" in running.wait_for("requirements.txt")
    (required / "requirements.txt").write_text("-r ../base.txt\n")
    running.wait_for("doubler: failed")
    (required.parent / "base.txt").write_text("numpy\n")
    running.wait_until_ready("doubler")
    assert running.answer() == (2, 4)


def test_a_wrong_configuration_is_an_error_of_its_model_alone(required, develop):
    shutil.copytree(required, required.parent / "other")
    good = (required / "config.pbtxt").read_text()
    (required / "config.pbtxt").write_text("input [\n")
    running = develop(required.parent)
    running.wait_for("doubler: failed")
    assert "config.pbtxt:2" in running.wait_for("config.pbtxt")
    running.wait_until_ready("other")
    (required / "config.pbtxt").write_text(good)
    running.wait_until_ready("doubler")
    built = (required / "config.pbtxt").read_text()
    (required / "config.pbtxt").write_text("input [\n")
    running.wait_for("doubler: failed")
    assert running.answer() == (2, 4), "the server goes on with what it had"
    (required / "config.pbtxt").write_text(built.replace("dims: [ 2 ]", "dims: [ -1 ]"))
    running.wait_until_ready("doubler")


@pytest.mark.thorough
def test_a_configuration_that_lost_its_environment_is_built_again(required, develop):
    given = (required / "config.pbtxt").read_text()
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    assert "EXECUTION_ENV_PATH" in (required / "config.pbtxt").read_text()
    (required / "config.pbtxt").write_text(given)
    running.wait_until_ready("doubler")
    assert "EXECUTION_ENV_PATH" in (required / "config.pbtxt").read_text()


def test_models_come_and_go(required, develop):
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    (required / "2").mkdir()
    running.wait_for("doubler: failed")
    (required / "2/model.py").write_text((required / "1/model.py").read_text().replace("* 2", "* 5"))
    running.wait_until_ready("doubler")
    assert running.answer() == (5, 10)

    ready_made = required.parent.parent / "ready-made"
    shutil.copytree(required, ready_made, symlinks=True)
    ready_made.rename(required.parent / "added")
    running.wait_until_ready("added")
    shutil.rmtree(required)
    (required.parent / "added/2/model.py").write_text("nonsense\n")  # the lines that follow are those of both changes
    running.wait_for("added: failed")
    with pytest.raises(RequestError):
        running.answer()
    assert running.answer("added") == (5, 10)


@pytest.mark.thorough
def test_a_named_model_that_is_removed_is_loaded_when_it_is_back(required, develop):
    kept = required.parent.parent / "kept"
    running = develop(required.parent, "doubler")
    running.wait_until_ready("doubler")
    required.rename(kept)
    running.wait_for("doubler: removed")
    kept.rename(required)
    running.wait_until_ready("doubler")
    assert running.answer() == (2, 4)


@pytest.mark.thorough
def test_an_ensemble_of_ensembles_is_loaded_again_and_a_caller_is_not(required, develop):
    for name, text in (("inner", ensemble("doubler")), ("outer", ensemble("inner", "IN", "OUT"))):
        (required.parent / name / "1").mkdir(parents=True)
        (required.parent / name / "config.pbtxt").write_text(text)
    caller = required.parent / "caller"
    shutil.copytree(required, caller)
    replace(
        caller / "1/model.py",
        'pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy() * 2)])',
        'pb_utils.InferenceRequest(model_name="doubler", requested_output_names=["Y"], inputs=r.inputs()).exec()',
    )
    running = develop(required.parent, "outer", "caller", "--json")
    running.wait_until_ready("outer")
    running.wait_until_ready("caller")
    assert running.answer("caller") == (2, 4)
    replace(required / "1/model.py", "* 2", "* 3")
    running.wait_until_ready("outer")
    assert running.answer("outer", "IN") == running.answer("caller") == (3, 6)
    (required.parent / "inner/config.pbtxt").write_text(ensemble("doubler").replace("[ 2 ]", "[ -1 ]"))
    (required.parent / "outer/config.pbtxt").write_text(ensemble("inner", "IN", "OUT").replace("[ 2 ]", "[ -1 ]"))
    running.wait_until_ready("outer")
    assert running.client.config("outer")["input"][0]["dims"] == [-1]
    states = running.end()
    assert states["caller"]["loads"] == states["doubler"]["loads"] - 1 == 1


@pytest.mark.thorough
def test_what_requirements_include_is_followed_and_what_editors_leave_is_not(required, develop):
    project = required.parent.parent / "project"
    (project / "helping").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[project]\nname = "helping"\nversion = "1"\n')
    (project / "helping/__init__.py").write_text("FACTOR = 2\n")
    (required / "requirements.txt").write_text(f"numpy\n{project}\n")
    (required / "beside.py").write_text("OFFSET = 0\n")
    code = (required / "1/model.py").read_text().replace("* 2", "* helping.FACTOR + beside.OFFSET")
    (required / "1/model.py").write_text(f"import beside\nimport helping\n{code}")
    running = develop(required.parent, "--json")
    running.wait_until_ready("doubler")
    (required / "1/.model.py.swp").write_text("of an editor")
    (required / "1/model.py~").write_text("of another")
    (required / "1/__pycache__").mkdir(exist_ok=True)
    (required / "1/__pycache__/model.cpython-310.pyc").write_text("of Python")
    write_at_once(required / "beside.py", "OFFSET = 1\n")
    running.wait_until_ready("doubler")
    assert running.answer() == (3, 5)
    write_at_once(project / "helping/__init__.py", "FACTOR = 3\n")
    running.wait_until_ready("doubler")
    assert running.answer() == (4, 7)
    assert running.end()["doubler"]["loads"] == 3


@pytest.mark.thorough
def test_settings_of_the_repository_are_read_again(required, develop):
    running = develop(required.parent)
    running.wait_until_ready("doubler")
    (required.parent / "envpack.toml").write_text("nonsense = 1\n")
    assert "unknown key 'nonsense'" in running.wait_for("nonsense")
    (required.parent / "others.txt").write_text("numpy\nsix\n")
    replace(required / "1/model.py", "import", "import six\nimport")
    running.wait_for("No module named 'six'")
    (required.parent / "envpack.toml").write_text('[models.doubler]\nrequirements = "others.txt"\n')
    running.wait_until_ready("doubler")


@pytest.mark.thorough
def test_only_errors_are_printed_with_quiet(required, develop):
    (required / "1/model.py").write_text("raise ValueError('not yet')\n")
    running = develop(required.parent, "--quiet")
    running.wait_for("ValueError: not yet")
    assert running.lines[0].strip() == "doubler: failed"

"""The pytest plugin: which repository, server and limits the fixture gets, and what a test that fails shows."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.settings.table import Settings
from envpack.testing import plugin, session as module
from envpack.testing.plugin import Outcomes

pytest_plugins = ["pytester"]

USES = """
def test_passes(triton_model):
    pass

def test_fails(triton_model):
    assert False

def test_without_models():
    assert False
"""


class Session:
    """Stands in for the models: records its arguments and the calls."""

    made: list

    def __init__(self, said, **options):
        self.made.append(self)
        self.options, self.asked, self.ends = (said, options), [], []

    def models_for(self, repository, test):
        self.asked.append(repository)
        return SimpleNamespace(since=7)

    def printed(self, test, repository, since):
        return f"printed since {since} in {repository} by {test.name}" + "x" * 5000

    def kill(self):
        self.ends.append("kill")

    def close(self):
        self.ends.append("close")


@pytest.fixture
def made(monkeypatch):
    found = []
    monkeypatch.setattr(module, "Session", type("Noted", (Session,), {"made": found}))
    return found


def test_the_session_has_the_options_of_the_user(pytester, made):
    pytester.makepyfile(test_uses=USES)
    pytester.runpytest_inprocess()
    pytester.runpytest_inprocess("--envpack-local", "--triton-server=triton", "--envpack-timeout=9", "--envpack-gpu")
    first, second = made
    assert first.options == (Settings(), {"is_local": False})
    assert second.options == (Settings(server=pytester.path / "triton", timeout=9, gpu=True), {"is_local": True})
    assert first.ends == ["close"]


def test_the_session_has_what_the_caller_of_run_tests_says(pytester, made, tmp_path):
    """Models ran on another Python than the one that was asked for."""
    said = Settings(
        python="3.12", env=("NAME=value",), server=Path("/srv/triton"), memory=1 << 30, gpu=False, timeout=7
    )
    file = tmp_path / "said.json"
    file.write_text(json.dumps(said.values(), default=str))
    pytester.makepyfile(test_uses=USES)
    pytester.runpytest_inprocess(f"--envpack-said={file}")
    pytester.runpytest_inprocess(f"--envpack-said={file}", "--envpack-timeout=9")
    assert [session.options[0] for session in made] == [said, said.saying(timeout=9)]


@pytest.mark.parametrize("word", ["0", "-1", "soon"])
def test_a_wrong_limit_is_refused_in_one_line(pytester, word):
    result = pytester.runpytest_inprocess(f"--envpack-timeout={word}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--envpack-timeout: timeout in the command line must be a number from 1 to*{word}*"])


def test_a_session_is_opened_for_tests_that_use_a_model(pytester, made):
    pytester.makepyfile("def test_it(): pass")
    pytester.runpytest_inprocess()
    assert made == []


def test_a_repository_is_named_from_where_the_user_is_or_where_the_setting_is(pytester, made):
    (pytester.path / "below").mkdir()
    (pytester.path / "below/test_uses.py").write_text(USES)
    pytester.runpytest_inprocess()
    pytester.runpytest_inprocess("--envpack-repository=models")
    pytester.makeini("[pytest]\nenvpack_repository = ../models\n")
    pytester.chdir()
    with pytest.MonkeyPatch.context() as context:
        context.chdir(pytester.path / "below")
        pytester.runpytest_inprocess()
        pytester.runpytest_inprocess("--envpack-repository=../others")
    assert [session.asked[0] for session in made] == [
        None,
        pytester.path / "models",
        pytester.path / "../models",
        pytester.path / "below/../others",
    ]


def test_a_test_that_fails_shows_what_its_models_have_printed(pytester, made):
    pytester.makepyfile(test_uses=USES)
    result = pytester.runpytest_inprocess("-p", "no:randomly", "--envpack-repository=models")
    result.assert_outcomes(passed=1, failed=2)
    lines = [line for line in result.outlines if "printed since" in line]
    assert len(lines) == 1, "of the test that uses a model alone"
    assert f"printed since 7 in {pytester.path}/models by test_uses.py" in lines[0]
    assert len(lines[0]) < 4100
    assert len([line for line in result.outlines if line.strip("-") == " Triton "]) == 1


def test_nothing_is_shown_where_nothing_was_printed(pytester, made, monkeypatch):
    monkeypatch.setattr(Session, "printed", lambda *_: "")
    pytester.makepyfile(test_uses=USES)
    result = pytester.runpytest_inprocess()
    assert not [line for line in result.outlines if "Triton" in line]


def test_ctrl_c_ends_the_models_at_once(pytester, made):
    pytester.makepyfile("def test_it(triton_model):\n    raise KeyboardInterrupt\n")
    pytester.runpytest_inprocess(no_reraise_ctrlc=True)
    assert made[0].ends == ["kill", "close"]


@pytest.mark.parametrize("is_worker", [False, True])
def test_outcomes_are_recorded_by_the_first_process(is_worker, tmp_path):
    registered = []
    config = SimpleNamespace(
        getoption={"--envpack-outcomes": str(tmp_path / "outcomes.json")}.get,
        pluginmanager=SimpleNamespace(register=registered.append),
        **({"workerinput": {}} if is_worker else {}),
    )
    plugin.pytest_configure(config)
    assert [type(found) for found in registered] == ([] if is_worker else [Outcomes])


def test_a_setting_is_relative_to_its_file_or_to_the_root():
    def config(inipath):
        return SimpleNamespace(
            getoption=lambda name: None,
            getini={"envpack_repository": "models"}.get,
            inipath=inipath,
            rootpath=Path("/project"),
        )

    assert plugin._named_repository(config(Path("/ini/pytest.ini"))) == Path("/ini/models")
    assert plugin._named_repository(config(None)) == Path("/project/models")

"""What `envpack build` remembers of a model, and what `--dry-run` says that it would change."""

import os

import pytest

from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import envpack, listing
from tests.needed_pythons import need


@pytest.fixture
def built(tmp_path):
    """A command line on a repository whose model has an archive with Python 3.8, although the release has 3.10."""
    repository = BadInput("", "", 0, "", (), MODEL).write(tmp_path)
    changes = {"ENVPACK_CACHE_DIR": os.environ["ENVPACK_TEST_CACHE"], "CXX": None}

    def build(*words):
        return envpack("build", "--repository", repository, "--stub", "never", *words, changes=changes)

    build.repository = repository
    require(build, "numpy", "six")
    made = build("m", "--python", need("3.8"), "--format", "tar")
    assert made.code == 0, made.err
    return build


def require(build, *lines):
    (build.repository / "m/requirements.txt").write_text("".join(f"{line}\n" for line in lines))


def planned(build, *words):
    ended = build("--dry-run", "--json", *words)
    assert ended.code == 0, ended.err
    (plan,) = ended.document["models"]
    return plan


@pytest.mark.thorough
def test_a_second_build_without_options_makes_the_same_environment(built):
    before = listing(built.repository)
    again = built("m")
    assert "m: Python 3.8" in again.err
    assert "… up to date" in again.err.splitlines()[-1]
    assert listing(built.repository) == before


def test_a_dry_run_says_that_nothing_would_change_and_a_build_agrees(built):
    plan = planned(built)
    assert (plan["python"], plan["python_source"]) == ("3.8", "the environment that the model has")
    assert plan["changes"] == []
    assert "up to date" in built("--dry-run").out


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [("--set", "link_mode=copy"), ("--format", "dir"), ("--format", "dir", "--set", "link_mode=copy")]
)
def test_a_dry_run_knows_how_files_are_placed(built, words):
    """Whatever the mode of the last build was, a build with other words places the environment again, and only once."""
    expected = {"changes": True, "then": False}
    found = {}
    for name in expected:
        found[name] = bool(planned(built, *words)["changes"])
        ended = built("m", "--json", *words)
        assert ended.code == 0, ended.err
        assert ended.document["models"][0]["changed"] == found[name]
    assert found == expected


@pytest.mark.thorough
def test_a_dry_run_names_a_changed_file(built):
    assert built("m", "--format", "dir", "--set", "link_mode=copy").code == 0
    file = next((built.repository / "m/python3.8").glob("lib/python3.8/site-packages/six.py"))
    file.chmod(0o644)
    file.write_text("damage")
    (change,) = planned(built)["changes"]
    assert change["reason"] == "lib/python3.8/site-packages/six.py was changed"


@pytest.mark.parametrize(
    ("words", "lines", "action", "reason"),
    [
        (("--format", "dir"), ("numpy", "six"), "place an environment as python3.8", "it has python3.8.tar"),
        ((), ("numpy",), "resolve the packages", "were not resolved on this machine before"),
        ((), ("numpy",), "replace python3.8.tar", "requirements.txt changed since python3.8.tar was built"),
        (("--set", "exclude=*.md"), ("numpy", "six"), "replace python3.8.tar", "other files are excluded"),
    ],
    ids=["format", "resolution", "requirements", "exclude"],
)
def test_a_dry_run_names_each_change_with_its_reason_and_changes_nothing(built, words, lines, action, reason):
    if lines == ("numpy",):
        lines = ("numpy", f"six!=9.{os.getpid()}")  # requirements that no earlier test can have had
    require(built, *lines)
    before = listing(built.repository)
    changes = planned(built, *words)["changes"]
    assert any(action in change["action"] and reason in change["reason"] for change in changes), changes
    assert listing(built.repository) == before


@pytest.mark.thorough
def test_a_lockfile_decides_the_python_and_a_plan_names_the_packages_that_differ(built):
    lock = envpack("lock", "--repository", built.repository, "m", "--python", "3.8")
    assert lock.code == 0, lock.err
    assert f"next: envpack build --repository {built.repository} --python 3.8 m" in lock.err
    assert planned(built)["python_source"] == "envpack.lock"
    require(built, "numpy", "six==1.15.0")
    assert envpack("lock", "--repository", built.repository, "m").code == 0
    reasons = [change["reason"] for change in planned(built)["changes"]]
    assert any("six" in reason and "→ 1.15.0" in reason for reason in reasons), reasons


@pytest.mark.thorough
def test_the_start_is_written_and_removed_once_and_a_dry_run_says_so(built):
    (built.repository / "m/triton_python_backend_stub").touch()
    config = built.repository / "m/config.pbtxt"
    before = config.read_text()
    found = []
    for start in ("warm", "warm", "cold", "cold"):
        reasons = [change["reason"] for change in planned(built, "--start", start)["changes"]]
        ended = built("m", "--start", start, "--json")
        assert ended.code == 0, ended.err
        (model,) = ended.document["models"]
        found.append((reasons, model["start"], model["changed"]))
    assert found == [
        (["ENVPACK_START becomes warm"], "warm", True),
        ([], "warm", False),
        (["ENVPACK_START is removed"], "", True),
        ([], "", False),
    ]
    assert config.read_text() == before

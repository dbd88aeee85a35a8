"""`envpack lock` as a user types it, and what `envpack build` makes of the lockfile."""

import pytest

from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import envpack

from .sources import PYTHON

pytestmark = pytest.mark.usefixtures("own_index")


@pytest.fixture
def repository(tmp_path, served):
    made = BadInput("", "", 0, "", (), MODEL).write(tmp_path)
    (made / "envpack.toml").write_text(f'channels = ["{served.url("/conda")}"]\n[models.m]\npython = "{PYTHON}"\n')
    require(made, "numpy", "tree", "leaf<1.1")
    return made


@pytest.fixture
def say(repository, tmp_path, served):
    changes = {
        "ENVPACK_CACHE_DIR": str(tmp_path / "cache"),
        "UV_DEFAULT_INDEX": served.url("/pypi/simple"),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "PIP_FIND_LINKS": None,
    }
    return lambda *words: envpack(*words, "--json", "--repository", repository, changes=changes)


def require(repository, *lines):
    (repository / "m/requirements.txt").write_text("".join(f"{line}\n" for line in lines))


def test_a_lock_is_written_once_and_build_installs_exactly_its_packages(say, repository):
    ended = say("lock", "m")
    assert ended.code == 0, ended.err
    assert ended.document["models"][0]["packages"] == 4
    assert ended.document["models"][0]["changed"] is True
    assert say("lock", "m").document["models"][0]["changed"] is False
    ended = say("build", "m", "--stub", "never")
    assert ended.code == 0, ended.err
    site = repository / f"m/python{PYTHON}/lib/python{PYTHON}/site-packages"
    assert (site / "leaf-1.0.dist-info").is_dir()


def test_update_says_what_became_of_packages(say, repository):
    assert say("lock", "m").code == 0
    require(repository, "numpy", "tree")
    assert say("lock", "m").document["models"][0]["changes"] == []
    assert say("lock", "m", "--update", "leaf").document["models"][0]["changes"] == ["leaf 1.0 → 1.1"]


def test_a_stale_lock_is_refused_and_nothing_is_changed(say, repository):
    assert say("lock", "m").code == 0
    require(repository, "numpy", "leaf")
    before = (repository / "m/config.pbtxt").read_text()
    ended = say("build", "m", "--stub", "never")
    assert (ended.code, ended.document["error"]["kind"]) == (3, "stale-lock")
    assert "envpack lock m" in ended.document["error"]["hint"]
    assert (repository / "m/config.pbtxt").read_text() == before
    assert not (repository / f"m/python{PYTHON}").exists()


def test_a_lock_edited_by_hand_is_refused(say, repository):
    assert say("lock", "m").code == 0
    lock = repository / "m/envpack.lock"
    lock.write_text(lock.read_text().replace("sha256: ", "sha256: 0", 1))
    ended = say("build", "m", "--stub", "never")
    assert (ended.code, ended.document["error"]["kind"]) == (3, "bad-lock")
    assert str(lock) in ended.document["error"]["where"]


def test_what_the_solver_says_is_in_a_file_that_the_error_names(say, repository):
    require(repository, "numpy", "no-such-package-anywhere")
    ended = say("lock", "m")
    assert (ended.code, ended.document["error"]["kind"]) == (4, "unresolvable")
    with open(ended.document["error"]["details"], encoding="utf-8") as details:
        assert "no-such-package-anywhere" in details.read()
    assert not (repository / "m/envpack.lock").exists()

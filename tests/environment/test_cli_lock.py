"""`envpack lock` on the command line, and builds from its lockfile."""

import re
import shutil

import pytest

from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import envpack

from .sources import PYTHON

pytestmark = pytest.mark.usefixtures("own_index")


@pytest.fixture
def repository(tmp_path, served):
    folder = BadInput("", "", 0, "", (), MODEL).write(tmp_path)
    (folder / "envpack.toml").write_text(f'channels = ["{served.url("/conda")}"]\n[models.m]\npython = "{PYTHON}"\n')
    require(folder, "numpy", "tree", "leaf<1.1")
    return folder


@pytest.fixture
def run_command(repository, tmp_path, served):
    changes = {
        "ENVPACK_CACHE_DIR": str(tmp_path / "cache"),
        "UV_DEFAULT_INDEX": served.url("/pypi/simple"),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "PIP_FIND_LINKS": None,
    }
    return lambda *arguments: envpack(*arguments, "--json", "--repository", repository, changes=changes)


def require(repository, *lines):
    (repository / "m/requirements.txt").write_text("".join(f"{line}\n" for line in lines))


def test_a_lock_is_written_once_and_build_installs_exactly_its_packages(run_command, repository):
    completed = run_command("lock", "m")
    assert completed.code == 0, completed.err
    assert completed.document["models"][0]["packages"] == 4
    assert completed.document["models"][0]["changed"] is True
    assert run_command("lock", "m").document["models"][0]["changed"] is False
    completed = run_command("build", "m", "--stub", "never")
    assert completed.code == 0, completed.err
    site = repository / f"m/python{PYTHON}/lib/python{PYTHON}/site-packages"
    assert (site / "leaf-1.0.dist-info").is_dir()


@pytest.mark.thorough
def test_a_lock_of_this_machines_python_says_that_other_machines_cannot_install_it(
    run_command, repository, tmp_path, packaged
):
    assert run_command("lock", "m").document["models"][0]["local"] == []
    packaged(PYTHON, tmp_path / "cache")
    (repository / "m/envpack.lock").unlink()
    (repository / "envpack.toml").write_text(f'[models.m]\npython = "{PYTHON}"\n')
    completed = run_command("lock", "m")
    assert completed.code == 0, completed.err
    (local,) = completed.document["models"][0]["local"]
    assert local.startswith(f"python {PYTHON}.")
    assert f"m: the lock names {local} by a path of this machine" in completed.err
    shutil.copytree(repository / "m", repository / "n")
    (repository / "envpack.toml").write_text(f'[models.m]\npython = "{PYTHON}"\n[models.n]\npython = "{PYTHON}"\n')
    assert run_command("lock").err.count(f"m, n: the locks name {local} by a path of this machine") == 1


@pytest.mark.thorough
def test_update_reports_changed_packages(run_command, repository):
    assert run_command("lock", "m").code == 0
    require(repository, "numpy", "tree")
    assert run_command("lock", "m").document["models"][0]["changes"] == []
    assert run_command("lock", "m", "--update", "leaf").document["models"][0]["changes"] == ["leaf 1.0 → 1.1"]


def test_a_stale_lock_is_refused_and_nothing_is_changed(run_command, repository):
    assert run_command("lock", "m").code == 0
    require(repository, "numpy", "leaf")
    before = (repository / "m/config.pbtxt").read_text()
    completed = run_command("build", "m", "--stub", "never")
    assert (completed.code, completed.document["error"]["kind"]) == (3, "stale-lock")
    assert re.search(r"run envpack lock --repository \S+ m;", completed.document["error"]["hint"])
    assert (repository / "m/config.pbtxt").read_text() == before
    assert not (repository / f"m/python{PYTHON}").exists()


@pytest.mark.thorough
def test_the_fix_of_changed_requirements_works_when_it_is_followed(run_command, repository):
    for words in (("lock", "m"), ("build", "m", "--stub", "never")):
        assert run_command(*words).code == 0
    require(repository, "numpy", "leaf")

    def changed():
        findings = run_command("inspect").document["findings"]
        return [finding["fix"] for finding in findings if finding["kind"] == "requirements-changed"]

    (fix,) = changed()
    commands = [command.split() for command in re.findall(r"`envpack ([^`]+ m)`", fix)]
    assert [command[0] for command in commands] == ["lock", "build"]
    for command in commands:
        completed = run_command(*command, *(["--stub", "never"] if command[0] == "build" else []))
        assert completed.code == 0, completed.err
    assert changed() == []


def test_a_lock_edited_by_hand_is_refused(run_command, repository):
    assert run_command("lock", "m").code == 0
    lock = repository / "m/envpack.lock"
    lock.write_text(lock.read_text().replace("sha256: ", "sha256: 0", 1))
    completed = run_command("build", "m", "--stub", "never")
    assert (completed.code, completed.document["error"]["kind"]) == (3, "bad-lock")
    assert str(lock) in completed.document["error"]["where"]


def test_the_output_of_the_resolver_is_in_a_file_that_the_error_names(run_command, repository):
    require(repository, "numpy", "no-such-package-anywhere")
    completed = run_command("lock", "m")
    assert (completed.code, completed.document["error"]["kind"]) == (4, "unresolvable")
    with open(completed.document["error"]["details"], encoding="utf-8") as details:
        assert "no-such-package-anywhere" in details.read()
    assert not (repository / "m/envpack.lock").exists()

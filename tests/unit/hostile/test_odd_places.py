"""What is no ordinary file, or would take for ever: refused at once by every command that reads it, and named."""

import os

import pytest

from envpack.cli.main import run
from envpack.support.bounded_reading import parse_toml, read_bytes
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import Ended, assert_refused
from tests.tables import every_row

MADE = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "broken link": lambda path: os.symlink("nowhere", path),
    "endless device": lambda path: os.symlink("/dev/zero", path),
    "file of the kernel": lambda path: os.symlink("/proc/self/mem", path),
}

# A command, its exit status, the kind of the error and the place.
CIRCLES = {
    "layout --output {}/circle/tree": (2, "output-inside", "/circle/tree"),
    "publish file://{}/circle": (2, "output-inside", "/circle"),
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return BadInput("any", "", 0, "", (), MODEL).write(tmp_path)


@pytest.fixture(params=sorted(MADE))
def make(request):
    return MADE[request.param]


def refused(capsys, repository, command, code, kind, *says):
    ended = run([*command.split(), "--json", "--repository", str(repository)])
    assert_refused(Ended(ended, *capsys.readouterr()), code, kind, *says)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["requirements.txt", "environment.yml", "pixi.lock", "pylock.toml", "pyproject.toml"])
@pytest.mark.parametrize("command", ["build m --dry-run", "lock m"])
def test_requirements_are_never_overlooked(repository, make, name, command, capsys):
    (repository / "m/requirements.txt").unlink()
    make(repository / "m" / name)
    refused(capsys, repository, f"{command} --python 3.10", 3, "bad-requirements", f"m/{name}")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("option", ["-r", "-c"])
def test_included_requirements(repository, make, option, capsys):
    (repository / "m/requirements.txt").write_text(f"{option} other.txt\n")
    make(repository / "m/other.txt")
    refused(capsys, repository, "build m --dry-run --python 3.10", 3, "bad-requirements")


@pytest.mark.timeout(60)
def test_settings_of_the_project(repository, make, capsys):
    make(repository / "envpack.toml")
    refused(capsys, repository, "build m --dry-run", 3, "bad-project-file", "envpack.toml")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["pipe", "broken link", "folder"])
def test_a_configuration_is_never_taken_for_missing(repository, what, capsys):
    (repository / "m/config.pbtxt").unlink()
    MADE[what](repository / "m/config.pbtxt")
    refused(capsys, repository, "build m --dry-run", 3, "bad-config", "m/config.pbtxt")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["pipe", "endless device"])
def test_an_environment_with_odd_records_is_inspected(tmp_path, what, capsys):
    site = tmp_path / "e/lib/python3.10/site-packages/x-1.dist-info"
    for folder in (site, tmp_path / "e/conda-meta", tmp_path / "e/bin"):
        folder.mkdir(parents=True)
    (tmp_path / "e/bin/activate").touch()
    for path in (site / "METADATA", tmp_path / "e/conda-meta/x.json", tmp_path / "e/lib/libpython3.10.so.1.0"):
        MADE[what](path)
    assert run(["inspect", str(tmp_path / "e"), "--triton", "24.10", "--json"]) == 1
    assert '"refused"' in capsys.readouterr().out


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("files", "says"),
    [
        pytest.param(
            {"m/requirements.txt": "".join(f"p{n}\n" for n in range(30_000))},
            "more than 20000 lines",
            marks=pytest.mark.thorough,
        ),
        ({"envpack.toml": "a." * 200_000 + "b = 1"}, "a key has more than 100 parts"),
        ({"envpack.toml": '"a" . ' * 200 + "b = 1"}, "a key has more than 100 parts"),
    ],
    ids=["lines", "parts", "quoted parts"],
)
def test_what_would_take_for_ever_is_refused(repository, files, says, capsys):
    for name, text in files.items():
        (repository / name).write_text(text)
    kind = "bad-requirements" if "m/requirements.txt" in files else "bad-project-file"
    refused(capsys, repository, "build m --dry-run --python 3.10", 3, kind, says)


def test_many_dots_in_a_text_are_no_key():
    assert parse_toml(f'a = "{"x." * 300}"\nb = ["{"1." * 300}"]\n')["b"] == ["1." * 300]


@pytest.mark.timeout(60)
def test_groups_that_include_each_other_in_many_ways_are_read_once(repository, capsys):
    groups = "".join(f'g{n} = [{{include-group = "g{n + 1}"}}, {{include-group = "h{n + 1}"}}]\n' for n in range(40))
    groups += groups.replace("\ng", "\nh").replace("g0 =", "h0 =", 1)
    text = f'[dependency-groups]\n{groups}g40 = ["six"]\nh40 = ["six"]\n[tool.envpack]\ngroups = ["g0"]\n'
    (repository / "m/requirements.txt").unlink()
    (repository / "m/pyproject.toml").write_text(text)
    options = ["--python", "3.10", "--channel", "conda-forge"]  # no Python of this machine is needed
    assert run(["build", "m", "--dry-run", *options, "--repository", str(repository)]) == 0
    capsys.readouterr()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["pipe", "endless device"])
def test_a_deployment_has_no_odd_files(repository, what, tmp_path, capsys):
    MADE[what](repository / "m/odd")
    refused(capsys, repository, f"layout --output {tmp_path / 'tree'}", 3, "special-file", "m/odd")


@pytest.fixture
def repository_with_circle(repository):
    (repository / "circle").symlink_to("circle")
    return repository


@every_row("command", CIRCLES)
def test_links_in_a_circle_are_refused(repository_with_circle, command, capsys):
    refused(capsys, repository_with_circle, command.format(repository_with_circle), *CIRCLES[command])


def test_links_in_a_circle_are_deployed_as_other_links_that_lead_nowhere(repository, tmp_path, capsys):
    (repository / "m/circle").symlink_to("circle")
    assert run(["layout", "--output", str(tmp_path / "tree"), "--repository", str(repository)]) == 0
    assert (tmp_path / "tree/models/m/circle").readlink().name == "circle"
    capsys.readouterr()


def test_a_deployment_has_no_files_of_the_kernel(repository, tmp_path, capsys):
    MADE["file of the kernel"](repository / "m/odd")
    refused(capsys, repository, f"layout --output {tmp_path / 'tree'}", 7, "file-unusable", "/mem: ")
    assert not list(tmp_path.glob("*tree*"))


def test_a_deployment_that_does_not_fit_is_not_begun(repository, tmp_path, capsys):
    with (repository / "m/weights").open("wb") as file:
        file.truncate(1 << 42)
    refused(capsys, repository, f"layout --output {tmp_path / 'tree'}", 7, "disk-full", "m/weights")
    assert not list(tmp_path.glob("*tree*"))


def test_an_error_of_a_file_names_it():
    with pytest.raises(OSError, match="Input/output") as caught:
        read_bytes("/proc/self/mem")
    assert caught.value.filename == "/proc/self/mem"

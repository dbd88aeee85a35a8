"""What the command line prints, where, and when it prints nothing."""

import json
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.cli.console import SAID_REPOSITORY, Console, Failure, table
from envpack.cli.main import run
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import Ended, assert_refused, command, envpack, listing, variables

COMMANDS = ("init", "lock", "build", "stub", "inspect", "releases", "layout", "publish", "verify", "doctor")
GROUPS = ("cache", "channel")
HEAVY = ("obstore", "rich", "rattler", "google.protobuf", "requests", "conda_pack", "yaml", "elftools")


@pytest.fixture
def repository(tmp_path):
    return BadInput("", "", 0, "", (), MODEL).write(tmp_path)


@pytest.fixture
def server(tmp_path):
    """A pretended installation, whose server says two lines and ends."""
    home = tmp_path / "triton"
    for name in (
        "bin/tritonserver",
        "backends/python/libtriton_python.so",
        "backends/python/triton_python_backend_stub",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("#!/bin/sh\necho one thing; echo another [thing]; exit 3\n")
    (home / "backends/python/triton_python_backend_utils.py").touch()
    (home / "bin/tritonserver").chmod(0o755)
    return home


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_every_command_and_exit_code(arguments, capsys):
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in (*COMMANDS, *GROUPS))
    assert all(f"{code} " in said for code in (0, 1, 2, 3, 4, 5, 6, 70, 130))


def test_an_output_that_is_no_folder_is_named_as_such(tmp_path, capsys):
    (tmp_path / "out").symlink_to("nowhere")
    assert run(["stub", "--python", "3.10", "--output", str(tmp_path / "out")]) == 3
    assert "out: this is not a folder (output-missing)" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_json_and_quiet(name, capsys):
    assert run([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert "--json" in said
    assert "--quiet" in said


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in (*COMMANDS, *GROUPS))])
def test_help_imports_nothing_heavy(arguments):
    code = (
        f"import sys; from envpack.cli.main import run; assert run({arguments!r}) == 0; "
        f"assert not [name for name in {HEAVY!r} if name in sys.modules]"
    )
    done = subprocess.run([sys.executable, "-c", code], env=variables(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_a_terminal_there_is_no_escape_code(tmp_path):
    made = envpack("init", tmp_path / "r")
    refused = envpack("init", tmp_path / "r")
    assert (made.code, refused.code) == (0, 3)
    assert "\x1b" not in made.out + made.err + refused.out + refused.err


@pytest.mark.parametrize(("no_color", "escapes"), [(None, True), ("1", False)])
def test_a_terminal_gets_colours_unless_it_does_not_want_them(tmp_path, no_color, escapes):
    ours, theirs = pty.openpty()
    changes = {"NO_COLOR": no_color, "TERM": "xterm-256color", "FORCE_COLOR": None}
    child = subprocess.Popen(
        command("init", tmp_path / "r"), env=variables(changes), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while part := _read(ours):
        said += part
    os.close(ours)
    assert child.wait() == 0
    assert b"copy recipe digits" in said
    assert (b"\x1b" in said) == escapes


def test_a_copied_recipe_names_the_file_with_its_steps(tmp_path, capsys):
    assert run(["init", str(tmp_path / "r")]) == 0
    assert f"{tmp_path / 'r'}: README.md there has all steps" in capsys.readouterr().err
    assert "train.py" in (tmp_path / "r/README.md").read_text()


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # what Linux says at the end of a terminal
        return b""


def test_quiet_says_nothing_of_a_success_and_everything_of_an_error(tmp_path, capsys):
    assert run(["init", "--quiet", str(tmp_path / "r")]) == 0
    assert capsys.readouterr() == ("", "")
    assert run(["init", "--quiet", str(tmp_path / "r")]) == 3
    assert [line.partition(": ")[0].strip() for line in capsys.readouterr().err.splitlines()] == ["error", "fix"]


def test_commands_for_people_to_copy_are_quoted(repository, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    place = tmp_path / "pub lished"
    for words, shown in (
        (("publish", f"file://{place}", "--repository", str(repository)), f"'--model-repository={place}'"),
        (("fetch", f"file://{place}", str(tmp_path / "fet ched")), f"'--model-repository={tmp_path}/fet ched'"),
        (
            ("layout", "--output", str(tmp_path / "tr ee"), "--repository", str(repository)),
            f"'type=bind,source={tmp_path}/tr ee/models,target=/models,readonly'",
        ),
    ):
        assert run(words) == 0
        assert shown in capsys.readouterr().out


def test_init_makes_a_repository_and_says_where_as_json(tmp_path, capsys):
    (tmp_path / "r").mkdir()  # an empty folder is as good as none
    assert run(["init", "--json", str(tmp_path / "r")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"schema": 1, "recipe": "digits", "directory": str(tmp_path / "r")}
    assert (tmp_path / "r/envpack.toml").is_file()
    assert (tmp_path / "r/core/1/model.py").is_file()
    assert not list(tmp_path.rglob("__pycache__"))


def test_text_of_users_is_no_markup(capsys):
    failure = Failure("cannot [red]parse[/red]\nsecond [bold]line", "bad-config", 3, "a[1]/config.pbtxt:2", "try [0]")
    Console().failed(failure)
    assert capsys.readouterr().err.splitlines() == [
        "error: a[1]/config.pbtxt:2: cannot [red]parse[/red] (bad-config)",
        "    second [bold]line",
        "  fix: try [0]",
    ]


def test_a_table_on_a_narrow_terminal_loses_no_letter_of_a_command(capsys):
    console, shown = Console(), table()
    console.output.width = 40
    shown.add_row("warn", "zig", f"fix: /home/you/{'b' * 60}")
    console.show(shown)
    assert capsys.readouterr().out.count("b") == 60


def test_a_step_that_has_no_outcome_ends_its_line_after_its_name(capsys):
    console = Console()
    for outcome in ("", "done"):
        console.begin("fetch")
        console.end(outcome)
    assert capsys.readouterr().err.splitlines() == ["  fetch …", "  fetch … done"]


def test_a_fix_names_the_repository_that_the_command_was_given(tmp_path, repository, capsys, monkeypatch):
    config = repository / "m/config.pbtxt"
    environment = 'string_value: "$$TRITON_MODEL_DIRECTORY/env"'
    config.write_text(f'{config.read_text()}parameters {{ key: "EXECUTION_ENV_PATH" value {{ {environment} }} }}\n')
    (tmp_path / "my models").symlink_to(repository)
    monkeypatch.chdir(tmp_path)
    assert run(["publish", f"file://{tmp_path}/published", "--repository", "repository"]) == 3
    assert "run `envpack build --repository repository m`\n" in capsys.readouterr().err
    assert run(["inspect", "repository/m"]) == 1  # so does one that was given the model's folder
    assert "run `envpack build --repository repository m`\n" in capsys.readouterr().out
    assert run(["inspect", "--repository", "my models"]) == 1
    assert "run `envpack build --repository 'my models' m`\n" in capsys.readouterr().out
    assert run(["inspect", "--json", "--repository", "my models"]) == 1
    fixes = [finding["fix"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert "run `envpack build --repository 'my models' m`" in fixes
    said = SAID_REPOSITORY.set(Path("my models"))
    commands = ("build", "inspect")
    Console(as_json=True, quiet=True).result({"warnings": [f"run `envpack {command} m`" for command in commands]})
    SAID_REPOSITORY.reset(said)
    found = json.loads(capsys.readouterr().out)["warnings"]
    assert found == [f"run `envpack {command} --repository 'my models' m`" for command in commands]
    monkeypatch.chdir(repository)
    assert run(["inspect"]) == 1
    assert "run `envpack build m`\n" in capsys.readouterr().out
    monkeypatch.chdir(repository / "m")
    assert run(["inspect"]) == 1
    assert f"run `envpack build --repository {repository} m`\n" in capsys.readouterr().out


class PanicException(BaseException):
    """As pyo3 has it for libraries in Rust, which is no Exception."""


@pytest.mark.parametrize("error", [KeyError("x"), PanicException("x")], ids=["of Python", "of Rust"])
def test_a_bug_says_that_it_is_one_and_how_to_report_it(error, tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr("envpack.settings.examples.copy_recipe", fail)
    monkeypatch.delenv("ENVPACK_TRACEBACK", raising=False)
    code = run(["init", "--json", str(tmp_path / "r")])
    said = f"{type(error).__name__}: {error}"
    assert_refused(Ended(code, *capsys.readouterr()), 70, "bug", said, "ENVPACK_TRACEBACK=1")
    monkeypatch.setenv("ENVPACK_TRACEBACK", "1")
    with pytest.raises(type(error)):
        run(["init", str(tmp_path / "r")])


def test_an_interruption_has_its_own_exit_code(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("envpack.settings.examples.copy_recipe", interrupted)
    code = run(["init", "--json", str(tmp_path / "r")])
    assert_refused(Ended(code, *capsys.readouterr()), 130, "interrupted")


def test_a_port_that_is_taken_is_named(repository, server, capsys):
    before = listing(repository)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        code = run(
            ["verify", "--json", "--repository", str(repository), "--server", str(server), "--set", f"port={port}"]
        )
    assert_refused(Ended(code, *capsys.readouterr()), 6, "port-taken", port, "choose another port")
    assert listing(repository) == before


def test_a_server_that_does_not_start_shows_its_last_words_below_the_error(repository, server, capsys):
    code = run(["verify", "--json", "--repository", str(repository), "--server", str(server)])
    ended = Ended(code, *capsys.readouterr())
    assert_refused(ended, 6, "server-failed", "did not start")
    assert "    one thing\n    another [thing]\n" in ended.err


def test_a_server_that_does_not_start_for_want_of_open_files_has_the_limit_as_its_fix(repository, server, capsys):
    program = server / "bin/tritonserver"
    words = "[err] /src/signal.c: socketpair: Too many open files"
    program.write_text(program.read_text().replace("one thing", f"'{words}'"))
    code = run(["verify", "--json", "--repository", str(repository), "--server", str(server)])
    assert_refused(Ended(code, *capsys.readouterr()), 6, "server-failed", "raise the limit of open files")


@pytest.mark.parametrize(
    "words",
    [
        ("--runtime", "docker", "--server", "/opt/tritonserver"),
        ("--runtime", "process", "--image", "example/triton:1"),
        ("--runtime", "process", "--set", "pull=true"),
        ("--set", "env==nameless"),
        ("--set", "shm_size=much"),
    ],
    ids=" ".join,
)
def test_options_of_verify_that_make_no_sense_are_refused(repository, capsys, words):
    code = run(["verify", "--json", "--repository", str(repository), *words])
    named = words[-1].partition("=")[0] if "--set" in words else words[0] if len(words) == 2 else words[2]
    assert_refused(Ended(code, *capsys.readouterr()), 2, "usage", named)


@pytest.mark.parametrize(
    "words", [("verify", "--report"), ("run", "m", "--output"), ("inspect", "python3.10", "--sbom")], ids=" ".join
)
def test_no_folder_is_made_for_a_file_of_results(repository, capsys, words, monkeypatch):
    """A path with a missing folder is usually misspelled. Nor is a folder replaced."""
    monkeypatch.chdir(repository)
    (repository / "python3.10/conda-meta").mkdir(parents=True)
    code = run([*words, "none/such/file", "--json"])
    assert_refused(Ended(code, *capsys.readouterr()), 3, "output-missing", str(repository / "none/such"))
    assert not (repository / "none").exists()
    code = run([*words, "python3.10", "--json"])
    assert_refused(Ended(code, *capsys.readouterr()), 3, "output-missing", "python3.10")


def test_releases_are_listed_for_people_and_for_programs(capsys):
    assert run(["releases", "--json"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    facts = {release["name"]: release for release in told["releases"]}
    assert set(told) == {"schema", "default", "releases"}
    assert facts[told["default"]]["server"] == "2.51.0"
    rows = {line.split()[0]: line.split() for line in said.err.splitlines()[1:]}
    assert list(rows) == list(facts)
    assert rows["23.04"][1:] == ["2.33.0", "23.04", "3.8", "no", "2.31", "archive", "run", "nvidia-pytriton", "0.2.5"]
    assert rows["26.07"][1:] == ["2.71.0", "26.03", "3.12", "yes", "2.39", "folder,", "archive", "not", "run"]


def test_an_empty_word_says_nothing(repository, capsys):
    """As that of `--channel "$UNSET"`."""
    words = ("--channel", "", "--allow-source", "", "--python", "")
    assert run(["build", "--dry-run", "--json", "--repository", str(repository), *words]) == 0
    assert json.loads(capsys.readouterr().out)["models"]


def test_set_counts_more_than_a_variable(repository, capsys, monkeypatch):
    monkeypatch.setenv("ENVPACK_STORE", "nonsense://")
    words = ["build", "--dry-run", "--repository", str(repository)]
    assert run([*words, "--set", "store=none"]) == 0
    assert run([*words, "--store", "none", "--set", "store=none"]) == 2
    assert "store is said twice" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["", "--store s3://b", "--store s3://b --set push=true --python 3.9", "m"])
def test_a_recipe_goes_with_a_store_that_receives_it_alone(repository, capsys, words):
    file = str(repository / "m/config.pbtxt")
    assert run(["build", "--recipe", file, "--repository", str(repository), *words.split()]) == 2
    assert "--recipe goes with --store and --set push=true, and with nothing else" in capsys.readouterr().err

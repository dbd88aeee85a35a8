"""What was asked for goes to standard output, everything else to standard error; a closed pipe ends quietly."""

import json
import signal
import subprocess
import sys

import pytest

from envpack.cli.console import Console, Failure
from envpack.cli.main import COMPLETION_VARIABLE, run
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import command, variables
from tests.needed_pythons import need_interpreter

PYTHON = f"3.{sys.version_info.minor}"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def repository(tmp_path):
    return BadInput("", "", 0, "", (), MODEL).write(tmp_path)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("releases",), "24.10"),
        (("cache", "ls"), "cache: 0.0 MB"),
        (("stub", "--python", PYTHON, "--print-matrix"), f"cp3{sys.version_info.minor}-"),
        (("build", "--dry-run", "--python", PYTHON, "--channel", "conda-forge"), "would resolve the packages"),
    ],
    ids=lambda words: words[0],
)
def test_results_go_to_standard_output(repository, monkeypatch, capsys, words, printed):
    if words[0] == "stub":
        need_interpreter(PYTHON)
    monkeypatch.chdir(repository)
    assert run(list(words)) == 0
    assert printed in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["schema"] == 1
    assert printed in said.err


def test_lines_without_a_terminal_end_without_blanks(capsys):
    assert run(["releases"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [line.rstrip() for line in lines]


def test_a_reader_that_stops_reading_is_no_error():
    with subprocess.Popen(
        command("releases"), env=variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.close()
        complaints = child.stderr.read()
    assert child.returncode == 128 + signal.SIGPIPE
    assert complaints == b""


@pytest.mark.parametrize("group", ["cache", "channel"])
def test_a_group_without_a_command_prints_its_help(group, capsys):
    assert run([group]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"Usage: envpack {group} ")
    assert said.err == ""


@pytest.mark.parametrize(
    ("words", "encoding", "shown"),
    [(("releases",), "ascii", "24.10"), (("build", "--help"), "latin-1", "Usage:"), (("--help",), "euc_jp", "Usage:")],
)
def test_a_locale_without_some_characters_still_gets_the_output(words, encoding, shown):
    done = subprocess.run(
        command(*words),
        env=variables({"PYTHONIOENCODING": encoding}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown in done.stdout


def test_the_next_command_is_named_on_standard_error(tmp_path, capsys):
    target = str(tmp_path / "models")
    assert run(["init", target]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"next: envpack build --repository {target}" in said.err.splitlines()
    assert run(["init", "--json", str(tmp_path / "other")]) == 0
    assert "next:" not in capsys.readouterr().err


def ended(words, redirection):
    """Exit status and standard error of a command line under a shell's redirection."""
    program = " ".join(command(*words))
    done = subprocess.run(
        ["bash", "-c", f"exec {program} {redirection}"],
        env=variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words",
    [("releases",), ("releases", "--json"), ("completion", "bash"), ("--help",), ("cache",), ("--version",)],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("redirection", "cause"),
    [("> /dev/full", "No space left on device"), ("1< /dev/null", "Bad file descriptor")],
    ids=["full", "open for reading only"],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line_and_an_exit_code(words, redirection, cause, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    code, complaints = ended(words, redirection)
    assert code == 7
    assert f"error: standard output: cannot be written: {cause} (output-failed)" in complaints
    assert "Traceback" not in complaints


@pytest.mark.parametrize("redirection", ["> /dev/full", "1< /dev/null"])
def test_a_shell_that_reads_no_completions_gets_no_traceback(redirection, monkeypatch):
    monkeypatch.setenv(COMPLETION_VARIABLE, "bash_source")
    assert ended((), redirection) == (1, "")


@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-", ">&-", ">&- 2>&- <&-"])
def test_closed_and_full_streams_do_not_change_the_exit_code(redirection):
    assert ended(("releases",), redirection)[0] == 0
    assert ended(("stub", "--python", "2.7", "--print-matrix"), redirection)[0] == 2


def test_nothing_that_can_be_written_is_still_an_exit_code():
    assert ended(("stub", "--python", "2.7", "--print-matrix", "--json"), "> /dev/full 2> /dev/full")[0] == 2


def test_files_that_are_opened_do_not_take_the_place_of_a_closed_stream():
    program = (
        "from envpack.cli.streams import prepare_streams; prepare_streams(); import os, sys; "
        "handle = os.open('/dev/null', os.O_RDONLY); sys.exit(handle)"
    )
    done = subprocess.run(["bash", "-c", f'exec "$0" -c "{program}" >&- 2>&- <&-', sys.executable], check=False)
    assert done.returncode > 2


def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(tmp_path):
    """`click` is made to be interrupted while it is imported. Programs in the background would ignore that."""
    (tmp_path / "click.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(60)\n"
    )
    done = subprocess.run(
        ["env", "--default-signal=INT", sys.executable, "-m", "envpack", "releases"],
        env=variables({"PYTHONPATH": str(tmp_path)}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b1mVERDICT: yes\u202e [/bold] [link=x] :boom: \udcff"


@pytest.mark.parametrize("shown", [Console.show, Console.note], ids=["result", "remark"])
def test_text_cannot_control_the_terminal(shown, capsys):
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(title=escape(HOSTILE))
    table.add_column("column")
    table.add_row(escape(HOSTILE))
    for what in (escape(HOSTILE), table):
        shown(console, what)
    console.failed(Failure(HOSTILE, "kind", 3, where=HOSTILE, hint=HOSTILE))
    said = capsys.readouterr()
    text = said.out + said.err
    assert not set(text) & set("\x1b\x07\x9b\u202e\udcff")
    # rich itself leaves the bell out
    assert "\\x1b[2J\\x1b]0;title\\x9b1mVERDICT: yes\\u202e [/bold] [link=x] :boom: \\udcff" in text


def test_progress_cannot_control_the_terminal(capsys):
    console = Console()
    console.begin(HOSTILE)
    console.detail(HOSTILE)
    console.end(HOSTILE)
    said = capsys.readouterr().err
    assert said.count("\\x1b[2J") == 3
    assert "\x1b" not in said

"""Values of options, of any content: a command takes them, or refuses them with a documented exit code."""

import pytest
from hypothesis import example, given, strategies as st

from envpack.archive.selection import Selection
from envpack.cli.main import COMPLETION_VARIABLE, answer_shell, cli, run
from envpack.conda.settings import CondaSettings
from envpack.environment.inventory import Entry
from envpack.fleet.cluster import parse_address
from envpack.settings.releases import find_release
from envpack.support.folders import expand_home
from tests.faults.bad_input import MODEL, BadInput
from tests.hostile import hostile, read_or_refused

WORDS = st.sampled_from(
    [
        "24.10",
        "3.10",
        "²",
        "9" * 5000,
        "-1",
        "1e999",
        "nan",
        "inf",
        "0",
        "~nobody-here",
        "\udcff",
        "a\nb",
        "\x1b[2J",
        "[b]",
    ]
) | st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
COMMANDS = st.sampled_from(
    [
        ["build", "m", "--dry-run", "--triton"],
        ["build", "m", "--dry-run", "--python"],
        ["build", "m", "--dry-run", "--channel"],
        ["build", "m", "--dry-run", "--set", "abi="],
        ["build", "m", "--dry-run", "--from-prefix"],
        ["build", "m", "--dry-run", "--set", "served_from="],
        ["build"],
        ["inspect"],
        ["inspect", "--triton"],
        ["inspect", "--set", "backends="],
        ["verify", "--server"],
        ["verify", "--server", "/nowhere", "--set", "port="],
        ["verify", "--server", "/nowhere", "--timeout"],
        ["verify", "--server", "/nowhere", "--set", "shm_size="],
        ["verify", "--server", "/nowhere", "--set", "preload="],
        ["verify", "--server", "/nowhere", "--env"],
        ["layout", "--served-from", "/m", "--output"],
        ["stub", "--print-matrix", "--prefix"],
        ["cache", "prune", "--dry-run", "--days"],
        ["init", "--recipe"],
        ["channel", "ls"],
        ["releases", "--unknown"],
    ]
)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    repository = BadInput("any", "", 0, "", (), MODEL).write(tmp_path)
    (repository / "elsewhere").write_text("no folder")
    monkeypatch.chdir(repository)
    return repository


@hostile
@given(COMMANDS, WORDS)
@pytest.mark.usefixtures("repository")
def test_values_of_options(command, word):
    words = [*command[:-1], command[-1] + word] if command[-1].endswith("=") else [*command, word]
    assert run(words) in {0, 1, 2, 3, 4, 5, 6, 7}


@hostile
@given(WORDS | st.lists(st.sampled_from([*"24.10vpy-3 ²"]), max_size=8).map("".join), WORDS)
def test_names_of_releases(name, abi):
    with read_or_refused():
        assert find_release(name, abi=abi).name


PATTERNS = st.lists(st.sampled_from([*"ab*?[]!#\\/.-(){}+^$|", "**"]), max_size=8).map("".join) | st.text(max_size=6)


@hostile
@given(st.lists(PATTERNS, max_size=3), st.lists(PATTERNS, max_size=2))
def test_patterns_of_files(exclude, include):
    entries = (Entry("lib/a.b", "file", "x"), Entry("lib/-", "folder", "x"), Entry("l", "link", "x", target="lib/a.b"))
    with read_or_refused():
        assert set(Selection(tuple(exclude), tuple(include)).of(entries)) <= set(entries)


CHANNELS = st.lists(
    st.sampled_from(
        ["https://", "me:5ecret@", "host", ":8", "/t/5ecret/", "/c", "[", "]", "?x=5ecret", "#", "@", "~x", "://"]
    )
    | st.text(max_size=3),
    max_size=6,
).map("".join)


@hostile
@given(CHANNELS)
def test_addresses_of_channels(name):
    with read_or_refused():
        channels = CondaSettings().resolve([name])
        assert not any("5ecret@" in url for url in channels.urls)


@hostile
@given(st.text() | st.lists(st.sampled_from(["local:", "tcp://", "tls://", "h", "[", "]", ":", "9", "²"])).map("".join))
def test_addresses_of_clusters(text):
    with read_or_refused():
        assert str(parse_address(text)) == text or text.startswith("local:0")


@hostile
@given(st.text())
def test_folders_of_users(text):
    with read_or_refused():
        expand_home(text, "test")
    with read_or_refused():
        expand_home(f"~{text}", "test")


@hostile
@example("fish_complete", "24.10", " ")
@given(st.sampled_from(["bash_complete", "zsh_complete", "fish_complete", "bash_source", "x"]), WORDS, WORDS)
@pytest.mark.usefixtures("repository")
def test_what_a_shell_completes(capsys, instruction, words, number):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COMP_WORDS", f"envpack build {words}")
        patched.setenv("COMP_CWORD", number)
        assert answer_shell(cli, instruction) in (0, 1)
        patched.delenv("COMP_WORDS")
        assert answer_shell(cli, instruction) in (0, 1)
    assert COMPLETION_VARIABLE.startswith("_ENVPACK")
    capsys.readouterr()

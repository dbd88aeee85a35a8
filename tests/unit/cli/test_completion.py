"""Shell completion: the protocol for every shell, and the scripts in the shells that this machine has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.cli.main import run

ENVPACK = Path(sys.executable).with_name("envpack")
SHELLS = ("bash", "zsh", "fish")


def ask(shell, words, current):
    """The candidates that envpack prints for the last word of a command line."""
    line = " ".join(words)
    variables = {
        "_ENVPACK_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": current if shell == "fish" else str(len(words) - 1),
    }
    done = subprocess.run([ENVPACK], env=os.environ | variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_are_completed(shell):
    candidates = ask(shell, ["envpack", "ver"], "ver")
    assert "verify" in candidates
    assert "build" not in candidates


@pytest.mark.parametrize("shell", SHELLS)
def test_options_are_completed(shell):
    assert "--timeout" in ask(shell, ["envpack", "verify", "--time"], "--time")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_variable_prints_the_same_script_as_the_command(shell, capsys):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    source = os.environ | {"_ENVPACK_COMPLETE": f"{shell}_source"}
    done = subprocess.run([ENVPACK], env=source, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, script.strip())
    assert "_ENVPACK_COMPLETE" in script


def in_shell(shell, program, tmp_path):
    """What a program prints in a shell that has found envpack on PATH."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    variables = {"PATH": f"{ENVPACK.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}
    command = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "--no-config", "-c"]}
    done = subprocess.run([*command[shell], program], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes(tmp_path):
    program = """
eval "$(envpack completion bash)"
complete -p envpack > /dev/null
COMP_WORDS=(envpack ver) COMP_CWORD=1
_envpack_completion envpack ver envpack
printf '%s\\n' "${COMPREPLY[@]}"
"""
    assert in_shell("bash", program, tmp_path) == ["verify"]


def test_zsh_completes(tmp_path):
    program = """
autoload -Uz compinit && compinit -u -d "$HOME/dump"
eval "$(envpack completion zsh)"
[[ ${_comps[envpack]} == _envpack_completion ]] || exit 9
compadd() { :; }
_describe() { printf '%s\\n' "${(@P)${@[-1]}}" "${(@P)${@[-2]}}" 2> /dev/null || true; }
words=(envpack ver) CURRENT=2
_envpack_completion
"""
    assert any(candidate.startswith("verify") for candidate in in_shell("zsh", program, tmp_path))


def test_fish_completes(tmp_path):
    program = "envpack completion fish | source; complete --do-complete 'envpack ver'"
    assert in_shell("fish", program, tmp_path)[0] == "verify"

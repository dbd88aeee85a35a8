"""`make demo` on a system that has git, make, Python and nothing else; ci/bare.sh has more systems and situations."""

import subprocess
from pathlib import Path

import pytest

from tests.portability.machinery import must_be_able_to_enter, program

BARE = Path(__file__).parents[2] / "ci/bare.sh"
UNTRIED = 2


@pytest.mark.timeout(1800)
def test_the_demo_passes_without_a_compiler_without_headers_and_with_pythons_that_are_fetched(cache):
    program("mmdebstrap", "mmdebstrap")
    must_be_able_to_enter()
    command = [BARE, "--roots", cache / "bare", "debian-12/fetched"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == UNTRIED:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout
    assert "yes: " in done.stdout

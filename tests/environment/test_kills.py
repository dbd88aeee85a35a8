"""Builds that are killed at random moments; `ci/kill_builds.py --times 100` is the long form of this test."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize("source", ["requirements", "prefix"])
def test_a_killed_build_leaves_the_old_state_or_the_new_one(source):
    command = [sys.executable, CHECKOUT / "ci/kill_builds.py", "--times", "5", "--source", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("5 kills")

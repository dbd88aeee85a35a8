"""Builds that are killed at random moments; `ci/kill_builds.py --times 100` is the long form of this test."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_a_killed_build_leaves_the_old_state_or_the_new_one():
    command = [sys.executable, CHECKOUT / "ci/kill_builds.py", "--times", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("5 kills")

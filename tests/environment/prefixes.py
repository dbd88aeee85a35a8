"""What the tests of environments that exist already share."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

from envpack.environment.store import MANIFEST
from envpack.support.errors import InputError
from tests.built import copied_environment

PYTHON = "3.10"


SITE = f"lib/python{PYTHON}/site-packages"


TOKEN = "tk-12345"


def uv(*words):
    subprocess.run([find_uv_bin(), *words], check=True, capture_output=True, env=os.environ | {"UV_OFFLINE": "1"})


def said_by(*words: str | Path, prefix: Path, server: bool = False) -> str:
    """What a program of an environment says with nothing in its environment but, at most, what a server sets."""
    variables = {"PATH": f"{prefix}/bin:/usr/bin"} if server else {}
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused(root, error=InputError, **how):
    with pytest.raises(error) as caught:
        copied_environment(root, **how)
    assert caught.value.hint
    return caught.value


def changed_hands(environment):
    entries = json.loads((environment.prefix / MANIFEST).read_text())["changed_hands"]
    return {(one["path"], one["before"], one["after"]) for one in entries}

"""The variables and parameters that the stub reads are in the reference, and `inspect` checks the parameters."""

import re

from envpack.repository.config_editor import STUB_PARAMETERS
from tests.unit.docs.documents import CHECKOUT, read

STUB = CHECKOUT / "stub_src"


def test_every_variable_of_the_stub_has_a_row():
    text = "".join(file.read_text(encoding="utf-8") for file in STUB.rglob("*.cc"))
    page = read("docs/reference/environment-variables.md").partition("## Read by the stub")[2]
    rows = set(re.findall(r"^\| `(ENVPACK_\w+)`", page, re.MULTILINE))
    assert set(re.findall(r'"(ENVPACK_\w+)"', text)) == rows, "correct docs/reference/environment-variables.md"


def test_the_values_of_every_parameter_are_known():
    text = (STUB / "front/settings.cc").read_text(encoding="utf-8")
    parameters = set(re.findall(r'find\("(ENVPACK_\w+)"\)', text))
    assert parameters == STUB_PARAMETERS.keys(), "correct STUB_PARAMETERS in envpack/repository/config_editor.py"

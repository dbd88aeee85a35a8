"""Errors of loads, with the lines of the model's code first."""

import pytest

from envpack.development.served import load_failure


def failure(folder, text):
    message = f"load failed for model 'model': version 1 is at UNAVAILABLE state: Internal: {text};"
    return load_failure(message, folder, "/models/model", "").splitlines()


def test_the_models_own_lines_come_first_with_their_code(tmp_path):
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text("def f():\n    fail()\n\nf()\n")
    text = (
        "NameError: name 'fail' is not defined\n\nAt:\n  /models/model/1/model.py(2): f\n"
        "  /models/model/1/model.py(4): <module>\n  <frozen importlib._bootstrap>(228): _call\n"
    )
    assert failure(folder, text) == [
        "NameError: name 'fail' is not defined",
        "model/1/model.py:2 in f",
        "    fail()",
        "model/1/model.py:4 in <module>",
        "    f()",
        "At:",
        "  <frozen importlib._bootstrap>(228): _call",
    ]


def test_a_syntax_error_shows_its_line(tmp_path):
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text("x = 1\ny = (\n")
    assert failure(folder, "SyntaxError: '(' was never closed (model.py, line 2)") == [
        "SyntaxError: '(' was never closed (model.py, line 2)",
        "model/1/model.py:2 in <module>",
        "    y = (",
    ]


LOG = "Error parsing text-format inference.ModelConfig: 3:7: Expected identifier.\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("failed to load 'model', failed to poll from model repository", "config.pbtxt:3:7: Expected identifier."),
        ("out of memory", "out of memory"),
        ("RuntimeError: the consumer failed to poll", "RuntimeError: the consumer failed to poll"),
    ],
)
def test_the_log_says_why_a_configuration_cannot_be_read(tmp_path, text, said):
    assert load_failure(text, tmp_path, "/models/m", LOG) == said

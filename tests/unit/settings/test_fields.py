"""Values of settings whose form decides what they mean."""

from pathlib import Path

import pytest

from envpack.settings.fields import BadValueError, OnServer


def read(text):
    return OnServer(example="/models").read("served_from", text, Path("envpack.toml"), "envpack.toml")


@pytest.mark.parametrize(
    ("text", "path"),
    [("/models", "/models"), ("/models/", "/models"), ("//models", "/models"), ("/a/../models", "/models"), ("", "")],
)
def test_a_path_on_the_server_is_one_spelling(text, path):
    assert read(text) == path


@pytest.mark.parametrize("text", ["models", "./models", "~/models"])
def test_a_path_on_the_server_begins_at_its_root(text):
    with pytest.raises(BadValueError, match="served_from in envpack.toml must begin with /"):
        read(text)

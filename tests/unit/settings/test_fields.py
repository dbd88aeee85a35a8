"""Values of settings whose form decides what they mean."""

from pathlib import Path

import pytest

from envpack.settings.fields import BadValueError, OnServer, Size


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


def size(text):
    return Size(example="8g").read("memory", text, Path("envpack.toml"), "envpack.toml")


def test_a_size_has_a_unit_and_counts_bytes_without():
    assert (size("1m"), size("8G"), size("1048576")) == (1 << 20, 8 << 30, 1 << 20)


@pytest.mark.parametrize("text", ["4", "4096", "512k", "0g", "8Gi", "1e9", "-1g", ""])
def test_a_size_that_no_container_starts_with_is_refused(text):
    with pytest.raises(BadValueError, match="memory in envpack.toml is not a size such as 512m or 1g") as raised:
        size(text)
    assert raised.value.hint == 'write it like memory = "8g"'

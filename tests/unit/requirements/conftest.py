import textwrap

import pytest

from envpack.requirements.format import read_requirements
from envpack.support.errors import InputError


@pytest.fixture
def write(tmp_path):
    """Write a file and the folders above it; returns its path."""

    def write_file(name, text):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    return write_file


@pytest.fixture
def refused():
    """Read a file that must be refused; returns the error, which must have a location and a hint."""

    def read(file, line=0, **how):
        with pytest.raises(InputError) as caught:
            read_requirements(file, **how)
        error = caught.value
        assert error.kind == "bad-requirements"
        assert error.hint
        assert "\n" not in str(error)
        if line:
            assert error.where.endswith(f":{line}"), error.where
        return error

    return read

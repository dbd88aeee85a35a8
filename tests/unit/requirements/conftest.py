import textwrap

import pytest

from envpack.requirements import read_requirements
from envpack.support.errors import InputError


@pytest.fixture
def write(tmp_path):
    """Writes a file, with the folders above it, and gives its path."""

    def write_file(name, text):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    return write_file


@pytest.fixture
def refused():
    """Reads a file that must be refused; gives the error, which must say file, line (0 for none) and what to do."""

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

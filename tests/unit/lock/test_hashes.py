"""Hashes in the lines of requirements: which lines count for a target, and what --require-hashes refuses."""

import pytest

from envpack.lock.pip import check_files, check_lines
from envpack.requirements.format import read_requirements
from envpack.requirements.model import PipPackage
from envpack.requirements.target import Target
from envpack.support.errors import EnvironmentBuildError
from tests.tables import every_row

A, B = "a" * 64, "b" * 64
TARGET = Target("linux-64", "3.10")
SIX = PipPackage("six", "1.17.0", "https://files.example/six-1.17.0-py3-none-any.whl", B)


def read(folder, text):
    file = folder / "requirements.txt"
    file.write_text(text)
    return read_requirements(file)


@every_row(
    "text",
    [
        f'six==1.16.0 ; python_version < "3.9" --hash=sha256:{A}\nsix ; python_version >= "3.9" --hash=sha256:{B}\n',
        f'six ; sys_platform == "win32" --hash=sha256:{A}\n',
        f'six ; python_full_version >= "3.10.1" --hash=sha256:{A}\n',  # uv reads 3.10 as 3.10.0
        f'six ; extra == "more" --hash=sha256:{A}\n',
        f'six ; sys_platform == "win32" --hash=sha512:{A}{A}\n',
        f"six --hash=sha256:{B.upper()}\n",
        "six\n",
    ],
)
def test_hashes_of_other_targets_and_capitals_do_not_matter(tmp_path, text):
    requirements = read(tmp_path, text)
    check_lines(requirements, TARGET)
    check_files([SIX], requirements, TARGET)


@every_row(
    ("text", "reason"),
    [
        (f'six ; python_full_version < "3.10.1" --hash=sha256:{A}\n', "none of its hashes matches"),
        (f"six --hash=sha512:{A}{A}\n", "none of its hashes is a SHA-256"),
    ],
)
def test_hashes_of_lines_that_apply_must_match(tmp_path, text, reason):
    with pytest.raises(EnvironmentBuildError, match=reason) as caught:
        check_files([SIX], read(tmp_path, text), TARGET)
    assert caught.value.kind == "hash-mismatch"


def test_a_hash_of_a_package_that_is_not_installed_does_not_matter(tmp_path):
    (tmp_path / "limits.txt").write_text(f"idna --hash=sha512:{A}{A}\nclick --hash=sha256:{A}\n")
    check_files([SIX], read(tmp_path, "-c limits.txt\nsix\n"), TARGET)


def test_a_hash_of_a_constraint_counts(tmp_path):
    (tmp_path / "limits.txt").write_text(f"six --hash=sha256:{A}\n")
    with pytest.raises(EnvironmentBuildError, match="none of its hashes matches") as caught:
        check_files([SIX], read(tmp_path, "-c limits.txt\nsix\n"), TARGET)
    assert (caught.value.kind, caught.value.where) == ("hash-mismatch", SIX.url)


@every_row(
    ("text", "line", "hint"),
    [
        ("--require-hashes\nsix==1.17.0\n", 2, "add --hash=sha256:…"),
        (f"six==1.17.0 --hash=sha256:{B}\n--require-hashes\nidna\n", 3, "add --hash=sha256:…"),
    ],
)
def test_a_line_without_a_hash_is_refused_if_hashes_are_required(tmp_path, text, line, hint):
    requirements = read(tmp_path, text)
    with pytest.raises(EnvironmentBuildError, match="with --require-hashes: '.*' has no hash") as caught:
        check_lines(requirements, TARGET)
    error = caught.value
    assert (error.kind, error.hint, error.where) == ("hash-missing", hint, f"{tmp_path}/requirements.txt:{line}")


def test_a_local_project_is_refused_if_hashes_are_required(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/setup.py").touch()
    with pytest.raises(EnvironmentBuildError, match="a local project has no hash") as caught:
        check_lines(read(tmp_path, "--require-hashes\n-e lib\n"), TARGET)
    assert (caught.value.kind, caught.value.where) == ("hash-missing", str(tmp_path / "lib"))
    assert "build its wheel" in caught.value.hint


@every_row(
    "text",
    [
        f"--require-hashes\nsix==1.17.0 --hash=sha256:{B}\n",
        f"--require-hashes\nsix @ {SIX.url}#sha256={B}\n",
        f'--require-hashes\nsix==1.17.0 --hash=sha256:{B}\nidna ; sys_platform == "win32"\n',
    ],
)
def test_lines_that_have_hashes_or_do_not_apply_are_accepted_if_hashes_are_required(tmp_path, text):
    requirements = read(tmp_path, text)
    check_lines(requirements, TARGET)
    check_files([SIX], requirements, TARGET)


def test_a_dependency_without_a_hash_is_refused_if_hashes_are_required(tmp_path):
    requirements = read(tmp_path, f"--require-hashes\nsix==1.17.0 --hash=sha256:{B}\n")
    idna = PipPackage("idna", "3.4", "https://files.example/idna-3.4-py3-none-any.whl", A)
    with pytest.raises(EnvironmentBuildError, match="the dependency 'idna' has no hash") as caught:
        check_files([SIX, idna], requirements, TARGET)
    error = caught.value
    assert (error.kind, error.where) == ("hash-missing", idna.url)
    assert error.hint == "add a line idna==3.4 --hash=sha256:…"

"""For any content of a file, a reader returns requirements or raises one clear error, and never hangs."""

import contextlib
import json
import os

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from envpack.requirements.format import all_formats, read_requirements
from envpack.requirements.model import Requirements
from envpack.support.errors import InputError
from tests.hostile import with_one_value_replaced
from tests.unit.requirements.test_locks import LOCKS, PIXI_6, PYLOCK
from tests.unit.requirements.test_pyproject import PROJECT

# Keys and values that readers know, so that random files pass the first checks.
WORDS = st.sampled_from(
    (
        *(
            "name",
            "channels",
            "dependencies",
            "pip",
            "python",
            "prefix",
            "variables",
            "platforms",
            "build_dependencies",
        ),
        *(
            "version",
            "environments",
            "default",
            "packages",
            "linux-64",
            "conda",
            "pypi",
            "url",
            "sha256",
            "md5",
            "size",
        ),
        *("package", "metadata", "manager", "platform", "hash", "category", "main", "subdir", "depends", "1", "6", "7"),
        *("lock-version", "created-by", "1.0", "wheels", "hashes", "marker", "sdist", "requires-python", ">=3.10", "x"),
        *("project", "dynamic", "optional-dependencies", "dependency-groups", "tool", "envpack", "uv", "sources"),
        *("extras", "groups", "include-group", "m[x]", "numpy<2", "-r x", "-e .", "--pre", "${HOME}", ".", "./x.whl"),
        *("file:///srv/linux-64/x-1-0.conda", "https://example.org/six-1-py3-none-any.whl", "https://[", "git+x", "@"),
        *("x @ https://[", "file:///%00", "\x00", "python_version > 'x'", "platform_release ~= '1'", "<<", "ü"),
    )
)
TEXT = WORDS | st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=24,
)
TABLES = st.dictionaries(TEXT, VALUES, max_size=6)
QUICK = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def read(path, text, **how):
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    error = None
    try:
        assert isinstance(read_requirements(path, **how), Requirements)
    except InputError as caught:
        error = caught
    if error:
        assert error.kind == "bad-requirements"
        assert error.hint
        assert "\n" not in str(error)
        assert len(error.message) < 1000


def toml_of(value):
    """A value as inline TOML; null becomes an empty text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    return json.dumps("" if value is None else value)


def toml_file(table):
    return "".join(f"{json.dumps(key)} = {toml_of(value)}\n" for key, value in table.items())


def yaml_of(text):
    import yaml

    return yaml.safe_load(text)


def parsed_toml(text):
    import tomllib

    return json.loads(json.dumps(tomllib.loads(text), default=str))


ENVIRONMENT = {
    "name": "x",
    "channels": ["conda-forge"],
    "dependencies": ["python=3.10", "numpy", {"pip": ["six", "-r x.txt"]}],
    "variables": {},
    "platforms": ["linux-64"],
}
PYTHON_ENV = {"python": "3.10.13", "build_dependencies": ["pip"], "dependencies": ["-r requirements.txt"]}
CONDA_LOCK = yaml_of((LOCKS / "conda-lock.yml").read_text(encoding="utf-8"))


NAMES = [name for known in all_formats() for name in known.names]


@QUICK
@given(
    table=TABLES,
    name=st.sampled_from([*NAMES, "pylock.x.toml", "other.toml", "other.yml", "other.lock"]),
    written=st.sampled_from([json.dumps, toml_file]),
    python=st.sampled_from(["", "3.10"]),
)
def test_random_tables(tmp_path, table, name, written, python):
    read(tmp_path / name, written(table), python=python)
    (tmp_path / name).unlink()  # a lock reads the pyproject.toml beside it


@pytest.mark.parametrize("base", [ENVIRONMENT, PYTHON_ENV, yaml_of(PIXI_6), CONDA_LOCK], ids=str)
def test_yaml_with_one_value_replaced(tmp_path, base):
    @QUICK
    @given(table=with_one_value_replaced(base, VALUES))
    def check(table):
        read(tmp_path / "file.yml", json.dumps(table))

    check()


@pytest.mark.parametrize("base", [PROJECT + "[tool.envpack]\nextras = ['all']\ngroups = ['serve']\n", PYLOCK])
def test_toml_with_one_value_replaced(tmp_path, base):
    @QUICK
    @given(table=with_one_value_replaced(parsed_toml(base), VALUES))
    def check(table):
        name = "pylock.toml" if "lock-version" in base else "pyproject.toml"
        read(tmp_path / name, toml_file(table))

    check()


PIP_WORDS = st.sampled_from(
    (
        *(
            "six",
            "==1",
            ";",
            "python_version < '3'",
            "@",
            "[x]",
            "lib",
            "./lib",
            "lib[x]",
            "x.txt",
            "-",
            "--",
            "'",
            "\\",
        ),
        *("-e", "-r", "-c", "-f", "-i", "--find-links", "--index-url", "--extra-index-url", "--pre", "--no-index", "#"),
        *(
            "--hash=sha256:" + "0" * 64,
            "--hash",
            "--only-binary",
            ":all:",
            "--trusted-host",
            "--require-hashes",
            "=",
            "é",
        ),
        *(
            "six-1-py3-none-any.whl",
            "./six-1-py3-none-any.whl",
            "https://example.org/six-1-py3-none-any.whl",
            "bad.whl",
        ),
        *(
            "https://me:word@example.org/",
            "file:lib",
            "file:///",
            "git+https://example.org/x",
            "${HOME}",
            "${NONE}",
            "\n",
        ),
        *(
            "//",
            "https://[x]/a.whl",
            "six @ https://[",
            "x" * 300,
            "\x0b",
            "\u2028",
            "/dev/null",
            "~",
            "%00",
            "file:%00",
        ),
    )
)


@QUICK
@given(words=st.lists(PIP_WORDS, max_size=10), separator=st.sampled_from(["", " "]))
def test_random_lines_of_pip(tmp_path, words, separator):
    (tmp_path / "lib").mkdir(exist_ok=True)
    (tmp_path / "lib/setup.py").touch()
    (tmp_path / "six-1-py3-none-any.whl").touch()
    (tmp_path / "x.txt").write_text("-c x.txt\n", encoding="utf-8")
    read(tmp_path / "requirements.txt", separator.join(words))
    read(tmp_path / "environment.yml", json.dumps({"dependencies": [{"pip": [separator.join(words)]}]}))


@QUICK
@given(
    name=st.sampled_from(NAMES),
    text=st.text(max_size=200) | st.lists(TEXT, max_size=8).map("\n".join) | st.lists(TEXT, max_size=8).map(" ".join),
)
@example(name="list.txt", text="@EXPLICIT\nhttps://[/linux-64/x-1-0.conda")
@example(name="requirements.txt", text="x @ https://[")
@example(name="requirements.txt", text="file:///%00")
@example(name="environment.yml", text="\ud800")
def test_random_text(tmp_path, name, text):
    read(tmp_path / name, text)
    (tmp_path / name).unlink()
    read(tmp_path / "list.txt", f"@EXPLICIT\n{text}")


@QUICK
@given(name=st.sampled_from(NAMES), content=st.binary(max_size=300))
def test_binary_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with contextlib.suppress(InputError):
        read_requirements(tmp_path / name)
    (tmp_path / name).unlink()


@pytest.mark.parametrize("name", NAMES)
def test_folders_and_pipes_are_refused(tmp_path, refused, name):
    (tmp_path / name).mkdir()
    assert "is not a file" in refused(tmp_path / name).message
    os.mkfifo(tmp_path / f"pipe-{name}")  # opening it would block
    assert "is not a file" in refused(tmp_path / f"pipe-{name}").message


def test_huge_file_is_refused_unread(tmp_path, refused):
    with (tmp_path / "requirements.txt").open("wb") as stream:
        stream.truncate(100 << 30)
    assert "larger than" in refused(tmp_path / "requirements.txt").message


def test_deeply_nested_toml_is_refused(tmp_path, refused):
    (tmp_path / "pylock.toml").write_text("x = " + "[" * 100_000, encoding="utf-8")
    refused(tmp_path / "pylock.toml")


def test_name_that_is_too_long_is_refused(tmp_path, refused):
    (tmp_path / "requirements.txt").write_text(f"-r {'x' * 5000}\n", encoding="utf-8")
    refused(tmp_path / "requirements.txt")

"""environment.yml of conda, conda.yaml and python_env.yaml of MLflow."""

import json

import pytest

from envpack.requirements.format import read_requirements
from envpack.requirements.formats import conda_environment
from tests.tables import every_row

HASH = "sha256:" + "0123456789abcdef" * 4


def test_environment_that_mlflow_writes(write):
    file = write(
        "conda.yaml",
        """\
        channels:
        - conda-forge
        dependencies:
        - python=3.10.13
        - pip<=23.1.2
        - pip:
          - mlflow==2.9.2
          - cloudpickle==3.0.0
        name: mlflow-env
        """,
    )
    found = read_requirements(file)
    assert (found.python, found.conda) == ("3.10", ())
    assert found.pip == ("mlflow==2.9.2", "cloudpickle==3.0.0")
    assert found.channels == ("conda-forge",)


def test_python_environment_that_mlflow_writes(write):
    file = write(
        "python_env.yaml",
        """\
        python: 3.10.13
        build_dependencies:
        - pip==23.1.2
        - setuptools==58.1.0
        - wheel==0.38.4
        dependencies:
        - -r requirements.txt
        """,
    )
    other = write("requirements.txt", "mlflow==2.9.2\n")
    found = read_requirements(file)
    assert (found.python, found.pip) == ("3.10", ("mlflow==2.9.2", "setuptools==58.1.0"))
    assert found.files == (file, other)


@pytest.mark.parametrize(
    ("built", "dependencies", "pip"),
    [
        ("setuptools", "six", ("six", "setuptools")),
        ("setuptools-scm==8.1.0", "six", ("six",)),
        ("setuptools==58.1.0", "setuptools==70.0.0", ("setuptools==70.0.0",)),
    ],
)
def test_setuptools_of_mlflow_is_required_unless_the_model_requires_another(write, built, dependencies, pip):
    text = f"python: 3.10.13\nbuild_dependencies: [{built}]\ndependencies: [{dependencies}]\n"
    assert read_requirements(write("python_env.yaml", text)).pip == pip


@every_row(
    ("name", "text"),
    [
        ("environment.yml", "python: 3.8\ndependencies: [a]\n"),
        ("gpu.yml", "channels: []\npython: 3.8\ndependencies: [a]\n"),
    ],
)
def test_a_file_of_conda_stays_one_with_a_key_that_mlflow_has(write, name, text):
    found = read_requirements(write(name, text))
    assert (found.conda, found.pip, found.python) == (("a",), (), "")
    assert found.warnings[0].endswith("the key 'python' is not read")


def test_python_environment_keeps_a_minor_that_ends_in_zero(write):
    assert read_requirements(write("python_env.yaml", "python: 3.10\n")).python == "3.10"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("python: three\n", 1),
        ("python: [3.10]\n", 1),
        ("python: 3.10\ndependencies: six\n", 2),
        ("python: 3.10\ndependencies:\n- six: 1\n", 3),
        ("python: 3.10\nbuild_dependencies:\n- {pip: 1}\n", 3),
        ("python: 3.10\nname: x\n", 2),
        ("python: 3.10\ndependencies:\n- -r none.txt\n", 3),
    ],
)
def test_invalid_python_env_is_refused_with_its_line(write, refused, text, line):
    refused(write("python_env.yaml", text), line)


@pytest.mark.parametrize(
    ("text", "channels"),
    [
        ("channels: [conda-forge, nodefaults]\n", ("conda-forge",)),
        ("channels: [b, a, b]\n", ("b", "a")),
        ("channels:\n", ()),
        (
            "channels: ['https://example.org/x', 'file:///srv/channel', defaults]\n",
            ("https://example.org/x", "file:///srv/channel", "defaults"),
        ),
    ],
)
def test_channels_keep_their_order(write, text, channels):
    assert read_requirements(write("environment.yml", text)).channels == channels


def test_relative_channel_is_resolved_against_the_file(write, tmp_path):
    file = write("model/environment.yml", "channels: [../my channel]\n")
    assert read_requirements(file).channels == (str(tmp_path / "my channel"),)


@pytest.mark.parametrize("url", ["https://me:very-secret@example.org/x", "https://example.org/t/very-secret/x"])
def test_channel_with_a_password_is_refused(write, refused, url):
    assert "very-secret" not in str(refused(write("environment.yml", f"name: x\nchannels:\n- {url}\n"), 3))


def test_pip_part_supports_the_lines_of_a_requirements_file(write):
    wheel = write("wheels/own-1.0-py3-none-any.whl", "")
    project = write("lib/setup.py", "").parent
    more, limits = write("more.txt", "click\n"), write("limits.txt", "numpy<2\n")
    file = write(
        "environment.yml",
        f"""\
        dependencies:
        - python=3.10
        - pip:
          - --index-url https://index.example.org/simple
          - -r more.txt
          - -c limits.txt
          - -e lib
          - ./wheels/own-1.0-py3-none-any.whl
          - six==1.16.0 --hash={HASH}  # a comment
        """,
    )
    found = read_requirements(file)
    assert found.pip == ("click", f"own @ {wheel.as_uri()}", f"six==1.16.0 --hash={HASH}")
    assert found.constraints == ("numpy<2",)
    assert found.projects == (project,)
    assert found.pip_options == ("--index-url https://index.example.org/simple",)
    assert found.files == (file, more, limits)


def test_exported_environment_with_builds(write):
    text = "dependencies:\n- python=3.10.13=hd12c33a_1_cpython\n- numpy=1.26.4=py310hb13e2d6_0\nprefix: /opt/x\n"
    found = read_requirements(write("environment.yml", text))
    assert (found.python, found.conda) == ("3.10", ("numpy=1.26.4=py310hb13e2d6_0",))


@pytest.mark.parametrize(
    "spec",
    [
        *("python=3.10", "python==3.10", "python 3.10.*", "python=3.10.18", "python = 3.10", "Python=3.10"),
        *("python >=3.10,<3.11", "python>=3.10,<3.11.0a0", "python ~=3.10.0"),
    ],
)
def test_what_allows_one_minor_version_names_it(write, spec):
    assert read_requirements(write("environment.yml", f"dependencies: ['{spec}']")).python == "3.10"


@every_row(
    ("entries", "allowed", "minor"),
    [
        (["python>=3.11", "numpy", "python<3.13"], ">=3.11,<3.13", ""),
        (["python>=3.11", "python<3.12", "python"], ">=3.11,<3.12", "3.11"),
        (["python=3.8|3.9|3.10", "python>=3.9", "python<3.10"], "==3.9.*", "3.9"),
        (["python=3.10", "python 3.10.*"], "==3.10.*", "3.10"),
        (["python", "python"], "", ""),
    ],
)
def test_several_entries_for_python_count_together(write, entries, allowed, minor):
    found = read_requirements(write("environment.yml", f"dependencies: {json.dumps(entries)}\n"))
    assert (found.python_range, found.python) == (allowed, minor)


@every_row(
    ("entries", "named"),
    [
        (["python>=3.11", "numpy", "python<3.11"], "'>=3.11 and <3.11'"),
        (["python>=3.10.5", "python", "python<3.10.2"], "'>=3.10.5 and <3.10.2'"),
        (["numpy", "six", "python>=3.11,<3.10"], "'>=3.11,<3.10'"),
    ],
)
def test_entries_for_python_that_exclude_each_other_are_refused(write, refused, entries, named):
    file = write("environment.yml", "dependencies:\n" + "".join(f"- {entry}\n" for entry in entries))
    error = refused(file, 4)
    assert (error.message, error.hint) == (f"no version of Python is allowed by {named}", "correct the ranges")


@every_row(
    ("entries", "message"),
    [
        (["numpy " + "[" * 5000], "has 5006 characters, more than 4096"),
        (["numpy" + " a" * 3000], "has 6005 characters, more than 4096"),
        (["python=" + "|".join(f"3.10.{patch}" for patch in range(51))], "does not name a version of Python"),
        ([f"python>=3.{minor}" for minor in range(21)], "more than 20 entries for python"),
    ],
)
def test_entries_that_would_take_long_are_refused(write, refused, entries, message):
    file = write("environment.yml", "dependencies:\n" + "".join(f"- '{entry}'\n" for entry in entries))
    assert message in refused(file, len(entries) + 1).message


def test_equal_versions_of_python_count_once(write):
    found = read_requirements(write("environment.yml", f"dependencies: [python={'|'.join(['3.10'] * 500)}]\n"))
    assert (found.python, found.python_range) == ("3.10", "==3.10.*")


def test_the_selector_of_a_line_with_many_entries_is_searched_once(write, monkeypatch):
    searched = []
    monkeypatch.setattr(conda_environment, "selector_of", lambda line: searched.append(line) or "win")
    found = read_requirements(write("environment.yml", "dependencies: [a, b, {pip: [c]}]\n"))
    assert (found.conda, found.pip, len(searched)) == ((), (), 1)


def test_a_channel_in_the_brackets_of_a_match_spec_is_read_and_checked(write, refused):
    found = read_requirements(write("environment.yml", "dependencies: ['numpy[channel=c]', 'python[channel=d]']\n"))
    assert found.conda == ("c::numpy", "d::python")
    error = refused(write("environment.yml", "dependencies: ['numpy[channel=https://me:very-secret@x.org/c]']\n"), 1)
    assert error.message == "the channel contains a password or a token"


def test_the_address_of_a_package_is_its_channel_version_and_build(write, refused):
    address = "https://{}a.example/c/linux-64/lib-foo-1.0-h_0.conda"
    found = read_requirements(write("environment.yml", f"dependencies: ['{address.format('')}#0123abc']\n"))
    assert found.conda == ("https://a.example/c::lib-foo==1.0=h_0",)
    error = refused(write("environment.yml", f"dependencies: ['{address.format('me:very-secret@')}']\n"), 1)
    assert error.message == "the channel contains a password or a token"


def test_anchors_are_understood(write):
    text = "dependencies:\n- &np numpy\n- *np\n- pip: &more [six]\n- pip: *more\n"
    found = read_requirements(write("environment.yml", text))
    assert (found.conda, found.pip) == (("numpy", "numpy"), ("six", "six"))


def test_platforms_must_include_the_target(write, refused):
    file = write("environment.yml", "platforms: [linux-64, osx-arm64]\ndependencies: [numpy]\n")
    assert read_requirements(file).conda == ("numpy",)
    assert "linux-aarch64" in refused(file, 1, platform="linux-aarch64").message


def test_empty_file_and_empty_keys(write, refused):
    refused(write("environment.yml", ""))
    assert read_requirements(write("environment.yaml", "dependencies:\nvariables: {}\n")).conda == ()


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("dependencies:\n- numpy\n- pip:\n  - six\n  - sci kit\n", 5, "'sci kit' is not a requirement"),
        ("dependencies:\n- numpy\n- pip:\n  - --unknown\n", 4, "'--unknown'"),
        ("dependencies:\n- numpy\n- pip:\n  - [six]\n", 4, "must be text"),
        ("dependencies:\n- pip: six\n", 2, "pip must be a list"),
        ("dependencies:\n- pip: [six]\n  npm: [x]\n", 2, "a list called pip"),
        ("dependencies:\n- numpy\n- 3\n", 3, "'3'"),
        ("dependencies:\n- numpy\n-\n", 3, "not the name of a package"),
        ("dependencies:\n- numpy\n- [x]\n", 3, "not the name of a package"),
        ("dependencies:\n- '>=3'\n", 2, "not the name of a package"),
        ("dependencies:\n- 'some thing::'\n", 2, "not the name of a package"),
        ("dependencies:\n- python>=three.8\n", 2, "a version of Python"),
        ("dependencies:\n- python=three\n", 2, "a version of Python"),
        ("dependencies: {}\n", 1, "must be a list"),
        ("channels: conda-forge\n", 1, "must be a list"),
        ("channels:\n- ''\n", 2, "'' is not a channel"),
        ("channels:\n- [x]\n", 2, "must be text"),
        ("name: x\ndepends: []\n", 2, "'depends'"),
        ("name: x\nname: y\n", 2, "'name' occurs twice"),
        ("name: x\n---\nname: y\n", 2, "second document"),
        ("dependencies: [numpy\n", 0, "not valid YAML"),
        ("dependencies:\n- a\n - b\n\t- c\n", 0, "not valid YAML"),
        ("dependencies:\n- !!python/object:os.system x\n", 2, "tags"),
        ("dependencies:\n- *unknown\n", 2, "anchor"),
        ("? [a]\n: b\n", 1, "key must be text"),
        ("<<: {dependencies: []}\n", 1, "'<<'"),
        ("- numpy\n", 0, "must be a table"),
        ("just text\n", 0, "must be a table"),
    ],
)
def test_invalid_conda_environment_is_refused_with_its_line(write, refused, text, line, expected):
    error = refused(write("environment.yml", text), line)
    assert expected in error.message
    assert "very-secret" not in str(error)


def test_deep_nesting_is_refused(write, refused):
    for opened in ("[", "{a:\n", "- "):
        error = refused(write("environment.yml", "dependencies:\n" + opened * 200_000))
        assert "nested too deeply" in error.message or "not valid YAML" in error.message


def test_lists_that_double_at_each_level_are_refused_at_once(write, refused):
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 35)), "dependencies: [*a34]"]
    refused(write("environment.yml", "\n".join(lines)))


def test_an_export_from_windows_loses_what_linux_has_not_and_says_so(write):
    file = write(
        "environment.yml",
        r"""
        dependencies:
        - python=3.10.4=hbb2ffb3_0
        - vc=14.2=h21ff451_1
        - numpy=1.22.3=py310h6d2d95c_0
        - pip:
          - pywin32==305
          - pillow
        prefix: C:\Users\me\x
        """,
    )
    found = read_requirements(file)
    assert (found.python, found.conda, found.pip) == ("3.10", ("numpy==1.22.3",), ("pillow",))
    exported = f"{file}:9: the file was exported on Windows: "
    assert found.warnings == (
        f"{exported}what Linux does not have is left out: 'vc=14.2=h21ff451_1', 'pywin32==305'",
        f"{exported}builds of packages are not read: 'numpy=1.22.3=py310h6d2d95c_0' is read as 'numpy==1.22.3'",
    )


def test_selectors_leave_out_lines_for_other_systems_and_say_so(write):
    text = "dependencies:\n- numpy  # [linux]\n- vc  # [win]\n- six  # [see]\n- pip:\n  - pyobjc # [osx]\n  - click\n"
    found = read_requirements(write("environment.yml", text))
    assert (found.conda, found.pip) == (("numpy", "six"), ("click",))
    assert found.warnings[0].endswith(":3: 'vc' is left out: its selector is [win]")
    assert "selects no known system" in found.warnings[1]
    assert "'pyobjc' is left out" in found.warnings[2]

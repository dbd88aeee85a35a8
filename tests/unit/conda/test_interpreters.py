"""Interpreters are found and selected; scripts stand in for them here, tests/environment uses real ones."""

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from envpack.conda.choice import interpreter_for, interpreter_here
from envpack.conda.interpreters import available_interpreters, interpreter_at, unreadable_folders
from envpack.settings.pythons import SUPPORTED
from envpack.settings.table import FIELDS
from envpack.support.errors import EnvironmentBuildError, StubError, UsageError
from envpack.support.memory import remember, remembered


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.delenv("PYENV_ROOT", raising=False)


def make_interpreter(folder: Path, version: str, *, library: bool = True, flags: str = "", **changes: object) -> Path:
    """Write a script that answers the probe like an interpreter, and records each start; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    minor = version.rpartition(".")[0]
    shared = folder / f"libpython{minor}{flags}.so.1.0"
    if library:
        shared.touch()
    facts = {
        "version": version,
        "prefix": str(folder.parent),
        "library": str(shared) if library else None,
        "include": "/i",
        "stdlib": "/s",
        "release": True,
        "implementation": "cpython",
        "patched": False,
        "free_threaded": False,
        "read": [],
    } | changes
    program = folder / f"python{minor}"
    program.write_text(f"#!/bin/sh\necho x >> {folder}/started\necho '{json.dumps(facts)}'\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "why"),
    [
        *((version, "is not a minor version like 3.10") for version in ("", "3", "3.10.2", "3.x", "ten")),
        *((version, "is not supported") for version in ("3.16", "3.99", "4.0")),
        ("2.7", "is too old: Triton's Python backend runs Python 3"),
        *(
            (version, "is too old: pybind11, with which stubs are compiled, supports 3.6 and later")
            for version in ("3.0", "3.5")
        ),
    ],
)
def test_malformed_or_unsupported_version_is_a_usage_error(version, why):
    with pytest.raises(UsageError) as caught:
        interpreter_for(version)
    assert caught.value.kind == "bad-python-version"
    assert caught.value.message == f"Python version {version!r} {why}"
    assert caught.value.hint == f"supported: {', '.join(SUPPORTED)}"


def test_missing_version_names_what_is_available_and_how_to_get_it(tmp_path):
    folder = make_interpreter(tmp_path / "a/bin", "3.9.1")
    with pytest.raises(EnvironmentBuildError) as caught:
        interpreter_for("3.8", search=[folder])
    assert caught.value.kind == "unknown-python"
    assert caught.value.message == "no Python 3.8 on this machine; available: 3.9"
    assert caught.value.hint.split("; or ") == [
        "use one that is here: --python 3.9",
        "take Python from a conda channel, such as --channel conda-forge",
    ]


def test_static_interpreter_is_refused_with_every_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    static = [make_interpreter(tmp_path / name / "bin", f"3.8.{name}", library=False) for name in "23"]
    usable = [make_interpreter(tmp_path / f"other{minor}/bin", f"{minor}.1") for minor in ("3.10", "3.9")]
    with pytest.raises(EnvironmentBuildError) as caught:
        interpreter_for("3.8", search=[*static, *usable])
    assert caught.value.kind == "static-interpreter"
    assert caught.value.message == (
        "no Python 3.8 on this machine that a stub can embed: "
        f"{static[0]}/python3.8 has no shared library (libpython3.8.so); "
        f"{static[1]}/python3.8 has no shared library (libpython3.8.so)"
    )
    assert caught.value.hint.split("; or ") == [
        "use one that is here: --python 3.9 or 3.10",
        "PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.8",
        "take Python from a conda channel, such as --channel conda-forge",
    ]


def test_only_a_version_that_the_requirements_allow_is_proposed(tmp_path):
    folder = make_interpreter(tmp_path / "bin", "3.9.1")
    for allowed, proposed in ((">=3.8", True), (">=3.10", False)):
        with pytest.raises(EnvironmentBuildError) as caught:
            interpreter_for("3.8", search=[folder], allowed=allowed)
        assert ("use one that is here: --python 3.9" in caught.value.hint) is proposed


def test_a_release_is_named_for_interpreters_of_other_versions_that_all_need_a_newer_c_library(tmp_path):
    folder = make_interpreter(tmp_path / "bin", "3.9.1")
    shutil.copy("/bin/sh", folder / "libpython3.9.so.1.0")
    way_out = r"choose a release with a newer system, with --triton \d\d\.\d\d: Python 3\.9 of this machine needs glibc"
    for glibc, expected in (("2.0", True), ("2.99", False)):
        with pytest.raises(EnvironmentBuildError) as caught:
            interpreter_for("3.8", search=[folder], glibc=glibc)
        assert bool(re.search(way_out, caught.value.hint)) is expected
        assert ("--python 3.9" in caught.value.hint) is not expected


def test_the_package_that_completes_the_distributions_interpreter_is_named(tmp_path, monkeypatch):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/apt-get").symlink_to("/bin/true")
    folder = make_interpreter(tmp_path / "bin", "3.8.2", library=False, patched=True)
    for path, expected in (("tools", True), ("bin", False)):
        monkeypatch.setenv("PATH", str(tmp_path / path))
        with pytest.raises(EnvironmentBuildError) as caught:
            interpreter_for("3.8", search=[folder])
        assert ("apt-get install python3.8-dev" in caught.value.hint.split("; or ")) is expected
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    shutil.copy("/bin/sh", make_interpreter(tmp_path / "whole", "3.8.2", patched=True) / "libpython3.8.so.1.0")
    with pytest.raises(EnvironmentBuildError) as caught:
        interpreter_for("3.8", search=[tmp_path / "whole"], glibc="2.0")  # which no package helps
    assert "apt-get" not in caught.value.hint


def test_an_interpreter_without_headers_does_not_fit_where_a_stub_is_compiled(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include/Python.h").touch()
    bare = make_interpreter(tmp_path / "a/bin", "3.8.9", include=str(tmp_path / "none"))
    whole = make_interpreter(tmp_path / "b/bin", "3.8.2", include=str(tmp_path / "include"))
    assert interpreter_for("3.8", search=[bare, whole]).version == "3.8.9"
    assert interpreter_for("3.8", search=[bare, whole], headers=True).version == "3.8.2"
    with pytest.raises(StubError) as caught:
        interpreter_for("3.8", search=[bare], headers=True)
    assert (caught.value.kind, caught.value.where) == ("headers-missing", str(tmp_path / "none"))
    assert f"{bare}/python3.8 has no headers" in caught.value.message


def test_the_preference_decides_between_interpreters_of_uv_and_others(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    own = make_interpreter(tmp_path / "own/bin", "3.8.2")
    of_uv = make_interpreter(tmp_path / "uv/cpython-3.8.9/bin", "3.8.9")

    def chosen(preference, *search):
        return interpreter_for("3.8", search=search, preference=preference).version

    expected = {"system": "3.8.9", "managed": "3.8.9", "only-system": "3.8.2", "only-managed": "3.8.9"}
    assert {
        preference: chosen(preference, own, of_uv) for preference in FIELDS["python_preference"].kind.values
    } == expected
    assert (chosen("managed", own), chosen("system", of_uv)) == ("3.8.2", "3.8.9")
    for preference, folder in (("only-system", of_uv), ("only-managed", own)):
        with pytest.raises(EnvironmentBuildError) as caught:
            chosen(preference, folder)
        assert caught.value.kind == "unknown-python"
        assert "available: none" in caught.value.message
    assert "pyenv" not in caught.value.hint  # whose interpreters are not uv's
    assert caught.value.hint.startswith("allow one that is not uv's, with --set python_preference=managed; or ")


@pytest.mark.parametrize("version", ["3.13t", "3.14t"])
def test_a_free_threaded_version_is_refused_with_what_is_missing(version):
    with pytest.raises(UsageError) as caught:
        interpreter_for(version)
    assert caught.value.kind == "bad-python-version"
    assert caught.value.message == (
        f"Python version {version!r} is free-threaded: the stub has no locks of its own for what Python's global "
        "interpreter lock protects"
    )


def test_a_free_threaded_interpreter_is_refused_with_what_is_missing(tmp_path):
    folder = make_interpreter(tmp_path / "bin", "3.13.2", free_threaded=True)
    for find in (lambda: interpreter_for("3.13", search=[folder]), lambda: interpreter_at(folder.parent, "3.13")):
        with pytest.raises(EnvironmentBuildError) as caught:
            find()
        assert caught.value.kind == "free-threaded"
        assert caught.value.message.endswith(
            "the stub has no locks of its own for what Python's global interpreter lock protects"
        )
        assert caught.value.hint.startswith("install Python 3.13 with the GIL, which is its default")


def test_an_interpreter_with_the_gil_wins_over_a_newer_free_threaded_one(tmp_path):
    usual = make_interpreter(tmp_path / "usual/bin", "3.13.2")
    free = make_interpreter(tmp_path / "free/bin", "3.13.9", free_threaded=True)
    assert interpreter_for("3.13", search=[free, usual]).version == "3.13.2"
    assert [found.version for found in available_interpreters([free, usual])] == ["3.13.2"]


def test_shared_interpreter_wins_over_a_newer_static_one(tmp_path):
    old = make_interpreter(tmp_path / "old/bin", "3.8.2")
    new = make_interpreter(tmp_path / "new/bin", "3.8.9", library=False)
    assert interpreter_for("3.8", search=[new, old]).version == "3.8.2"


def test_newest_patch_release_wins(tmp_path):
    folders = [make_interpreter(tmp_path / name / "bin", f"3.8.{name}") for name in ("9", "10", "2")]
    assert interpreter_for("3.8", search=folders).version == "3.8.10"


@pytest.mark.parametrize("change", [{"implementation": "pypy"}, {"release": False}])
def test_unusable_interpreters_are_skipped(tmp_path, change):
    assert available_interpreters([make_interpreter(tmp_path / "bin", "3.8.2", **change)]) == ()


def test_interpreter_is_probed_once_until_it_changes(tmp_path):
    folder = make_interpreter(tmp_path / "bin", "3.8.2")
    for _ in range(3):
        interpreter_for("3.8", search=[folder])
    assert (folder / "started").read_text() == "x\n"
    make_interpreter(folder, "3.8.20")
    assert interpreter_for("3.8", search=[folder]).version == "3.8.20"


def test_that_an_interpreter_has_no_shared_library_is_not_remembered(tmp_path):
    """A package of the distribution can bring the library without touching the program."""
    folder = make_interpreter(tmp_path / "bin", "3.8.2", library=False)
    library = folder / "libpython3.8.so.1.0"
    program = folder / "python3.8"
    program.write_text(f"""#!/bin/sh
[ -e {library} ] && found='"{library}"' || found=null
sed "s,@,$found," {folder}/answer
""")
    answer = (folder / "python3.8").with_name("answer")
    facts = {
        "version": "3.8.2",
        "prefix": str(tmp_path),
        "library": "@",
        "include": "/i",
        "stdlib": "/s",
        "release": True,
    }
    facts |= {"implementation": "cpython", "patched": False, "free_threaded": False, "read": []}
    answer.write_text(json.dumps(facts).replace('"@"', "@"))
    with pytest.raises(EnvironmentBuildError):
        interpreter_for("3.8", search=[folder])
    library.touch()
    assert interpreter_for("3.8", search=[folder]).library == library
    library.unlink()
    with pytest.raises(EnvironmentBuildError):
        interpreter_for("3.8", search=[folder])


def test_an_interpreter_is_probed_again_when_what_it_said_comes_from_another_file(tmp_path):
    config = tmp_path / "pyconfig.h"
    folder = make_interpreter(tmp_path / "bin", "3.8.2", read=[str(config)])
    for starts, content in enumerate(("", "1", "22"), 1):
        if content:
            config.write_text(content)
        for _ in range(2):
            interpreter_for("3.8", search=[folder])
        assert (folder / "started").read_text() == "x\n" * starts


def test_a_root_of_pyenv_that_this_user_may_not_read_is_passed_over_and_named(
    tmp_path, monkeypatch, permissions_for_root
):
    other = make_interpreter(tmp_path / "other/versions/3.8.9/bin", "3.8.9").parents[2]
    for name in ("UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYENV_ROOT", str(other))
    monkeypatch.setenv("PATH", f"{other}/shims:{make_interpreter(tmp_path / 'bin', '3.8.2')}")
    for closed in (other, other / "versions"):
        closed.chmod(0o000)
        versions = [interpreter.version for interpreter in available_interpreters()]
        assert "3.8.2" in versions
        assert "3.8.9" not in versions
        assert unreadable_folders() == [f"PYENV_ROOT={other}"]
        with pytest.raises(EnvironmentBuildError, match=rf"no Python 3\.9.*PYENV_ROOT={other} cannot be read"):
            interpreter_here("3.9")
        closed.chmod(0o700)
        assert unreadable_folders() == []
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    assert unreadable_folders() == []


def test_interpreters_of_other_versions_are_not_started(tmp_path):
    folder = make_interpreter(tmp_path / "bin", "3.8.2")
    make_interpreter(folder, "3.9.2")
    interpreter_for("3.8", search=[folder])
    assert (folder / "started").read_text() == "x\n"


def test_an_interpreter_that_finds_its_library_by_the_users_variable_alone_is_found(tmp_path, monkeypatch):
    """As those of a cluster's modules, whose variable no other program may get."""
    folder = make_interpreter(tmp_path / "apps/3.12/bin", "3.12.1")
    program = folder / "python3.12"
    needs = f'[ "${{LD_LIBRARY_PATH%%:*}}" = "{folder.parent}/lib" ] || exit 127\n'
    program.write_text(program.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{needs}"))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    assert [found.executable for found in available_interpreters([folder])] == [program]


def test_broken_interpreter_is_skipped(tmp_path):
    (tmp_path / "python3.8").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python3.8").chmod(0o755)
    assert available_interpreters([tmp_path]) == ()


def test_an_interpreter_that_hangs_is_started_once_by_a_command(tmp_path, monkeypatch):
    monkeypatch.setattr("envpack.conda.probe._TIMEOUT", 0.2)
    folder = make_interpreter(tmp_path, "3.10.1")
    with (folder / "python3.10").open("a") as script:
        script.write("exec sleep 60\n")
    for _ in range(2):
        assert available_interpreters([folder]) == ()
    assert (folder / "started").read_text() == "x\n"


def test_interpreter_of_the_distribution_has_the_lowest_preference(tmp_path):
    own = make_interpreter(tmp_path / "usr/bin", "3.8.20", patched=True)
    other = make_interpreter(tmp_path / "opt/bin", "3.8.2")
    assert interpreter_for("3.8", search=[own, other]).version == "3.8.2"
    assert interpreter_for("3.8", search=[own]).distribution


def test_an_interpreter_for_debugging_python_is_the_last_choice(tmp_path):
    slow = make_interpreter(tmp_path / "opt/bin", "3.8.20", flags="d")
    other = make_interpreter(tmp_path / "usr/bin", "3.8.2", patched=True)
    assert interpreter_for("3.8", search=[slow, other]).version == "3.8.2"
    assert interpreter_for("3.8", search=[slow]).version == "3.8.20"


def make_shim(folder: Path, minor: str, script: str) -> Path:
    """Write the shim ``pythonMINOR`` in a folder ``shims``; returns the folder."""
    shims = folder / "shims"
    shims.mkdir(parents=True, exist_ok=True)
    shim = shims / f"python{minor}"
    shim.write_text(f"#!/bin/sh\n{script}\n")
    shim.chmod(0o755)
    return shims


def test_interpreter_behind_a_shim_is_found(tmp_path):
    real = make_interpreter(tmp_path / "installs/3.8.2/bin", "3.8.2") / "python3.8"
    interpreter = interpreter_for("3.8", search=[make_shim(tmp_path, "3.8", f"echo {real}")])
    assert interpreter.executable == real


def test_shims_run_with_the_variables_that_select_an_interpreter(tmp_path, monkeypatch):
    real = make_interpreter(tmp_path / "installs/3.8.2/bin", "3.8.2") / "python3.8"
    shims = make_shim(tmp_path, "3.8", 'test -z "$PYTHONPATH" && echo "$PYENV_ROOT/python3.8"')
    monkeypatch.setenv("PYTHONPATH", "/trap")
    assert available_interpreters([shims]) == ()
    monkeypatch.setenv("PYENV_ROOT", str(real.parent))
    assert [interpreter.executable for interpreter in available_interpreters([shims])] == [real]


@pytest.mark.parametrize(
    "script",
    [
        "exit 127",
        "echo /nonexistent/python3.8",
        "echo relative/python3.8",
        "echo /bin",
        "echo /dev/null",
        "printf 'a\\0b\\n'",
        "echo two; echo lines",
        'echo "$0"',
        "",
    ],
)
def test_output_of_a_shim_is_only_a_candidate(tmp_path, script):
    assert available_interpreters([make_shim(tmp_path, "3.8", script)]) == ()


def test_a_shim_that_hangs_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("envpack.conda.interpreters._SHIM_TIMEOUT", 0.1)
    assert available_interpreters([make_shim(tmp_path, "3.8", "exec cat /dev/zero > /dev/null")]) == ()


def test_pyenv_with_another_root_is_found_by_its_shims_on_path_which_are_not_started(tmp_path, monkeypatch):
    folder = make_interpreter(tmp_path / "root/versions/3.8.2/bin", "3.8.2")
    shims = make_shim(tmp_path / "root", "3.8", f": > {tmp_path}/started; exit 127")
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(shims))
    assert folder / "python3.8" in [interpreter.executable for interpreter in available_interpreters()]
    assert not (tmp_path / "started").exists()


def test_folders_that_cannot_be_searched_are_passed_over(tmp_path):
    found = available_interpreters([Path("x" * 5000), make_interpreter(tmp_path / "bin", "3.10.2")])
    assert [interpreter.version for interpreter in found] == ["3.10.2"]


@pytest.mark.parametrize("known", [{"/x": {"facts": {"version": "odd"}, "stamps": []}}, {"/x": []}])
def test_a_record_of_interpreters_by_another_version_of_envpack_is_written_again(tmp_path, known):
    remember(tmp_path / "cache/interpreters.json", known)
    found = make_interpreter(tmp_path / "bin", "3.10.2")
    assert available_interpreters([found])
    assert list(remembered(tmp_path / "cache/interpreters.json")) == [str(found / "python3.10")]


def test_the_symbols_of_an_interpreter_are_read_once_until_its_files_change(tmp_path):
    folder = make_interpreter(tmp_path / "bin", "3.10.13")
    ask = partial(interpreter_for, "3.10", [folder], preference="only-system", glibc="1.0")
    assert ask().version == "3.10.13"
    memory = tmp_path / "cache/interpreters.json"
    known = remembered(memory)
    known[str(folder / "python3.10")]["facts"]["glibc"] = "7.7"
    remember(memory, known)
    with pytest.raises(EnvironmentBuildError, match=r"has symbols of glibc 7\.7"):
        ask()
    shutil.copy(sys.executable, folder / "libpython3.10.so.1.0")
    with pytest.raises(EnvironmentBuildError, match=r"has symbols of glibc 2\.\d+ \(the target has 1\.0\)"):
        ask()

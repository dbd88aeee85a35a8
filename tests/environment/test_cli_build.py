"""`envpack build` and `envpack stub` with real environments: twice, switched, refused, interrupted, killed."""

import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from envpack.repository.config_editor import get_string_parameter
from envpack.repository.model import open_model
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import ROOT, assert_refused, command, envpack, listing, variables
from tests.needed_pythons import need

HIDE_ZIG = "import sys\nsys.modules['ziglang'] = None  # Python's own way to say: not installed\n"


@pytest.fixture(scope="module")
def changes():
    """Variables of every command here; its cache is the one of the whole run."""
    return {"ENVPACK_CACHE_DIR": os.environ["ENVPACK_TEST_CACHE"], "CXX": None}


@pytest.fixture(scope="module")
def stored(changes, tmp_path_factory):
    """The environment of numpy and six is in the cache, so that a build has only to place it."""
    repository = BadInput("", "", 0, "", (), MODEL).write(tmp_path_factory.mktemp("stored"))
    require(repository, "numpy", "six")
    assert build(repository, changes=changes).code == 0


@pytest.fixture
def repository(tmp_path):
    return BadInput("", "", 0, "", (), MODEL).write(tmp_path)


def require(repository, *lines):
    (repository / "m/requirements.txt").write_text("".join(f"{line}\n" for line in lines))


def build(repository, *arguments, changes, model="m", python="3.8", stub="never"):
    words = ("build", "--repository", repository, model, "--python", need(python), "--stub", stub, *arguments)
    return envpack(*words, changes=changes)


def works(folder: Path) -> bool:
    done = subprocess.run([folder / "bin/python3", "-c", "import numpy"], check=False, env={})
    return done.returncode == 0


def environment_of(model: Path) -> str:
    return get_string_parameter(open_model(model).config, "EXECUTION_ENV_PATH")


def test_init_build_and_build_again(tmp_path, changes):
    repository = tmp_path / "digits"
    assert envpack("init", repository, changes=changes).code == 0
    words = ("build", "--repository", repository, "--json", "preprocessing/")  # as a shell completes it
    need("3.8")
    first = envpack(*words, changes=changes)
    assert first.code == 0, first.err
    (model,) = first.document["models"]
    assert first.document["schema"] == 1
    names = {"name", "python", "numpy", "packages", "environment", "stub", "backend", "start", "changed"} | {
        "forms",
        "warnings",
    }
    assert set(model) == names
    assert (model["name"], model["changed"]) == ("preprocessing", True)
    assert model["python"].startswith("3.8.")
    assert model["environment"] == str(repository / "preprocessing/python3.8")
    assert model["stub"] == str(repository / "preprocessing/triton_python_backend_stub")
    assert works(Path(model["environment"]))
    before = listing(repository)
    second = envpack(*words, changes=changes)
    assert "preprocessing: Python 3.8" in second.err
    assert "… up to date" in second.err.splitlines()[-1]
    assert second.document["models"] == [model | {"changed": False}]
    assert envpack(*words[:-2], "--quiet", words[-1], changes=changes).out == ""
    assert listing(repository) == before
    stub_again(repository / "preprocessing", changes)
    assert listing(repository) == before


@pytest.mark.thorough
def test_numpy_2_brings_a_stub_even_for_the_python_of_the_release(repository, changes):
    """Triton 24.10's own stub has Python 3.10 too, but with NumPy 2 its answers would be empty."""
    stub = repository / "m/triton_python_backend_stub"
    require(repository, "numpy<2")
    assert build(repository, python="3.10", stub="auto", changes=changes).code == 0
    assert not stub.exists()
    require(repository, "numpy>=2")
    assert build(repository, python="3.10", stub="auto", changes=changes).code == 0
    assert stub.stat().st_mode & 0o777 == 0o755


def stub_again(folder, changes):
    """`envpack stub` for the same Python finds what `envpack build` compiled."""
    words = ("stub", "--python", "3.8", "--output", folder)
    ended = envpack(*words, "--json", changes=changes)
    assert ended.code == 0, ended.err
    assert set(ended.document) == {"schema", "stub", "facts", "compiled", "changed", "seconds"}
    assert (ended.document["compiled"], ended.document["changed"]) == (False, False)
    assert ended.document["facts"]["python"] == "3.8"
    quiet = envpack(*words, "--quiet", changes=changes)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    inspected = envpack("inspect", folder / "triton_python_backend_stub", "--json", changes=changes)
    assert inspected.document["facts"] == ended.document["facts"]
    assert inspected.document["facts"]["needs"][0] == "libpython3.8.so.1.0"
    told = subprocess.run([folder / "triton_python_backend_stub", "--version"], capture_output=True, env={}, check=True)
    compiler = inspected.document["facts"]["compiler"]
    expected = f"for Python 3.8 (libpython3.8.so.1.0), Triton 23.04 and later, NumPy 1 and 2; built with {compiler}\n"
    assert told.stdout.decode().endswith(expected)


@pytest.mark.thorough
def test_switching_format_and_python_leaves_one_environment(repository, changes):
    steps = (("3.10", "dir", "python3.10"), ("3.8", "tar.gz", "python3.8.tar.gz"), ("3.8", "dir", "python3.8"))
    for python, archive_format, name in steps:
        ended = build(repository, "--quiet", "--format", archive_format, python=python, changes=changes)
        assert (ended.code, ended.out, ended.err) == (0, "", "")
        sidecar = {f"{name}.json"} if archive_format == "tar.gz" else set()
        names = {path.name for path in (repository / "m").iterdir()}
        assert names == {"1", "config.pbtxt", "requirements.txt", name} | sidecar
        assert environment_of(repository / "m") == f"$$TRITON_MODEL_DIRECTORY/{name}"
    assert works(repository / "m/python3.8")


@pytest.mark.parametrize(
    ("lines", "code", "kind", "says"),
    [
        (("numpy", "no-such-package-of-envpack<2"), 4, "unresolvable", "'no-such-package-of-envpack<2'"),
        (("numpy>=2",), 4, "wheel-missing", "'numpy>=2'"),
        (("six",), 3, "numpy-missing", "m/requirements.txt: "),
    ],
)
def test_requirements_that_cannot_be_met_change_nothing(repository, changes, lines, code, kind, says):
    require(repository, *lines)
    before = listing(repository)
    assert_refused(build(repository, "--json", changes=changes), code, kind, says)
    assert listing(repository) == before


def test_a_channel_that_does_not_answer_is_named(repository, changes):
    before = listing(repository)
    ended = build(repository, "--json", "--channel", "http://127.0.0.1:9/none", changes=changes)
    assert_refused(ended, 4, "channel-unreachable", "http://127.0.0.1:9/none")
    assert listing(repository) == before


@pytest.fixture
def toolless(tmp_path, changes):
    """Variables with which neither a compiler nor the ziglang wheel is found."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide/sitecustomize.py").write_text(HIDE_ZIG)
    return {**changes, "PATH": str(tmp_path / "empty"), "PYTHONPATH": f"{tmp_path / 'hide'}{os.pathsep}{ROOT}"}


@pytest.mark.parametrize("toolchain", ["auto", "system", "zig"])
def test_no_compiler_says_how_to_get_one(repository, toolless, toolchain):
    words = ("stub", "--json", "--python", need("3.8"), "--toolchain", toolchain, "--output", repository / "m")
    before = listing(repository)
    assert_refused(envpack(*words, changes=toolless), 5, "no-compiler", "[compile,zig]", "g++")
    assert listing(repository) == before


def test_a_compiler_that_fails_shows_its_first_error(repository, changes, tmp_path):
    compiler = tmp_path / "broken-c++"
    compiler.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exec echo broken 1.0\necho x.cc:1: error: no good >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    words = ("stub", "--json", "--python", need("3.8"), "--output", repository / "m")
    before = listing(repository)
    ended = envpack(*words, changes={**changes, "CXX": str(compiler)})
    assert_refused(ended, 5, "compile-failed", "x.cc:1: error: no good", "--set toolchain=zig")
    assert listing(repository) == before


@pytest.mark.thorough
def test_a_build_without_a_compiler_leaves_the_model_alone(repository, stored, toolless):
    require(repository, "numpy", "six")
    before = listing(repository)
    assert_refused(build(repository, "--json", stub="auto", changes=toolless), 5, "no-compiler", "ziglang")
    assert listing(repository) == before


@pytest.mark.parametrize("archive_format", ["dir", "tar.gz"])
def test_a_full_disk_leaves_the_model_as_it_was(small_disk, stored, changes, archive_format):
    repository = BadInput("", "", 0, "", (), MODEL).write(small_disk)
    require(repository, "numpy", "six")
    old = repository / "m/python3.8.tar.gz"
    old.write_bytes(b"an old archive")
    described = {"key": "old", "size": old.stat().st_size, "mtime_ns": old.stat().st_mtime_ns}
    old.with_name(f"{old.name}.json").write_text(json.dumps(described))
    before = listing(small_disk)
    ended = build(repository, "--json", "--format", archive_format, changes=changes)
    assert_refused(ended, 7, "disk-full", str(repository / "m"), "free some space")
    assert listing(small_disk) == before


def test_a_full_disk_leaves_the_old_stub(small_disk, changes):
    (small_disk / "triton_python_backend_stub").write_bytes(b"an old stub, envpack_stub_run")
    words = ("stub", "--json", "--python", need("3.8"), "--output", small_disk)
    (small_disk / "full").write_bytes(bytes(13 << 20))
    before = listing(small_disk)
    assert_refused(envpack(*words, changes=changes), 7, "disk-full", str(small_disk))
    assert listing(small_disk) == before


@pytest.fixture
def without_archives(changes, tmp_path):
    """Variables for a cache that has everything that the other one has, except archives."""
    cache = tmp_path / "cache"
    (cache / "archives").mkdir(parents=True)
    for entry in Path(changes["ENVPACK_CACHE_DIR"]).iterdir():
        if entry.name != "archives":
            (cache / entry.name).symlink_to(entry)
    return {**changes, "ENVPACK_CACHE_DIR": str(cache)}


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)], ids=["SIGKILL", "SIGINT"]
)
@pytest.mark.parametrize("archive_format", ["dir", pytest.param("tar.gz", marks=pytest.mark.thorough)])
def test_interrupted_and_killed_builds_leave_what_was_there(
    repository, stored, without_archives, archive_format, number
):
    model, changes = repository / "m", without_archives
    require(repository, "numpy<1.24")
    assert build(repository, "--format", archive_format, changes=changes).code == 0
    require(repository, "numpy", "six")
    before = listing(repository)
    ended = interrupted(repository, archive_format, number, changes)
    after = listing(repository)
    is_old = {name: entry for name, entry in after.items() if not is_partial(name)} == before
    if number == signal.SIGINT:
        assert ended == 130
        assert after == before
    else:
        assert ended == -number
    assert usable(model, archive_format)
    again = build(repository, "--json", "--format", archive_format, changes=changes)
    assert again.document["models"][0]["changed"] == is_old  # a busy machine is late with the signal: it is the new one
    assert not [path for path in model.iterdir() if is_partial(path.name)]
    assert usable(model, archive_format)


def interrupted(repository, archive_format, number, changes) -> int:
    """Run a build, send it a signal as soon as it writes, and give its exit status.

    Folders are written beside the model, archives in the store, where this one is not yet.
    """
    place = repository / "m"
    if archive_format != "dir":
        place = Path(changes["ENVPACK_CACHE_DIR"]) / "archives"
    words = ("build", "--repository", repository, "m", "--python", "3.8", "--stub", "never", "--format", archive_format)
    child = subprocess.Popen(
        command(*words),
        env=variables(changes),
        stderr=subprocess.PIPE,
        cwd="/",
    )
    end = time.monotonic() + 120
    while not has_begun(place):
        assert child.poll() is None
        assert time.monotonic() < end
    child.send_signal(number)
    child.communicate(timeout=60)
    return child.returncode


def has_begun(folder: Path) -> bool:
    for path in folder.glob(".*.partial"):
        if path.is_dir() and any(path.iterdir()):
            return True
        if path.is_file():
            return True
    return False


def is_partial(name: str) -> bool:
    return ".partial" in name


def usable(model: Path, archive_format: str) -> bool:
    place = model / environment_of(model).removeprefix("$$TRITON_MODEL_DIRECTORY/")
    if archive_format == "dir":
        return works(place)
    told = json.loads(place.with_name(f"{place.name}.json").read_text())
    unpacked = model.parent.parent / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(place) as archive:
        archive.extractall(unpacked, filter="fully_trusted")
    return told["size"] == place.stat().st_size and works(unpacked)


def test_forms_are_said(repository, changes, stored):
    require(repository, "numpy", "six")
    ended = build(repository, "--json", "--set", "exclude=/lib/python3.8/site-packages/six.py", changes=changes)
    (model,) = ended.document["models"]
    forms = {form["form"]: form for form in model["forms"]}
    assert list(forms) == ["dir", "tar.gz", "tar"]
    assert forms["dir"]["unpack_seconds"] == 0 < forms["tar"]["unpack_seconds"] <= forms["tar.gz"]["unpack_seconds"]
    assert "tar.gz" in ended.err
    assert not (Path(model["environment"]) / "lib/python3.8/site-packages/six.py").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("archive_format", ["dir", "tar.gz"])
def test_inspect_warns_when_requirements_changed_since_the_build(repository, changes, stored, archive_format):
    def kinds():
        return {finding["kind"] for finding in envpack("inspect", repository, "--json").document["findings"]}

    require(repository, "numpy", "six")
    assert "not-built" in kinds()
    assert build(repository, "--format", archive_format, changes=changes).code == 0
    require(repository, "# the same in another order", "six", "numpy")
    assert not {"not-built", "requirements-changed"} & kinds()
    require(repository, "numpy", "six", "packaging")
    assert "requirements-changed" in kinds()


def test_models_with_one_archive_are_warned_of(repository, changes, stored):
    shutil.copytree(repository / "m", repository / "n")
    for name in ("m", "n"):
        (repository / name / "requirements.txt").write_text("numpy\nsix\n")
    text = (repository / "n/config.pbtxt").read_text()
    (repository / "n/config.pbtxt").write_text(text.replace('"m"', '"n"'))
    words = ("build", "--repository", repository, "--python", "3.8", "--stub", "never", "--format", "tar")
    ended = envpack(*words, changes=changes)
    assert ended.code == 0, ended.err
    assert "2 models have the same archive" in ended.err
    assert (repository / "m/python3.8.tar").samefile(repository / "n/python3.8.tar")


@pytest.mark.thorough
def test_another_packer_makes_archives_only(repository, changes):
    for options in (
        ("dir",),
        ("tar", "--set", "exclude=x"),
        ("tar", "--set", "include=x"),
    ):
        ended = build(repository, "--set", "packer=conda-pack", "--json", "--format", *options, changes=changes)
        assert_refused(ended, 2, "packer-limits", "archives only")
    ended = build(repository, "--set", "exclude=!x", "--json", changes=changes)
    assert_refused(ended, 2, "bad-pattern", "exclude")

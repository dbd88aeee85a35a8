"""`envpack stub` for several Pythons: killed, interrupted, twice at once, with a cache that is damaged or read-only."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.conda.interpreters import SUPPORTED
from envpack.stub.target import target_from_interpreter
from envpack.support.placed_files import RELEASE_FILE, STUB_NAME
from tests.clusters import children_of, runs, task_processes, worker_of
from tests.faults.command_line import ROOT, assert_refused, command, envpack, listing, variables
from tests.needed_pythons import need
from tests.small_stub import closed, gated_compiler, with_small_stub
from tests.waiting import soon

PYTHONS = ("3.10", "3.12")
NAMES = ["cp310-24.10-x86_64", "cp312-24.10-x86_64"]
CELLS = ("stub", "--json", "--triton", "24.10", *(word for python in PYTHONS for word in ("--python", python)))


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    for python in PYTHONS:
        need(python)
    if os.uname().machine != "x86_64":
        pytest.skip("the identifiers here are those of x86_64")
    return tmp_path_factory.mktemp("stubs")


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    """The compiler waits while `closed` holds this file."""
    file = tmp_path_factory.mktemp("gate") / "gate"
    file.touch()
    return file


@pytest.fixture(scope="module")
def small(tmp_path_factory, gate):
    """Variables with which commands have a stub that compiles in a second.

    They name the compiler: entries of the cache are named after it, and where this machine's C library is newer than
    that of the image, commands would take another one.
    """
    sources = with_small_stub(tmp_path_factory.mktemp("small-stub"))
    return {"PYTHONPATH": str(sources), "CXX": gated_compiler(gate.with_name("c++"), gate)}


@pytest.fixture(scope="module")
def changes(own_cache, small):
    return small | {"ENVPACK_CACHE_DIR": str(own_cache)}


@pytest.fixture(scope="module")
def raced(changes, gate, tmp_path_factory):
    """Two processes that build the same two stubs at the same time, from an empty cache; folders and what they said."""
    folder = tmp_path_factory.mktemp("raced")
    outputs = [folder / name / "dist" for name in ("one", "two")]
    with closed(gate):
        for output in outputs:
            output.parent.mkdir()
        files = [(output.with_name("out"), output.with_name("err")) for output in outputs]
        children = [
            start(*CELLS, "--output", output, changes=changes, said=said)
            for output, said in zip(outputs, files, strict=True)
        ]
        assert soon(lambda: any(b"wait for another process" in err.read_bytes() for _, err in files))
    ended = [child.wait(timeout=500) for child in children]
    said = [(out.read_bytes(), err.read_bytes()) for out, err in files]
    assert ended == [0, 0], said
    return outputs, said


@pytest.fixture(scope="module")
def built(raced):
    """Both stubs are in the cache, and here."""
    return raced[0][0]


def start(*words, changes, said=None):
    """A command in the background; what it says goes to two files, or to pipes."""
    with contextlib.ExitStack() as files:
        out, err = (files.enter_context(file.open("wb")) for file in said) if said else (subprocess.PIPE,) * 2
        return subprocess.Popen(
            command(*words),
            env=variables(changes),
            stdout=out,
            stderr=err,
            cwd="/",
        )


def partial_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if ".partial" in path.name]


def programs_in(folder: Path) -> list[str]:
    """Programs that name a folder in their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if os.fsencode(folder) in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


def compiles(cache: Path) -> bool:
    """Whether one of the stub's sources is compiled; what CMake tries first does not include them."""
    return any(" -c " in words and "/stub_src" in words for words in programs_in(cache))


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(number, marks=pytest.mark.thorough) for number in (signal.SIGINT, signal.SIGTERM))],
    ids=lambda number: number.name,
)
def test_a_compile_that_is_killed_or_interrupted_leaves_no_entry_and_the_next_one_works(
    tmp_path, own_cache, small, gate, number
):
    changes = small | {"ENVPACK_CACHE_DIR": str(tmp_path / "cache")}
    words = (*CELLS, "--output", tmp_path / "dist")
    with closed(gate):
        child = start(*words, changes=changes)
        assert soon(lambda: compiles(tmp_path / "cache") or child.poll() is not None, seconds=120)
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
    expected = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
    assert child.returncode == expected[number], err.decode()
    if number == signal.SIGINT:
        assert json.loads(out)["error"]["kind"] == "interrupted"
    if number != signal.SIGKILL:
        assert programs_in(tmp_path) == []
        assert partial_in(tmp_path) == []
    assert not list((tmp_path / "dist").iterdir())
    assert not [path for path in (tmp_path / "cache/stubs").iterdir() if path.is_dir() and ".partial" not in path.name]
    if number == signal.SIGKILL:
        assert partial_in(tmp_path)
        ended = envpack(*words, "--only", "cp310-*", changes=changes)
        assert ended.code == 0, ended.err
        assert soon(lambda: not programs_in(tmp_path))  # those that outlived the kill
        assert envpack(*words, changes=changes).code == 0
        assert partial_in(tmp_path) == []


@pytest.mark.thorough
def test_what_two_want_at_the_same_time_is_compiled_once(raced, own_cache):
    outputs, said = raced
    compiled = [[cell["compiled"] for cell in json.loads(out)["cells"]] for out, _ in said]
    assert [sum(pair) for pair in zip(*compiled, strict=True)] == [1, 1]
    assert any(b"wait for another process" in err for _, err in said)
    shared = b"".join(err for _, err in said).count(b"compiled the part that all Pythons share")
    assert shared == 1
    entries = [path.name for path in (own_cache / "stubs").iterdir() if path.is_dir()]
    assert sorted(name.rpartition("-")[0] for name in entries) == ["common-24.10-x86_64", *NAMES]
    for name in NAMES:
        assert (outputs[0] / name / STUB_NAME).read_bytes() == (outputs[1] / name / STUB_NAME).read_bytes()
    assert [partial_in(folder) for folder in (*outputs, own_cache)] == [[], [], []]


def test_each_stub_lies_in_a_folder_of_its_own_and_is_what_its_name_says(built, changes, tmp_path):
    ended = envpack(*CELLS, "--output", tmp_path / "dist", changes=changes)
    cells = ended.document["cells"]
    assert [cell["identifier"] for cell in cells] == NAMES
    keys = {"identifier", "python", "triton", "platform", "stub", "facts", "compiled", "changed", "seconds", "error"}
    assert all(set(cell) == keys for cell in cells)
    for cell in cells:
        path = tmp_path / "dist" / cell["identifier"] / STUB_NAME
        assert cell["stub"] == str(path)
        assert (cell["changed"], cell["compiled"], cell["error"]) == (True, False, None)
        assert cell["facts"]["epochs"] == ["24.10"]
        told = subprocess.run([path, "--version"], capture_output=True, env={}, check=True).stdout.decode()
        assert f"for Python {cell['python']} " in told
        assert f"  {cell['identifier']} … cached" in ended.err
    before = listing(tmp_path / "dist")
    again = envpack(*CELLS, "--output", tmp_path / "dist", changes=changes)
    assert [cell["changed"] for cell in again.document["cells"]] == [False, False]
    assert listing(tmp_path / "dist") == before


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(built, own_cache, changes, tmp_path):
    before = listing(own_cache)
    fresh = envpack(*CELLS, "--triton", "24.04", "--dry-run", "--output", tmp_path / "dist", changes=changes)
    told = {cell["identifier"]: (cell["cached"], cell["placed"]) for cell in fresh.document["cells"]}
    assert told == {
        name: ("24.10" in name, False) for name in sorted([*NAMES, *(n.replace("10-x", "04-x") for n in NAMES)])
    }
    assert "to be compiled" in fresh.err
    (tmp_path / "other").mkdir()
    shutil.copytree(built, tmp_path / "other", dirs_exist_ok=True)
    (tmp_path / "other" / NAMES[0] / RELEASE_FILE).unlink()
    placed = envpack(*CELLS, "--dry-run", "--output", tmp_path / "other", changes=changes)
    assert [(cell["cached"], cell["placed"]) for cell in placed.document["cells"]] == [(True, False), (True, True)]
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert listing(own_cache) == before


def test_the_path_of_the_cache_may_have_characters_that_mean_something_to_a_shell_or_a_linker(small, tmp_path):
    need("3.10")
    changes = small | {"ENVPACK_CACHE_DIR": str(tmp_path / "it's, a b#c&d (é)")}
    ended = envpack("stub", "--json", "--python", "3.10", "--output", tmp_path, changes=changes)
    assert ended.code == 0, ended.err
    assert subprocess.run([tmp_path / STUB_NAME], env={}, check=False).returncode == 1


@pytest.mark.parametrize("character", ["; ", '"', "\\", "[", "<", "\n", "${"])
def test_a_path_that_cmake_does_not_take_is_refused_before_anything_is_compiled(small, tmp_path, character):
    need("3.10")
    cache = tmp_path / f"a{character}b"
    changes = small | {"ENVPACK_CACHE_DIR": str(cache)}
    ended = envpack("stub", "--json", "--python", "3.10", "--output", tmp_path, changes=changes)
    error = ended.document["error"]
    assert (ended.code, error["kind"]) == (5, "bad-path")
    assert "ENVPACK_CACHE_DIR=FOLDER" in error["hint"]
    assert list(tmp_path.iterdir()) == [cache]
    assert [path for path in cache.glob("stubs/*") if path.is_dir()] == []


def test_a_single_stub_stays_where_it_always_was(built, changes, tmp_path):
    ended = envpack("stub", "--json", "--python", "3.10", "--triton", "24.10", "--output", tmp_path, changes=changes)
    assert ended.document["stub"] == str(tmp_path / STUB_NAME)
    assert {path.name for path in tmp_path.iterdir()} == {STUB_NAME, RELEASE_FILE}


def test_all_pythons_are_printed_as_a_matrix_for_ci(built, changes, tmp_path):
    ended = envpack("stub", "--all-pythons", "--print-matrix", "--json", "--output", tmp_path / "no", changes=changes)
    rows = {row["identifier"]: row for row in ended.document["include"]}
    assert rows["cp310-x86_64"] == {
        "identifier": "cp310-x86_64",
        "python": "3.10",
        "triton": "all",
        "platform": "linux-64",
    }
    pythons = {row["python"] for row in rows.values()} | {row["python"] for row in ended.document["missing"]}
    assert pythons == set(SUPPORTED)
    assert "cp312-x86_64" in ended.err
    assert not list(tmp_path.iterdir())


def test_pythons_that_are_not_here_are_told(tmp_path, built, own_cache):
    """Only one of pyenv's Pythons is left to be found."""
    target = target_from_interpreter("3.10")
    prefix = next(parent for parent in target.library.parents if (parent / "bin/python3.10").exists())
    (tmp_path / "pyenv/versions").mkdir(parents=True)
    (tmp_path / "pyenv/versions/3.10").symlink_to(prefix)
    nowhere = {name: str(tmp_path / "home") for name in ("HOME", "XDG_DATA_HOME", "UV_PYTHON_INSTALL_DIR")}
    changes = {**nowhere, "PYENV_ROOT": str(tmp_path / "pyenv"), "PATH": "", "ENVPACK_CACHE_DIR": str(own_cache)}
    ended = envpack("stub", "--all-pythons", "--print-matrix", "--json", changes=changes)
    assert "3.10" in {row["python"] for row in ended.document["include"]}
    missing = {row["python"]: row["kind"] for row in ended.document["missing"]}
    if "3.8" not in missing:
        pytest.skip("Python 3.8 is one of this machine's own")
    assert missing["3.8"] == "unknown-python"
    assert "without Python 3.8: no Python 3.8 on this machine" in ended.err


def test_a_pattern_that_fits_nothing_lists_what_there_is(changes, tmp_path):
    ended = envpack(*CELLS, "--only", "cp39-*", "--output", tmp_path / "dist", changes=changes)
    assert_refused(ended, 2, "nothing-selected", "'cp39-*'", ", ".join(NAMES))
    assert not list(tmp_path.iterdir())


def test_a_platform_without_a_python_is_refused(changes, tmp_path):
    ended = envpack(*CELLS, "--platform", "linux-aarch64", "--output", tmp_path / "dist", changes=changes)
    assert_refused(ended, 2, "wrong-platform", "linux-aarch64", "--prefix")
    assert not list(tmp_path.iterdir())


def test_one_that_fails_does_not_keep_the_other_from_being_placed(built, changes, tmp_path):
    target = target_from_interpreter(need("3.11"))
    prefix = tmp_path / "broken"
    shutil.copytree(target.include, prefix / "include/python3.11")
    (prefix / "include/python3.11/Python.h").write_text("#error these headers are broken\n")
    (prefix / "lib").mkdir()
    (prefix / "lib/libpython3.11.so.1.0").symlink_to(target.library)
    words = (
        "stub",
        "--json",
        "--triton",
        "24.10",
        "--prefix",
        prefix,
        "--python",
        "3.10",
        "--output",
        tmp_path / "dist",
    )
    ended = envpack(*words, changes=changes)
    assert ended.code == 5
    good, bad = ended.document["cells"]
    assert (good["identifier"], good["error"]) == ("cp310-24.10-x86_64", None)
    assert Path(good["stub"]).is_file()
    assert (bad["identifier"], bad["stub"], bad["error"]["kind"]) == ("cp311-24.10-x86_64", None, "compile-failed")
    assert "these headers are broken" in bad["error"]["message"]
    errors = [line for line in ended.err.splitlines() if line.startswith("error:")]
    assert errors == ["error: cp311-24.10-x86_64: the stub does not compile: (compile-failed)"]
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["cp310-24.10-x86_64"]


@pytest.mark.thorough
def test_a_stub_that_changed_in_the_cache_is_compiled_again(built, own_cache, changes, tmp_path):
    (cached,) = (own_cache / "stubs").glob(f"cp312-24.10-*/{STUB_NAME}")
    content = bytearray(cached.read_bytes())
    content[len(content) // 2] ^= 1
    cached.chmod(0o755)
    cached.write_bytes(content)
    ended = envpack(*CELLS, "--output", tmp_path / "dist", changes=changes)
    assert [cell["compiled"] for cell in ended.document["cells"]] == [False, True]
    assert (tmp_path / "dist/cp312-24.10-x86_64" / STUB_NAME).read_bytes() != bytes(content)
    assert cached.read_bytes() != bytes(content)


@pytest.fixture
def mount():
    """Mounts something on a folder, and takes it away again."""
    mounted = []

    def run(folder, *options):
        done = subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"the right to mount is missing: {done.stderr.decode().strip()}")
        mounted.append(folder)

    yield run
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_read_only_cache_gives_what_it_has_and_takes_nothing(built, own_cache, changes, tmp_path, mount):
    mount(own_cache, "--bind", str(own_cache))
    subprocess.run(["mount", "-o", "remount,ro,bind", str(own_cache)], check=True)
    ended = envpack(*CELLS, "--output", tmp_path / "dist", changes=changes)
    assert ended.code == 0, ended.err
    assert all((tmp_path / "dist" / name / STUB_NAME).is_file() for name in NAMES)
    other = ("stub", "--json", "--python", "3.10", "--triton", "24.04", "--output", tmp_path)
    assert_refused(envpack(*other, changes=changes), 7, "not-writable", "ENVPACK_CACHE_DIR", str(own_cache))
    assert not (tmp_path / STUB_NAME).exists()


def test_a_cache_without_space_is_named_and_keeps_nothing(tmp_path, mount, small, own_cache):
    cache = tmp_path / "cache"
    cache.mkdir()
    mount(cache, "-t", "tmpfs", "-o", "size=100k", "tmpfs")
    changes = small | {"ENVPACK_CACHE_DIR": str(cache)}
    ended = envpack(*CELLS, "--only", "cp310-*", "--output", tmp_path / "dist", changes=changes)
    assert ended.code == 7, ended.err
    (cell,) = ended.document["cells"]
    assert (cell["stub"], cell["error"]["kind"]) == (None, "disk-full")
    assert str(cache) in cell["error"]["where"]
    assert not list((tmp_path / "dist").iterdir())
    assert all(path.suffix == ".lock" for path in (cache / "stubs").iterdir())


def test_an_output_without_space_keeps_nothing_half(tmp_path, mount, built, changes):
    """There is room for one of the two."""
    size = (built / NAMES[0] / STUB_NAME).stat().st_size
    output = tmp_path / "dist"
    output.mkdir()
    mount(output, "-t", "tmpfs", "-o", f"size={size * 3 // 2 // 1024}k", "tmpfs")
    ended = envpack(*CELLS, "--output", output, changes=changes)
    assert ended.code == 7
    kinds = sorted(cell["error"]["kind"] if cell["error"] else "" for cell in ended.document["cells"])
    assert kinds == ["", "disk-full"]
    (placed,) = (cell for cell in ended.document["cells"] if not cell["error"])
    stub = Path(placed["stub"])
    assert {path for path in output.rglob("*") if path.is_file()} == {stub, stub.with_name(RELEASE_FILE)}
    assert len(list(output.iterdir())) == 1


PLACING = """
import sys
from pathlib import Path
from envpack.repository.placement import place_stub
place_stub(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_placement_that_is_killed_leaves_the_old_stub_and_the_next_one_cleans_up(built, changes, tmp_path):
    large, folder = tmp_path / "large", tmp_path / "model"
    folder.mkdir()
    (folder / STUB_NAME).write_bytes(b"an old stub, envpack_stub_run")
    with large.open("wb") as file:
        file.truncate(1 << 30)  # long enough to be caught in the middle of
    child = subprocess.Popen([sys.executable, "-c", PLACING, large, folder], env=variables(), cwd=ROOT)
    assert soon(lambda: any(path.stat().st_size > 1e6 for path in partial_in(folder)) or child.poll() is not None)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert (folder / STUB_NAME).read_bytes() == b"an old stub, envpack_stub_run"
    assert partial_in(folder)
    ended = envpack("stub", "--json", "--python", "3.10", "--triton", "24.10", "--output", folder, changes=changes)
    assert ended.document["changed"]
    assert {path.name for path in folder.iterdir()} == {STUB_NAME, RELEASE_FILE}


@pytest.mark.thorough
def test_workers_of_a_cluster_compile_a_matrix(own_cache, small, tmp_path):
    changes = small | {"ENVPACK_CACHE_DIR": str(tmp_path / "cache")}
    words = (*CELLS, "--output", tmp_path / "dist", "--on", "local:2")
    ended = envpack(*words, changes=changes)
    assert ended.code == 0, ended.err
    assert [(tmp_path / "dist" / name / STUB_NAME).is_file() for name in NAMES] == [True, True]
    tasks = ended.document["cluster"]["tasks"]
    assert [(task["models"], task["made"]) for task in tasks] == [([name], True) for name in NAMES]
    again = envpack(*words, changes=changes)
    assert [task["made"] for task in again.document["cluster"]["tasks"]] == [False, False]


@pytest.mark.thorough
def test_the_compilers_of_a_worker_die_with_it_and_another_one_compiles(own_cache, small, gate, tmp_path):
    changes = small | {"ENVPACK_CACHE_DIR": str(tmp_path / "cache")}
    with closed(gate):
        child = start(*CELLS, "--only", "cp310-*", "--output", tmp_path / "dist", "--on", "local:1", changes=changes)
        assert soon(lambda: compiles(tmp_path / "cache") or child.poll() is not None, seconds=120)
        (task,) = task_processes(child.pid)
        before = {*children_of(task)}
        assert before
        os.kill(worker_of(task), signal.SIGKILL)
        assert soon(lambda: not any(map(runs, {task, *before})))
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err.decode()
    (done,) = json.loads(out)["cluster"]["tasks"]
    assert done["attempts"] == 2

"""Archives of real environments: they work where they are unpacked, and nothing is half-written."""

import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.selection import Selection
from envpack.archive.tarball import pack_archive
from envpack.environment.inventory import read_inventory
from envpack.requirements.model import Requirements
from envpack.support.errors import StorageError
from tests.built import build_environment
from tests.needed_pythons import need
from tests.waiting import soon

ROOT = Path(__file__).parents[2]
FIT = """
import json, sys, sklearn.datasets, sklearn.linear_model, pandas, scipy.optimize
x, y = sklearn.datasets.load_iris(return_X_y=True)
score = sklearn.linear_model.LogisticRegression(max_iter=500).fit(x, y).score(x, y)
groups = pandas.DataFrame(x).groupby(y).mean().shape
lowest = scipy.optimize.minimize(lambda v: (v**2).sum(), [1, 2]).fun
print(json.dumps([sys.prefix, bool(score > 0.9), groups, bool(lowest < 1e-6)]))
"""
# What came of the import of each module.
IMPORT_ALL = """
import importlib, json, pkgutil, sys, warnings
warnings.simplefilter("ignore")
found_out = {}
for top in sys.argv[1:]:
    package = importlib.import_module(top)
    for found in pkgutil.walk_packages(package.__path__, top + ".", onerror=lambda name: None):
        name = found.name.rpartition(".")[2]
        in_tests = ".tests." in found.name or ".test." in found.name
        if in_tests and (name.startswith("test_") or name.endswith("_test") or ".data." in found.name + "."):
            continue
        try:
            importlib.import_module(found.name)
            found_out[found.name] = ""
        except BaseException as error:
            found_out[found.name] = type(error).__name__
print(json.dumps(found_out))
"""


@pytest.fixture(scope="session")
def science(cache):
    requirements = Requirements(pip=("numpy<2", "pandas", "scipy", "scikit-learn"))
    return build_environment(requirements, python=need("3.10"), cache=cache)


def says(prefix, code, *arguments):
    import json

    command = [prefix / "bin/python3", "-c", code, *arguments]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def unpacked(archive, folder):
    folder.mkdir()
    subprocess.run(["tar", "xf", archive, "-C", folder], check=True)
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["tar.gz", "tar"])
def test_models_work_without_what_is_left_out(science, tmp_path, form):
    pack_archive(science, tmp_path / "env", form=form)
    folder = unpacked(tmp_path / "env", tmp_path / "unpacked")
    assert says(folder, FIT) == [str(folder), True, [3, 4], True]


@pytest.mark.thorough
def test_every_module_but_tests_can_still_be_imported(science, tmp_path):
    place_folder(science, tmp_path / "env")
    tops = ("numpy", "scipy", "pandas", "sklearn", "joblib")
    before, after = says(science.prefix, IMPORT_ALL, *tops), says(tmp_path / "env", IMPORT_ALL, *tops)
    assert len(before) > 1000
    lost = {name: before[name] for name in before if after.get(name) != before[name]}
    assert [name for name in lost if "tests" not in name.split(".")] == []


@pytest.mark.thorough
def test_folder_and_archive_hold_the_same(numpy_env, tmp_path):
    place_folder(numpy_env, tmp_path / "folder")
    pack_archive(numpy_env, tmp_path / "env.tar.gz")
    with tarfile.open(tmp_path / "env.tar.gz") as archive:
        names = {member.name for member in archive}
    entries = read_inventory(tmp_path / "folder")
    assert names == {entry.path for entry in entries} | {"envpack-environment.json", "envpack-files.json"}
    for entry in entries:
        if entry.kind in ("file", "program"):
            file = tmp_path / "folder" / entry.path
            assert (file.stat().st_size, os.access(file, os.X_OK)) == (entry.size, entry.kind == "program")


@pytest.mark.thorough
def test_memory_stays_small(science, tmp_path):
    code = (
        "import sys; from pathlib import Path;"
        "from envpack.archive import tar_members; from envpack.archive.tarball import pack_archive;"
        "from envpack.environment.store import read_environment;"
        "tar_members.usable_cores = lambda: 4;"
        "pack_archive(read_environment(Path(sys.argv[1])), Path(sys.argv[2]));"
        # Of this program alone: what resource.getrusage says begins with what the process was before.
        "peak = Path('/proc/self/status').read_text().partition('VmHWM:')[2];"
        "print(int(peak.split()[0]) // 1024)"
    )
    command = [sys.executable, "-c", code, science.prefix, tmp_path / "out/env.tar.gz"]
    variables = {**os.environ, "ENVPACK_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150


THEIR_HELPERS = ("activate.fish", "deactivate", "conda-unpack", "conda_unpack_progress.py")


@pytest.mark.thorough
def test_differences_to_what_conda_pack_makes_are_the_known_ones(numpy_env, tmp_path):
    everything = Selection(include=("**",))
    pack_archive(numpy_env, tmp_path / "ours.tar.gz", selection=everything)
    pack_archive(numpy_env, tmp_path / "theirs.tar.gz", packer="conda-pack")
    ours = contents(tmp_path / "ours.tar.gz")
    theirs = contents(tmp_path / "theirs.tar.gz")
    # Each class of differences is explained in docs/explanation/archives.md.
    assert set(theirs) - set(ours) == {f"bin/{name}" for name in THEIR_HELPERS}
    assert set(ours) - set(theirs) == {"envpack-files.json"}
    changed = {name for name in set(ours) & set(theirs) if ours[name] != theirs[name]}
    assert changed == {"bin/activate", "envpack-environment.json"}
    unpacking = theirs["bin/conda-unpack"][-1].decode()
    assert unpacking.count("', 'text'") + unpacking.count("', 'binary'") > 0


def contents(archive):
    found = {}
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member).read() if member.isreg() else b""
            readable = member.mode & 0o555  # conda-pack packs the modes of the store, which is read-only
            found[member.name] = (member.type, readable, member.linkname, content)
    return found


def names_in(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.thorough
def test_killed_packer_leaves_the_old_archive_and_a_clean_store(numpy_env, tmp_path, packaged, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(packaged("3.8", tmp_path / "cache")))
    archive = tmp_path / "out/env.tar.gz"
    pack_archive(build_environment(Requirements(pip=("six",)), python="3.8"), archive)
    before = archive.read_bytes()
    code = (
        "from pathlib import Path; from envpack.archive.tarball import pack_archive;"
        "from envpack.environment.store import read_environment;"
        f"pack_archive(read_environment(Path({str(numpy_env.prefix)!r})), Path({str(archive)!r}))"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    assert soon(lambda: any(file.stat().st_size > 1e6 for file in tmp_path.glob("cache/archives/.*.partial")))
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert archive.read_bytes() == before
    assert list(tmp_path.glob("cache/*/.*.partial"))
    assert pack_archive(numpy_env, archive) is True
    assert not list(tmp_path.glob("cache/*/.*.partial"))
    assert names_in(archive.parent) == ["env.tar.gz", "env.tar.gz.json"]


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["tar.gz", "tar"])
def test_full_disk_while_packing_keeps_the_old_archive(numpy_env, small_disk, form):
    archive = small_disk / "env"
    archive.write_bytes(b"old")
    with pytest.raises(StorageError) as caught:
        pack_archive(numpy_env, archive, form=form)
    assert caught.value.kind == "disk-full"
    assert archive.read_bytes() == b"old"
    assert names_in(small_disk) == ["env"]


def test_full_disk_in_the_store_leaves_nothing_half_written(numpy_env, small_disk, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(small_disk))
    with pytest.raises(StorageError) as caught:
        pack_archive(numpy_env, tmp_path / "out/env.tar.gz")
    assert caught.value.kind == "disk-full"
    assert not (tmp_path / "out").exists()
    assert not list(small_disk.rglob("*.partial*"))


def test_full_disk_while_placing_keeps_the_old_folder(numpy_env, small_disk):
    (small_disk / "env").mkdir()
    (small_disk / "env/old").touch()
    with pytest.raises(StorageError) as caught:
        place_folder(numpy_env, small_disk / "env")
    assert caught.value.kind == "disk-full"
    assert names_in(small_disk) == ["env"]
    assert names_in(small_disk / "env") == ["old"]

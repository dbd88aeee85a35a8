"""Files in the store belong to the store alone: no other cache shares them, and no model can write to them."""

import ctypes
import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.tarball import pack_archive
from envpack.requirements.model import Requirements
from envpack.support.uv import run_uv
from envpack.workflow.cache import prune_cache, verify_cache
from tests.built import build_environment
from tests.steps import Steps
from tests.tables import every_row
from tests.wheels import make_wheel, write_index

from .sources import PYTHON

pytestmark = pytest.mark.usefixtures("own_index")

SITE = f"lib/python{PYTHON}/site-packages"
# Of Linux capabilities; programs that root starts get none with "no root".
_DAC_OVERRIDE, _VERSION_3 = 1, 0x20080522
_PR_GET_SECUREBITS, _PR_SET_SECUREBITS, _SECBIT_NOROOT = 27, 28, 1


@pytest.fixture
def build(served, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))

    def run(*wheels, conda=()):
        requirements = Requirements(conda=conda, pip=wheels)
        return build_environment(
            requirements, python=PYTHON, channels=(served.url("/conda"),), cache=tmp_path / "cache"
        )

    return run


@pytest.fixture
def strict_permissions():
    """Permissions hold for this process and its children, also if they are root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    before, without = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0
    without[:] = before[:]
    without[0] &= ~(1 << _DAC_OVERRIDE)
    bits = libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0)
    if os.geteuid() == 0:
        assert libc.prctl(_PR_SET_SECUREBITS, bits | _SECBIT_NOROOT, 0, 0, 0) == 0
    assert libc.capset(header, without) == 0
    yield
    assert libc.capset(header, before) == 0
    libc.prctl(_PR_SET_SECUREBITS, bits, 0, 0, 0)


@pytest.fixture
def umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


@pytest.mark.thorough
def test_the_store_shares_no_file_with_the_cache_of_uv(build, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")
    prefix = build("tree", "leaf").prefix
    cached = {file: file.read_bytes() for file in files(tmp_path / "uv")}
    inodes = {(file.stat().st_dev, file.stat().st_ino) for file in cached}
    assert any(file.name == "leaf.py" for file in cached)
    assert [file for file in files(prefix) if (file.stat().st_dev, file.stat().st_ino) in inodes] == []
    for file in files(prefix / SITE):
        file.chmod(0o644)
        with file.open("a") as content:
            content.write("# changed in place")
    assert {file: file.read_bytes() for file in cached} == cached


@every_row(
    ("damage", "content"),
    [
        (lambda file: file.write_text("VALUE"), "VALUE"),  # as an editor in a virtual environment with hard links
        (lambda file: file.unlink(), None),
    ],
)
def test_a_wheel_that_was_changed_in_the_cache_of_uv_is_fetched_again(served, tmp_path, damage, content):
    place = Path(tempfile.mkdtemp(dir=tmp_path))

    def build(*wheels):
        progress, requirements = Steps(), Requirements(pip=wheels)
        channels = (served.url("/conda"),)
        built = build_environment(
            requirements, python=PYTHON, channels=channels, cache=place / "cache", progress=progress
        )
        return built.prefix / SITE, progress.seen

    right = (build("leaf")[0] / "leaf.py").read_text()
    (cached,) = [file for file in files(tmp_path / "uv") if file.name == "leaf.py"]
    damage(cached)
    site, seen = build("leaf", "tree")
    assert (site / "leaf.py").read_text() == right
    assert "files were changed in uv's cache, which was not used: `uv cache clean leaf` mends it" in " ".join(seen)
    assert (cached.read_text() if cached.exists() else None) == content  # it is uv's
    assert run_uv(["cache", "clean", "leaf"]).returncode == 0
    site, seen = build("leaf", "shared")
    assert (site / "leaf.py").read_text() == right
    assert "uv's cache" not in " ".join(seen)


def test_a_wheel_that_was_published_with_a_wrong_record_is_no_fault_of_the_cache_of_uv(served, tmp_path):
    wheel = make_wheel(served.folder / "pypi/files", "edited", "1.0", {"edited.py": "VALUE = 1\n"})
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (content | {"edited.py": b"VALUE = 2\n"}).items():
            archive.writestr(name, text)
    write_index(served.folder / "pypi", yanked=("leaf-1.2-py3-none-any.whl",))
    progress, channels = Steps(), (served.url("/conda"),)
    requirements = Requirements(pip=("edited", "leaf"))
    built = build_environment(requirements, python=PYTHON, channels=channels, cache=tmp_path, progress=progress)
    assert (built.prefix / SITE / "edited.py").read_text() == "VALUE = 2\n"
    assert "uv's cache" not in " ".join(progress.seen)


def test_two_caches_get_the_same_files_of_a_module_whose_byte_code_varies(served, tmp_path):
    """Before Python 3.11 a set is written in the order of its hashes; toolz, which Dask needs, has such a module."""
    pairs = ", ".join(f"({number}, None)" for number in range(12))
    modules = {"varying.py": f"VALUE = 1 in {{{pairs}}}\n", "steady.py": "VALUE = 1 in {1, None}\n"}
    # A name that garbage of Python's own module `types` has, and one that nothing has.
    modules |= {f"name{name}.py": f"def f():\n    {name} = 1\n    return {name}\n" for name in ("_m", "_q")}
    make_wheel(served.folder / "pypi/files", "varies", "1.0", modules)
    write_index(served.folder / "pypi", yanked=("leaf-1.2-py3-none-any.whl",))
    requirements, channels = Requirements(pip=("varies",)), (served.url("/conda"),)
    built = [
        build_environment(requirements, python=PYTHON, channels=channels, cache=tmp_path / name)
        for name in ("first", "second")
    ]
    assert built[0].content == built[1].content
    byte_code = {file.name: file.read_bytes()[16:] for file in (built[0].prefix / SITE / "__pycache__").iterdir()}
    assert sorted(byte_code) == [f"{name}.cpython-310.pyc" for name in ("name_m", "name_q", "steady")]
    assert byte_code["name_m.cpython-310.pyc"].replace(b"_m", b"_q") == byte_code["name_q.cpython-310.pyc"]


def test_a_wheel_that_covers_files_of_a_conda_package_leaves_that_package_in_the_cache_alone(
    build, served, tmp_path, strict_permissions
):
    """The conda package has no record that uv could uninstall it by, so uv writes over its files."""
    make_wheel(served.folder / "pypi/files", "covers", "1.0", {"under_scored.py": "VALUE = 'covered'\n"})
    write_index(served.folder / "pypi", yanked=("leaf-1.2-py3-none-any.whl",))
    plain = build(conda=("under_scored",)).prefix / SITE / "under_scored.py"
    covered = build("covers", conda=("under_scored",)).prefix / SITE / "under_scored.py"
    assert covered.read_text() == "VALUE = 'covered'\n"
    assert plain.read_text() == "VALUE = '1.1'\n"
    kept = [file for file in files(tmp_path / "cache/conda-packages") if file.name == "under_scored.py"]
    assert [file.read_text() for file in kept] == ["VALUE = '1.1'\n"]


@pytest.mark.thorough
def test_everybody_can_read_the_store_and_nobody_can_write_to_it(build, umask, tmp_path):
    environment = build("tree", conda=("rooted",))
    place_folder(environment, tmp_path / "env", served_as="/models/m/env")
    pack_archive(environment, tmp_path / "env.tar")
    for root in (environment.prefix, tmp_path / "env"):
        folders = [root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())]
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o755}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files(root)} == {0o444, 0o555}
    assert (environment.prefix / "bin/python3").stat().st_mode & 0o777 == 0o555
    assert (tmp_path / "env.tar").stat().st_mode & 0o777 == 0o444


@pytest.mark.thorough
def test_read_only_files_are_built_on_placed_replaced_and_removed_by_their_owner(
    build, strict_permissions, tmp_path, umask
):
    first = build("tree", conda=("rooted",))
    with pytest.raises(PermissionError):
        (first.prefix / SITE / "tree.py").open("a")
    second = build("tree", "leaf<1.1", conda=("rooted",))  # of the same conda packages, and their byte code
    shutil.rmtree(second.prefix)
    second = build("tree", "leaf<1.1", conda=("rooted",))
    assert second.fresh
    for environment in (first, second, first):
        assert place_folder(environment, tmp_path / "env") is True
        assert pack_archive(environment, tmp_path / "env.tar") is True
    (tmp_path / "cache/archives").rename(tmp_path / "cache/old")
    shutil.rmtree(tmp_path / "cache/old")
    assert pack_archive(second, tmp_path / "env.tar") is True
    prune_cache(0, cache=tmp_path / "cache")
    assert files(tmp_path / "cache/environments") == []
    shutil.rmtree(tmp_path / "env")


@pytest.mark.thorough
def test_what_was_damaged_through_a_model_is_made_again_and_the_damage_spreads_no_further(build, tmp_path):
    """A wheel, a conda package and byte code: the caches of the latter two share the damaged files."""
    first = build("tree", conda=("under_scored",))
    names = [f"{SITE}/tree.py", f"{SITE}/under_scored.py", f"{SITE}/__pycache__/under_scored.cpython-310.pyc"]
    before = {name: (first.prefix / name).read_bytes() for name in names}
    place_folder(first, tmp_path / "env")
    for name in names:
        (tmp_path / "env" / name).chmod(0o644)
        with (tmp_path / "env" / name).open("ab") as file:
            file.write(b"# damage")
    mended = build("tree", conda=("under_scored",))
    assert mended.fresh
    assert {name: (mended.prefix / name).read_bytes() for name in names} == before
    assert place_folder(mended, tmp_path / "env") is True
    assert {name: (tmp_path / "env" / name).read_bytes() for name in names} == before
    again = build("tree", conda=("under_scored",))
    assert (again.fresh, place_folder(again, tmp_path / "env")) == (False, False)
    assert verify_cache(tmp_path / "cache").damaged == ()

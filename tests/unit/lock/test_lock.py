"""The key of a lock, its file, and the digest of its requirements."""

import contextlib
import dataclasses
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st

from envpack.lock.lockfile import RECIPE, Lock, digest_requirements, read_lock, write_lock
from envpack.lock.pip import to_pylock
from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.target import Target
from envpack.support.errors import InputError
from envpack.support.placed_files import LOCK_NAME
from tests.tables import every_row

TARGET = Target("linux-64", "3.10", "2.35", "12.6")
PYTHON = CondaPackage(
    name="python", version="3.10.13", build="h_0", subdir="linux-64", url="https://channel.example/c/linux-64/python-3.10.13-h_0.conda",
    sha256="a" * 64, md5="b" * 32, size=10, license="Python-2.0", depends=("__glibc >=2.17",), constrains=("x >1",),
)  # fmt: skip
LOCAL = dataclasses.replace(
    PYTHON, name="tool", url="file:///cache/with space/linux-64/tool-1-0.conda", sha256="c" * 64
)
SIX = PipPackage("six", "1.17.0", "https://files.example/six-1.17.0-py2.py3-none-any.whl", "d" * 64, 11050)
LOCK = Lock(TARGET, ("https://channel.example/c",), (PYTHON, LOCAL), (SIX,), "e" * 64)


def test_a_lockfile_gives_back_the_lock(tmp_path):
    assert write_lock(LOCK, tmp_path / "envpack.lock") is True
    assert read_lock(tmp_path / "envpack.lock") == LOCK


def test_writing_the_same_lock_again_leaves_the_file_alone(tmp_path):
    write_lock(LOCK, tmp_path / "envpack.lock")
    before = (tmp_path / "envpack.lock").stat()
    assert write_lock(LOCK, tmp_path / "envpack.lock") is False
    after = (tmp_path / "envpack.lock").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_people_find_the_lockfile_under_its_documented_name():
    assert LOCK_NAME == "envpack.lock"


def test_a_missing_lockfile_is_none(tmp_path):
    assert read_lock(tmp_path / "envpack.lock") is None


def test_where_packages_are_does_not_change_what_they_make():
    moved = dataclasses.replace(PYTHON, url="file:///elsewhere/linux-64/python-3.10.13-h_0.conda")
    assert dataclasses.replace(LOCK, conda=(LOCAL, moved), channels=()).key == LOCK.key


@pytest.mark.parametrize(
    "change",
    [
        {"target": dataclasses.replace(TARGET, python="3.11")},
        {"target": dataclasses.replace(TARGET, platform="linux-aarch64")},
        {"conda": (PYTHON,)},
        {"conda": (dataclasses.replace(PYTHON, sha256="f" * 64), LOCAL)},
        {"pip": (dataclasses.replace(SIX, sha256="f" * 64),)},
    ],
)
def test_whatever_changes_the_content_changes_the_name(change):
    assert dataclasses.replace(LOCK, **change).key != LOCK.key


def test_the_name_of_the_same_lock_never_changes():
    """Another name builds every environment again; raise RECIPE if a lock gives another environment."""
    assert (LOCK.key, RECIPE) == ("bfad39ecba7d30ce7fe7b25cacd79711", 3)
    assert LOCK.environment_key(strip=False) == LOCK.key
    assert LOCK.environment_key(strip=True) == f"{LOCK.key}-stripped"


def test_order_files_and_secrets_do_not_change_the_requirements_digest():
    first = Requirements(pip=("a", "b"), pip_options=("--index-url https://me:secret@index.example/simple",))
    second = Requirements(
        pip=("b", "a", "b"), pip_options=("--index-url https://index.example/simple",), source=Path("/x/r.txt")
    )
    assert digest_requirements(first, ("local",)) == digest_requirements(second, ("local",))


def test_order_of_channels_and_of_pip_options_changes_the_requirements_digest():
    """The first channel or index with a package supplies it."""
    assert digest_requirements(Requirements(), ("a", "b")) != digest_requirements(Requirements(), ("b", "a"))
    options = ("--index-url https://a.example/simple", "--extra-index-url https://b.example/simple")
    first, second = Requirements(pip_options=options), Requirements(pip_options=options[::-1])
    assert digest_requirements(first, ()) != digest_requirements(second, ())


@pytest.mark.parametrize(
    "name",
    [
        *("build/x.py", ".git/HEAD", ".hg/dirstate", ".venv/bin/python", "node_modules/x.js"),
        *("dist/x.whl", "x.egg-info/PKG-INFO", "__pycache__/x.pyc"),
        *("envpack.lock", "config.pbtxt", "configs/small.pbtxt", "model/config.pbtxt"),
        *("triton_python_backend_stub", "triton_python_backend_stub.release"),
        *("python3.10.tar.gz", "python3.10.tar.json"),
        "python3.10/envpack-environment.json",
        "python_3_10/triton_python_backend_stub",
    ],
)
def test_files_that_are_no_sources_do_not_change_the_requirements_digest(tmp_path, name):
    (tmp_path / "pyproject.toml").write_text("[project]\nname='x'\n")
    for model in (tmp_path, tmp_path / "model"):
        (model / "1").mkdir(parents=True)
        (model / "1/model.py").touch()
    before = digest_requirements(Requirements(projects=(tmp_path,)), ())
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("x")
    assert digest_requirements(Requirements(projects=(tmp_path,)), ()) == before


@pytest.mark.parametrize("name", ["src/pkg/config.pbtxt", "src/pkg/configs/labels.pbtxt", "src/pkg/envpack.lock"])
def test_data_of_a_package_with_such_a_name_is_a_source(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True)
    digests = set()
    for text in ("old", "new"):
        (tmp_path / name).write_text(text)
        digests.add(digest_requirements(Requirements(projects=(tmp_path,)), ()))
    assert len(digests) == 2


@pytest.mark.parametrize("name", ["src/pkg/build/x.py", "pkg/dist/x.py", "pkg/linked/x.py", "pkg/linked/linked/x.py"])
def test_every_folder_of_a_package_has_sources(tmp_path, name):
    """Build backends follow links to packages, and take folders of any name."""
    project, shared = tmp_path / "project", tmp_path / "shared"
    for folder in (project / "pkg", shared):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "linked").symlink_to(shared)
    digests = set()
    for text in ("old", "new"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
        digests.add(digest_requirements(Requirements(projects=(project,)), ()))
    assert len(digests) == 2


def test_data_that_a_project_links_to_is_no_source(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "project/data").symlink_to("../data")
    before = digest_requirements(Requirements(projects=(tmp_path / "project",)), ())
    (tmp_path / "data/x.bin").write_text("x")
    assert digest_requirements(Requirements(projects=(tmp_path / "project",)), ()) == before


@pytest.mark.parametrize(
    "lines", [{"pip": ("x @ {}",)}, {"pip": ("x[a] @ {} ; python_version > '3'",)}, {"constraints": ("x @ {}",)}]
)
def test_a_local_wheel_that_is_built_again_changes_the_requirements_digest(tmp_path, lines):
    """Its name stays, so the model would keep the old one."""
    wheel = tmp_path / "a b-1.0-py3-none-any.whl"
    requirements = Requirements(**{key: tuple(line.format(wheel.as_uri()) for line in of) for key, of in lines.items()})
    digests = set()
    for content in ("old", "new"):
        wheel.write_text(content)
        digests.add(digest_requirements(requirements, ()))
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("made", "file"),
    [
        ("python3.10/envpack-environment.json", "python3.10/lib/x.py"),
        ("python_3_10/triton_python_backend_stub", "python_3_10/model.py"),
    ],
)
def test_a_folder_that_envpack_made_is_no_source_and_another_of_its_name_is(tmp_path, made, file):
    def digest():
        return digest_requirements(Requirements(projects=(tmp_path,)), ())

    empty = digest()
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("x")
    assert digest() != empty
    (tmp_path / made).write_text("x")
    assert digest() == empty


@pytest.mark.parametrize(
    "name", ["graph.pbtxt", "python3.tar.gz", "stub", "python_3_10/__init__.py", "data/python3.10.zip"]
)
def test_files_with_other_names_than_those_of_envpack_are_sources(tmp_path, name):
    before = digest_requirements(Requirements(projects=(tmp_path,)), ())
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("x")
    assert digest_requirements(Requirements(projects=(tmp_path,)), ()) != before


def test_everything_that_changes_the_result_changes_the_requirements_digest(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname='x'\n")
    digests = {
        digest_requirements(Requirements(), ("local",)),
        digest_requirements(Requirements(), ("conda-forge",)),
        digest_requirements(Requirements(pip=("a",)), ("local",)),
        digest_requirements(Requirements(conda=("a",)), ("local",)),
        digest_requirements(Requirements(pip=("a",), constraints=("a<2",)), ("local",)),
        digest_requirements(Requirements(pip=("a",), pip_options=("--pre",)), ("local",)),
        digest_requirements(Requirements(locked_conda=(PYTHON,)), ("local",)),
        digest_requirements(Requirements(locked_pip=(SIX,)), ("local",)),
        digest_requirements(Requirements(projects=(tmp_path,)), ("local",)),
    }
    (tmp_path / "module.py").write_text("x = 1\n")
    digests.add(digest_requirements(Requirements(projects=(tmp_path,)), ("local",)))
    assert len(digests) == 10


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("sha256: " + "d" * 64, "sha256: dddd", "sha256 of six is 'dddd'"),
        ("  sha256: " + "d" * 64 + "\n", "", "sha256 of six is ''"),
        (f"  sha256: {'a' * 64}\n  md5: {'b' * 32}\n", "", "python has no hash"),
        ("  md5: " + "b" * 32, "  md5: " + "b" * 31, f"md5 of python is '{'b' * 31}'"),
        ("  sha256: " + "a" * 64, "  sha256: " + "A" * 64, f"sha256 of python is '{'A' * 64}'"),
        ("  subdir: linux-64", "  subdir: ../..", "subdir of python is '../..'"),
        ("  build: h_0", "  build: h/0", "build of python is 'h/0'"),
        ("version: 1.17.0", "version: [1]", "version must be text"),
        ("  name: six\n", "", "name of x-envpack is ''"),
        ("schema: 1", "schema: 99", "another version of envpack"),
        ("x-envpack", "x-other", "another tool's lockfile"),
        ("- pypi: https://files.example/six-1.17.0-py2.py3-none-any.whl\n  name", "- pypi: x\n  name", "damaged"),
        ("version: 6", "version: " + "[" * 100_000, "nested too deeply"),
        ("      linux-64:\n", "      linux-64: []\n      other:\n", "must be for one platform"),
        ("      linux-64:\n", "      linux-32:\n", "unknown platform 'linux-32'"),
        ("version: 6", "version: [", "not valid YAML"),
    ],
)
def test_an_edited_lockfile_is_refused_with_the_reason(tmp_path, old, new, expected):
    file = tmp_path / "envpack.lock"
    text = LOCK.text
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_lock(file)
    assert caught.value.kind == "bad-lock"
    assert caught.value.where.startswith(str(file))
    assert expected in caught.value.message
    assert ("is damaged: " in caught.value.message) is not expected.startswith("another ")


UNREADABLE = {
    "no text": (lambda file: file.write_bytes(b"\xff"), "it is not UTF-8"),
    "folder": (os.mkdir, "Is a directory"),
    "pipe": (os.mkfifo, "it is not a regular file"),
    "broken link": (lambda file: file.symlink_to("nowhere"), "No such file or directory"),
}


@pytest.mark.timeout(60)
@every_row("what", UNREADABLE)
def test_a_lockfile_that_cannot_be_read_is_an_error(tmp_path, what):
    make, reason = UNREADABLE[what]
    (tmp_path / what).mkdir()
    file = tmp_path / what / "envpack.lock"
    make(file)
    with pytest.raises(InputError) as caught:
        read_lock(file)
    assert caught.value.message == f"the lockfile cannot be read: {reason}"
    assert (caught.value.kind, caught.value.where) == ("bad-lock", str(file))
    assert caught.value.hint == "restore it from version control, or remove it and run envpack lock"


def test_a_lockfile_can_be_read_by_other_tools(tmp_path):
    bare = dataclasses.replace(
        PYTHON,
        name="bare",
        url="https://channel.example/c/linux-64/bare.conda",
        sha256="",
        md5="b" * 32,
        size=0,
        license="",
        depends=(),
        constrains=(),
    )
    lock = dataclasses.replace(
        LOCK, conda=(PYTHON, bare), pip=(SIX, dataclasses.replace(SIX, name="seven", url="file:///seven.whl", size=0))
    )
    text = lock.text
    assert text.startswith("# Written by `envpack lock`")
    assert Lock.parse(text, Path("x")) == lock
    packages = {
        "python": {
            "conda": PYTHON.url, "name": "python", "version": "3.10.13", "build": "h_0", "subdir": "linux-64",
            "sha256": "a" * 64, "md5": "b" * 32, "size": 10, "license": "Python-2.0", "depends": ["__glibc >=2.17"],
            "constrains": ["x >1"],
        },
        "bare": {
            "conda": bare.url, "name": "bare", "version": "3.10.13", "build": "h_0", "subdir": "linux-64",
            "md5": "b" * 32,
        },
        "six": {"pypi": SIX.url, "name": "six", "version": "1.17.0", "sha256": "d" * 64, "size": 11050},
        "seven": {"pypi": "file:///seven.whl", "name": "seven", "version": "1.17.0", "sha256": "d" * 64},
    }  # fmt: skip
    assert yaml.safe_load(text) == {
        "version": 6,
        "environments": {
            "default": {
                "channels": [{"url": "https://channel.example/c/"}],
                "packages": {
                    "linux-64": [
                        {"conda": PYTHON.url},
                        {"conda": bare.url},
                        {"pypi": SIX.url},
                        {"pypi": "file:///seven.whl"},
                    ]
                },
            }
        },
        "packages": list(packages.values()),
        "x-envpack": {"schema": 1, "asked": "e" * 64, "python": "3.10", "glibc": "2.35", "cuda": "12.6"},
    }


def test_a_conda_package_with_either_hash_is_accepted(tmp_path):
    for kept in ({"sha256": ""}, {"md5": ""}):
        lock = dataclasses.replace(LOCK, conda=(dataclasses.replace(PYTHON, **kept),))
        assert Lock.parse(lock.text, tmp_path) == lock


DOCUMENT = yaml.safe_load(LOCK.text)
nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(["environments", "packages", "x-envpack", "version"]), value=nested)
def test_no_content_ends_in_a_traceback(key, value):
    document = DOCUMENT | {key: value}
    with contextlib.suppress(InputError):
        assert isinstance(Lock.parse(yaml.safe_dump(document), Path("envpack.lock")), Lock)


def test_a_pylock_names_each_file_by_address_and_hash():
    local = dataclasses.replace(SIX, name="mine", url="file:///with%20space/mine-1-py3-none-any.whl")
    source = dataclasses.replace(SIX, name="old", url="https://files.example/old-1.tar.gz")
    text = to_pylock((SIX, local, source), TARGET)
    assert f'sdist = {{ url = "https://files.example/old-1.tar.gz", hashes = {{ sha256 = "{SIX.sha256}" }} }}' in text
    assert 'wheels = [{ url = "https://files.example/six-1.17.0-py2.py3-none-any.whl"' in text
    assert 'archive = { path = "/with space/mine-1-py3-none-any.whl"' in text

"""Locks of other tools: pixi.lock, conda-lock.yml, pylock.toml and @EXPLICIT lists.

Rattler, conda-lock and uv wrote the files in locks/. The digests of conda packages are invented, and wheels of
platforms that add no case were removed.
"""

import hashlib
from pathlib import Path

import pytest

from envpack.requirements.format import read_requirements
from envpack.requirements.model import CondaPackage, PipPackage
from tests.tables import every_row

LOCKS = Path(__file__).with_name("locks")
FORGE = "https://conda.anaconda.org/conda-forge"
SIX_URL = (
    "https://files.example.org/packages/d9/5a/e7c31adbe875f2abbb91bd84cf2dc52d792b5a01506781dbcf25c91daf11/"
    "six-1.16.0-py2.py3-none-any.whl"
)
SIX = PipPackage("six", "1.16.0", SIX_URL, "8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254")
PYTHON_URL = f"{FORGE}/linux-64/python-3.10.13-hd12c33a_1_cpython.conda"
PYTHON = CondaPackage(
    name="python",
    version="3.10.13",
    build="hd12c33a_1_cpython",
    subdir="linux-64",
    url=PYTHON_URL,
    sha256="a" * 64,
    md5="b" * 32,
    depends=("libffi >=3.4,<4.0a0",),
)


@pytest.fixture
def pixi(write):
    """Rattler's own lock, with a hash that its Python interface cannot set, and the wheel that it names."""
    text = (LOCKS / "pixi.lock").read_text(encoding="utf-8")
    assert "version: 7" in text
    write("wheels/own_wheel-1.0-py3-none-any.whl", "wheel")
    return write("pixi.lock", f"{text}  sha256: {SIX.sha256}\n")


PIXI_6 = f"""\
version: 6
environments:
  default:
    channels:
    - url: {FORGE}/
    indexes:
    - https://index.example.org/simple
    packages:
      linux-64:
      - conda: {FORGE}/linux-64/_libgcc_mutex-0.1-conda_forge.tar.bz2
      - conda: {PYTHON_URL}
      - pypi: {SIX_URL}
packages:
- conda: {FORGE}/linux-64/_libgcc_mutex-0.1-conda_forge.tar.bz2
  sha256: fe51de6107f9edc7aa4f786a70f4a883943bc9d39b3bb7307c04c41410990726
  md5: d7c89558ba9fa0495403155b64376d81
  license: None
  size: 2562
  timestamp: 1578324546067
- conda: {PYTHON_URL}
  sha256: {PYTHON.sha256}
  md5: {PYTHON.md5}
  depends:
  - libffi >=3.4,<4.0a0
- pypi: {SIX_URL}
  name: six
  version: 1.16.0
  sha256: {SIX.sha256}
  requires_python: '>=2.7,!=3.0.*,!=3.1.*,!=3.2.*'
"""


def test_pixi_lock_that_rattler_writes(pixi, tmp_path):
    found = read_requirements(pixi)
    own, python, tzdata = found.locked_conda
    assert own == CondaPackage(
        name="own",
        version="1.0",
        build="0",
        subdir="linux-64",
        url="file:///opt/a%20channel/linux-64/own-1.0-0.conda",
        sha256="e" * 64,
        md5="f" * 32,
        size=5,
    )
    assert (python.url, python.size, python.license) == (PYTHON_URL, 123, "Python-2.0")
    assert (python.depends, python.constrains) == (("libffi >=3.4,<4.0a0",), ("python_abi 3.10.* *_cp310",))
    assert (tzdata.name, tzdata.version, tzdata.build, tzdata.subdir) == ("tzdata", "2024a", "h0c530f3_0", "noarch")
    wheel = tmp_path / "wheels/own_wheel-1.0-py3-none-any.whl"
    digest = hashlib.sha256(b"wheel").hexdigest()
    assert found.locked_pip == (PipPackage("own-wheel", "1.0", wheel.as_uri(), digest), SIX)
    assert found.channels == (f"{FORGE}/",)
    assert (found.python, found.platform, found.source, found.files) == ("3.10", "linux-64", pixi, (pixi,))


def test_pixi_lock_of_version_6(write):
    found = read_requirements(write("pixi.lock", PIXI_6))
    mutex, python = found.locked_conda
    assert (mutex.name, mutex.version, mutex.build, mutex.size) == ("_libgcc_mutex", "0.1", "conda_forge", 2562)
    assert python == PYTHON
    assert found.locked_pip == (SIX,)


def test_pixi_lock_of_version_5_names_kinds_and_urls(write):
    text = PIXI_6.replace("version: 6", "version: 5").partition("\npackages:\n")
    packages = text[2].replace("- conda: ", "- kind: conda\n  url: ").replace("- pypi: ", "- kind: pypi\n  url: ")
    found = read_requirements(write("pixi.lock", f"{text[0]}\npackages:\n{packages}"))
    assert (found.locked_conda[1], found.locked_pip) == (PYTHON, (SIX,))


def test_wheel_that_is_not_from_an_index_has_a_prefix(write):
    assert read_requirements(write("pixi.lock", PIXI_6.replace(SIX_URL, f"direct+{SIX_URL}"))).locked_pip == (SIX,)


def test_projects_of_a_pixi_lock_are_built_but_not_its_own(write, tmp_path):
    lock = write("m/pixi.lock", PIXI_6.replace(SIX_URL, "../lib"))
    write("lib/pyproject.toml", "")
    assert read_requirements(lock).projects == (tmp_path / "lib",)
    found = read_requirements(write("m/pixi.lock", PIXI_6.replace(SIX_URL, "./")))
    assert (found.projects, found.locked_pip) == ((), ())
    assert "the project that the lock is of is left out" in found.warnings[0]


def test_pixi_lock_of_version_7_may_rename_a_platform(write):
    text = PIXI_6.replace("version: 6", "version: 7\nplatforms:\n- name: gpu\n  subdir: linux-64", 1)
    assert len(read_requirements(write("pixi.lock", text.replace("linux-64:\n", "gpu:\n"))).locked_conda) == 2


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version: 6", "version: 3", "version '3'"),
        ("    packages:\n      linux-64:\n", "    packages: {}\n    rest:\n      x:\n", "has no packages"),
        ("  default:", "  serve:", "no environment default, only 'serve'"),
        ("      linux-64:", "      osx-arm64:", "only for 'osx-arm64'"),
        (f"packages:\n- conda: {FORGE}", f"packages:\n- conda: {FORGE}/x", "not among the packages"),
        (PYTHON_URL, "./source", "built from source"),
        (SIX_URL, "https://example.org/six.tar.gz", "neither a wheel"),
        (SIX_URL, "./lib", "neither a wheel"),
        ("- conda:", "- conda_source:", "built from source"),
        (SIX_URL, "./none-1.0-py3-none-any.whl", "there is no file"),
        (f"  sha256: {SIX.sha256}\n", "", "six has no sha256"),
        (f"sha256: {PYTHON.sha256}", "sha256: 00", "sha256 of python"),
        (f"md5: {PYTHON.md5}", "md5: 00", "md5 of python"),
        (f"{FORGE}/", "https://me:very-secret@example.org/", "password"),
        (f"{FORGE}/linux-64", f"{FORGE}/t/very-secret/linux-64", "password"),
        (f"{FORGE}/linux-64", f"{FORGE}/linux-aarch64", "not for linux-64"),
        (PYTHON_URL, f"{FORGE}/linux-64/python.conda", "not a conda package"),
        (SIX_URL, SIX_URL.replace("py2.py3-none-any", "cp39-cp39-manylinux_2_17_x86_64"), "wrong platform wheel"),
        (SIX_URL, SIX_URL.replace("py2.py3-none-any", "cp310-cp310-manylinux_2_17_aarch64"), "wrong platform wheel"),
        (SIX_URL, SIX_URL.replace("py2.py3-none-any", "cp310-cp310-manylinux_2_39_x86_64"), "wrong platform wheel"),
        (SIX_URL, SIX_URL.replace("py2.py3-none-any", "cp310-cp310-musllinux_1_1_x86_64"), "wrong platform wheel"),
        (SIX_URL, SIX_URL.replace("py2.py3-none-any", "py3"), "not the name of a wheel"),
        (SIX_URL, "ftp://example.org/six-1.16.0-py3-none-any.whl", "neither an http(s) URL"),
        ("size: 2562", "size: many", "size must be a number"),
        ("      linux-64:\n", "      linux-64: x\n      rest:\n", "must be a list"),
        ("  depends:\n  - libffi >=3.4,<4.0a0", "  depends: libffi", "depends must be a list"),
    ],
)
def test_pixi_lock_that_cannot_be_installed_is_refused(write, refused, old, new, expected):
    assert old in PIXI_6
    error = refused(write("pixi.lock", PIXI_6.replace(old, new)))
    assert expected in error.message
    assert "very-secret" not in str(error)
    assert error.where.rpartition(":")[2].isdigit()


def test_wheel_that_needs_a_newer_glibc_fits_a_newer_release(write):
    text = PIXI_6.replace("py2.py3-none-any", "cp310-cp310-manylinux_2_39_x86_64")
    assert len(read_requirements(write("pixi.lock", text), glibc="2.39").locked_pip) == 1


def test_conda_lock_that_conda_lock_writes():
    file = LOCKS / "conda-lock.yml"
    found = read_requirements(file)
    python, tzdata = found.locked_conda
    assert (python.name, python.version, python.build, python.subdir) == PYTHON_PARTS
    assert (python.url, python.sha256, python.md5) == (PYTHON_URL, "a" * 64, "b" * 32)
    assert python.depends == ("libffi >=3.4,<4.0a0", "tzdata")
    assert tzdata.subdir == "noarch"
    assert found.locked_pip == (SIX,)
    assert (found.python, found.platform, found.channels) == ("3.10", "linux-64", ("conda-forge",))
    assert [package.name for package in read_requirements(file, platform="linux-aarch64").locked_conda] == ["tzdata"]


@every_row(
    ("content", "required"),
    [
        ("dependencies: [python=3.10, tzdata, {pip: [six]}]", ""),
        ("dependencies: [tzdata>=2023, pip, numpy]  # [win]", ""),
        ("dependencies: [numpy]\ncategory: dev", ""),
        ("dependencies: [{pip: [git+https://example.org/x]}, numpy]", ""),
        ("dependencies: [tzdata, ruamel.yaml]", "'ruamel.yaml' is required, and conda-lock.yml does not have it"),
        ("dependencies: [tzdata=2019.1]", "'tzdata==2019.1.*' is required, and conda-lock.yml has 2024a"),
        ("dependencies: [python=3.11]", "'python==3.11.*' is required, and conda-lock.yml has 3.10.13"),
    ],
)
def test_a_conda_lock_is_compared_with_the_files_it_was_made_from(write, refused, content, required):
    write("environment.yml", content)
    file = write("conda-lock.yml", (LOCKS / "conda-lock.yml").read_text())
    if required:
        error = refused(file, line=1)
        assert error.message == f"{required}: the lock is older"
        assert error.hint == "write the lock again: conda-lock"
    else:
        assert len(read_requirements(file).locked_conda) == 2


PYTHON_PARTS = ("python", "3.10.13", "hd12c33a_1_cpython", "linux-64")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version: 1\n", "version: 2\n", "version '2'"),
        ("platform: linux-64", "platform: osx-64", "not for linux-64, only for 'osx-64, linux-aarch64'"),
        ("manager: pip", "manager: npm", "conda or pip"),
        ("  manager: pip\n", "", "no manager"),
        (SIX_URL, "git+https://example.org/six", "'git+https://example.org/six' is neither an http(s) URL"),
        (SIX_URL, "https://example.org/six-1.16.0.tar.xz", "neither a wheel"),
        (f"    sha256: {SIX.sha256}", "    md5: " + "0" * 32, "six has no sha256"),
        ("- url: conda-forge", "- url: https://$USER:$WORD@example.org/x", "password"),
        ("  - url: conda-forge\n    used_env_vars: []", "  - conda-forge", "must be a table"),
        ("/linux-64/python", "/linux-aarch64/python", "not for linux-64"),
    ],
)
def test_conda_lock_that_cannot_be_installed_is_refused(write, refused, old, new, expected):
    text = (LOCKS / "conda-lock.yml").read_text(encoding="utf-8")
    assert old in text
    error = refused(write("conda-lock.yml", text.replace(old, new)))
    assert expected in error.message
    assert error.where.rpartition(":")[2].isdigit()


def test_a_lock_of_an_early_pixi_names_the_command_of_pixi(write, refused):
    error = refused(write("pixi.lock", "version: 3\nmetadata:\n  channels: []\npackage: []\n"), 1)
    assert "version '3' of the lock" in error.message
    assert error.hint.endswith("pixi lock, if pixi wrote it")


@pytest.mark.parametrize(
    ("how", "wheel"),
    [
        ({"python": "3.10"}, "cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64"),
        ({"python": "3.12.1"}, "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64"),
        (
            {"python": "3.12", "platform": "linux-aarch64"},
            "cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64",
        ),
    ],
)
def test_pylock_that_uv_writes_gives_the_wheels_of_the_target(how, wheel):
    found = read_requirements(LOCKS / "pylock.toml", **how)
    numpy, six = found.locked_pip  # colorama is for Windows only
    assert numpy.url.endswith(f"/numpy-1.26.4-{wheel}.whl")
    assert (six.name, six.version, six.url, six.sha256) == (SIX.name, SIX.version, SIX.url, SIX.sha256)
    assert found.platform == how.get("platform", "linux-64")


def test_pylock_selects_the_newest_glibc_that_the_target_has(write):
    def wheel(glibc):
        url = f"https://example.org/six-1.16.0-cp310-cp310-manylinux_2_{glibc}_x86_64.whl"
        return f'{{url = "{url}", hashes = {{sha256 = "{SIX.sha256}"}}}}'

    head = PYLOCK.partition("wheels = ")[0]
    file = write("pylock.toml", f"{head}wheels = [{wheel(17)}, {wheel(28)}, {wheel(39)}]\n")
    found = read_requirements(file)
    assert found.python == "3.10"
    assert found.locked_pip[0].url.endswith("manylinux_2_28_x86_64.whl")
    assert "2_17" in read_requirements(file, glibc="2.17").locked_pip[0].url


def test_pylock_without_a_wheel_for_the_target_names_the_package_and_its_line(write, refused):
    text = (LOCKS / "pylock.toml").read_text(encoding="utf-8")
    without_sources = "".join(line for line in text.splitlines(True) if not line.startswith("sdist = "))
    error = refused(write("pylock.toml", without_sources), 14, python="3.11")
    assert "wrong platform wheel: no wheel of numpy is for Python 3.11, linux-64" in error.message


def test_pylock_gives_the_source_of_a_package_without_a_wheel_for_the_target():
    found = read_requirements(LOCKS / "pylock.toml", python="3.11")
    numpy = found.locked_pip[0]
    assert (numpy.name, numpy.version, numpy.url.rpartition("/")[2]) == ("numpy", "1.26.4", "numpy-1.26.4.tar.gz")
    assert found.places["numpy"].endswith("pylock.toml:15")


def test_pylock_for_several_pythons_needs_one(refused):
    assert "--python" in refused(LOCKS / "pylock.toml").hint


def test_pylock_for_another_python_is_refused(refused):
    error = refused(LOCKS / "pylock.toml", python="3.9")
    assert "not for Python 3.9" in error.message
    assert error.hint.endswith("write the lock again for linux-64")


GET = 'url = "https://x/get", hashes = {sha256 = "00"}'
PYLOCK = f"""\
lock-version = "1.0"
created-by = "x"
requires-python = "==3.10.*"
[[packages]]
name = "six"
version = "1.16.0"
wheels = [{{url = "{SIX_URL}", hashes = {{sha256 = "{SIX.sha256}"}}}}]
"""


def test_pylock_with_another_name_and_a_local_wheel(write):
    wheel = write("wheels/six-1.16.0-py3-none-any.whl", "")
    text = PYLOCK.replace(f'url = "{SIX_URL}"', 'path = "wheels/six-1.16.0-py3-none-any.whl"')
    assert read_requirements(write("pylock.serve.toml", text)).locked_pip[0].url == wheel.as_uri()


@every_row(
    ("old", "new"),
    [
        ('name = "six"', 'name = "Six"'),  # of the Pipfile
        ("[[packages]]", "environments = []\n[[packages]]"),
        ("{url", '{upload-time = "2021-05-05T14:18:17Z", url'),  # of an older pipenv, as text
    ],
)
def test_pylock_as_pipenv_writes_it(write, old, new):
    assert old in PYLOCK
    assert read_requirements(write("pylock.toml", PYLOCK.replace(old, new))).locked_pip == (SIX,)


def test_pylock_without_files_as_pdm_writes_it_without_its_index(write, refused):
    text = PYLOCK.replace("[[packages]]", 'dependency-groups = ["base"]\n[[packages]]')
    text = text.replace("wheels = [", "marker = \"'base' in dependency_groups\"\nx = [")
    error = refused(write("pylock.toml", text), line=6)
    assert error.message == "the lock names no file of 'six'"
    assert "where it can read its package index" in error.hint


def test_pylock_as_pdm_writes_it_for_any_python(write):
    text = PYLOCK.replace('requires-python = "==3.10.*"', 'requires-python = ""\nenvironments = [""]')
    assert read_requirements(write("pylock.toml", text), python="3.10").locked_pip == (SIX,)


def test_names_of_indexes_come_from_the_project_beside_a_pylock(write):
    write("pyproject.toml", '[project]\nname = "p"\n[[tool.uv.index]]\nname = "own"\nurl = "https://own.example"\n')
    found = read_requirements(write("pylock.toml", PYLOCK), python="3.10")
    assert found.download_variables == {"UV_INDEX": "own=https://own.example"}


def test_a_wheel_that_uv_calls_an_archive_is_one(write, refused):
    """As of a ``[tool.uv.sources]`` with the address or the path of a wheel."""
    text = PYLOCK.replace("wheels = [", "archive = ").replace("}]", "}")
    assert read_requirements(write("pylock.toml", text), python="3.10").locked_pip == (SIX,)
    error = refused(
        write("pylock.toml", text.replace("py2.py3-none-any", "cp39-cp39-linux_x86_64")), line=5, python="3.10"
    )
    assert "no wheel of six is for Python 3.10" in error.message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('lock-version = "1.0"', 'lock-version = "2.0"', "version 2.0 is not supported"),
        ('lock-version = "1.0"', "", "Missing required value"),
        ('name = "six"', "name = 6", "Unexpected type"),
        ("wheels = [", 'sdist = {path = "six-1.16.0.tar.gz", hashes = {sha256 = "00"}}\nx = [', "there is no file"),
        ("wheels = [", 'sdist = {url = "https://x/six.tar.gz", hashes = {sha256 = "00"}}\nx = [', "Invalid sdist"),
        ("wheels = [", f"sdist = {{name = 'six-1.16.0.tar.gz', {GET}}}\nx = [", "'get' is neither a wheel"),
        ("wheels = [", 'sdist = {url = "https://x/six-1.16.0.zip", hashes = {md5 = "0"}}\nx = [', "six has no sha256"),
        ("wheels = [", 'vcs = {type = "git", url = "https://x", commit-id = "0"}\nx = [', "from a repository"),
        ("wheels = [", 'directory = {path = "."}\nx = [', "the project that the lock is of"),
        ("wheels = [", 'directory = {path = "../none"}\nx = [', "no Python project"),
        ("wheels = [", 'archive = {path = "x", hashes = {sha256 = "00"}}\nx = [', "an archive that is no release"),
        ("py2.py3-none-any", "cp310-cp310-win_amd64", "wrong platform wheel"),
        ("sha256 = ", "md5 = ", "six has no sha256"),
        ("https://", "https://me:very-secret@", "password"),
        ('version = "1.16.0"', 'marker = "extra == 1"', "PEP 751"),
        ('version = "1.16.0"', "marker = \"extra == 'x'\"", "PEP 751"),
        ("[[packages]]", "[packages", "not valid TOML"),
    ],
)
def test_pylock_that_cannot_be_installed_is_refused(write, refused, old, new, expected):
    assert old in PYLOCK
    error = refused(write("pylock.toml", PYLOCK.replace(old, new)))
    assert expected in error.message
    assert "very-secret" not in str(error)


def test_explicit_list_that_conda_writes(write):
    file = write(
        "packages.txt",
        f"""\
        # This file may be used to create an environment using:
        # $ conda create --name <env> --file <this file>
        # platform: linux-64
        @EXPLICIT
        {PYTHON_URL}#{"B" * 32}
        {FORGE}/noarch/tzdata-2024a-h0c530f3_0.conda#sha256:{"c" * 64}
        {FORGE}/linux-64/_libgcc_mutex-0.1-conda_forge.tar.bz2
        {FORGE}/noarch/pip-24.0-0.conda#{"d" * 64}
        """,
    )
    found = read_requirements(file)
    python, tzdata, mutex, plain = found.locked_conda
    assert (python.name, python.version, python.build, python.subdir) == PYTHON_PARTS
    assert (python.md5, python.sha256, python.url) == ("b" * 32, "", PYTHON_URL)
    assert (tzdata.sha256, tzdata.md5, tzdata.subdir) == ("c" * 64, "", "noarch")
    assert (mutex.name, mutex.md5, mutex.sha256) == ("_libgcc_mutex", "", "")
    assert (plain.md5, plain.sha256) == ("", "d" * 64)
    assert (found.python, found.platform, found.files) == ("3.10", "linux-64", (file,))


def test_explicit_list_may_have_the_name_that_conda_lock_gives_it(write):
    found = read_requirements(write("conda-linux-64.lock", f"@EXPLICIT\n{PYTHON_URL}\n"))
    assert found.python == "3.10"


def test_explicit_list_of_local_files(write, tmp_path):
    file = write("list.txt", "@EXPLICIT\nfile:///srv/a%20channel/linux-64/own-1.0-0.conda\n./noarch/x-1-0.conda\n")
    own, other = read_requirements(file).locked_conda
    assert own.url == "file:///srv/a%20channel/linux-64/own-1.0-0.conda"
    assert (other.url, other.subdir) == ((tmp_path / "noarch/x-1-0.conda").as_uri(), "noarch")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("numpy", "not the URL of a package"),
        ("numpy >=1", "not the URL of a package"),
        (f"{FORGE}/osx-64/x-1-0.conda", "not for linux-64"),
        (f"{FORGE}/linux-aarch64/x-1-0.conda", "not for linux-64"),
        (f"{FORGE}/linux-64/x-1-0.zip", "not a conda package"),
        (f"{FORGE}/linux-64/x.conda", "not a conda package"),
        (f"{PYTHON_URL}#00", "md5 of python"),
        (f"{PYTHON_URL}#sha256:00", "sha256 of python"),
        ("https://me:very-secret@example.org/linux-64/x-1-0.conda", "password"),
        ("https://example.org/t/very-secret/c/linux-64/x-1-0.conda", "password"),
        ("https://example.org/x-1-0.conda", "does not name its platform"),
        ("ftp://example.org/linux-64/x-1-0.conda", "neither an http(s) URL"),
        ("https://[/linux-64/x-1-0.conda", "neither an http(s) URL"),
        (f"# pip six @ {SIX_URL}", "packages of pip"),
    ],
)
def test_explicit_list_that_cannot_be_installed_is_refused(write, refused, line, expected):
    error = refused(write("list.txt", f"@EXPLICIT\n\n{line}\n"), 3)
    assert expected in error.message
    assert "very-secret" not in str(error)

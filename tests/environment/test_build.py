import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from envpack.archive.folder import place_folder
from envpack.conda.channels import local_channel
from envpack.conda.choice import interpreter_for
from envpack.conda.interpreters import available_interpreters
from envpack.requirements.model import Requirements
from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.stub.target import target_from_prefix
from envpack.support.elf import version_key
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.placed_files import MANIFEST
from envpack.support.platforms import abi_flags, libpython_name
from envpack.support.progress import NoProgress
from tests import newer_pythons
from tests.built import build_environment
from tests.needed_pythons import need

ROOT = Path(__file__).parents[2]
ASK = "import sys, json, numpy, site; print(json.dumps([sys.version.split()[0], sys.prefix, numpy.__file__, sys.path]))"


def answers(prefix: Path, code: str = ASK, **variables: str) -> list:
    """What the environment's Python says after activation as the server does it, with nothing else set."""
    script = f"source \"{prefix}/bin/activate\" && exec python3 -c '{code}'"
    done = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("minor", [minor for minor in SUPPORTED if minor not in newer_pythons.PYTHONS])
def test_every_supported_python_becomes_a_complete_environment(minor):
    env = build_environment(Requirements(pip=("six",)), python=need(minor))
    assert env.minor == minor
    assert (env.prefix / "lib" / libpython_name(minor)).is_file()
    assert (env.prefix / f"include/python{minor}{abi_flags(minor)}/Python.h").is_file()
    code = 'import ssl, sqlite3, ctypes, lzma, bz2, json, six, sysconfig as s; print(json.dumps(s.get_path("stdlib")))'
    assert answers(env.prefix, code) == str(env.prefix / f"lib/python{minor}")


@pytest.mark.thorough
def test_interpreter_of_the_distribution_works_too(tmp_path, monkeypatch):
    newest = version_key(find_release(DEFAULT_RELEASE).glibc)
    system = [
        found
        for found in available_interpreters([Path("/usr/bin")])
        if found.distribution and found.library and version_key(found.glibc) <= newest
    ]
    if not system:
        pytest.skip("no Python of Debian or Ubuntu with a shared library, for the default release, in /usr/bin")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    for name, value in {"HOME": "/nonexistent", "PYENV_ROOT": "/nonexistent", "PATH": "/usr/bin:/bin"}.items():
        monkeypatch.setenv(name, value)
    env = build_environment(Requirements(pip=("six",)), python=system[0].minor, cache=tmp_path / "cache")
    assert env.python == system[0].version
    moved = env.prefix.rename(tmp_path / "moved")
    found = answers(moved, "import six, sys, json; print(json.dumps([sys.prefix, six.__file__]))")
    assert found[0] == str(moved)
    assert found[1].startswith(str(moved))
    if system[0].has_headers:  # whose pyconfig.h only includes that of the architecture, from another folder
        target = target_from_prefix(moved)
        assert target.configuration.is_relative_to(moved)
        assert "#define SIZEOF_LONG" in target.configuration.read_text()


@pytest.mark.thorough
def test_packages_are_listed_with_their_source(numpy_env):
    names = {(package.name, package.source) for package in numpy_env.packages}
    assert names == {("python", "conda"), ("numpy", "pip"), ("six", "pip")}
    python = next(package for package in numpy_env.packages if package.name == "python")
    assert (python.version, python.license) == (numpy_env.python, "Python-2.0")
    assert python.size > 10_000_000
    told = json.loads((numpy_env.prefix / MANIFEST).read_text())
    assert (told["numpy_abi"], told["cuda_libraries"], told["hidden_libraries"]) == ("1", [], [])


@pytest.mark.thorough
def test_second_build_takes_no_step(numpy_env):
    progress = mock.Mock(spec=NoProgress)
    again = build_environment(Requirements(pip=("six", "numpy")), python="3.8", progress=progress)
    assert progress.mock_calls == []
    assert (again.fresh, again.prefix) == (False, numpy_env.prefix)


def test_nothing_of_the_host_leaks_in(tmp_path, monkeypatch):
    pyenv = interpreter_for(need("3.8")).prefix.parents[1]
    trap, target, home = tmp_path / "trap", tmp_path / "target", tmp_path / "home"
    user_site = home / ".local/lib/python3.8/site-packages"
    for folder in (trap / "six-1.16.0.dist-info", user_site / "six-1.16.0.dist-info"):
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n")
        (folder.parent / "six.py").write_text("raise SystemExit('trap')")
        (folder.parent / "sitecustomize.py").write_text("raise SystemExit('trap')")
    for name, value in {
        "PYTHONPATH": trap, "PYTHONHOME": trap, "PIP_TARGET": target, "PIP_USER": "1", "UV_TARGET": target,
        "HOME": home, "VIRTUAL_ENV": trap, "LD_LIBRARY_PATH": trap,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    env = build_environment(Requirements(pip=("six<1.17",)), python=need("3.8"))
    assert not target.exists()
    assert (env.prefix / "lib/python3.8/site-packages/six.py").is_file()
    assert "trap" not in (env.prefix / "lib/python3.8/site-packages/six.py").read_text()[:100]
    code = "import six, sys, json; print(json.dumps([six.__file__, sys.path]))"
    file, path = answers(env.prefix, code, HOME=str(home))
    assert file.startswith(str(env.prefix))
    assert all(entry.startswith(str(env.prefix)) or not entry for entry in path)
    bare = [env.prefix / "bin/python3", "-c", code]  # a server from 25.08 on does not run activate
    done = subprocess.run(bare, env={"HOME": str(home)}, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)[0].startswith(str(env.prefix))


def test_moved_copy_works_and_names_neither_store_nor_builder(numpy_env, tmp_path):
    place_folder(numpy_env, tmp_path / "repository/m/env")
    moved = tmp_path / "else where"
    shutil.copytree(tmp_path / "repository/m/env", moved, symlinks=True)
    version, prefix, numpy_file, path = answers(moved)
    assert (version, prefix) == (numpy_env.python, str(moved))
    assert all(entry.startswith(str(moved)) for entry in (numpy_file, *path) if entry)
    builder = str(interpreter_for("3.8").prefix).encode()
    named = [file for file in moved.rglob("*") if file.is_file() and names_any(file, str(numpy_env.prefix).encode())]
    assert named == []
    texts = [file for file in moved.rglob("*") if file.suffix in {".py", ".pc", ".json", ".pyc", ""}]
    assert [file for file in texts if file.is_file() and names_any(file, builder)] == []


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def names_any(file: Path, text: bytes) -> bool:
    return text in file.read_bytes()


def test_console_scripts_and_their_records_work_elsewhere(numpy_env, tmp_path):
    place_folder(numpy_env, tmp_path / "env")
    script = f"source '{tmp_path}/env/bin/activate' && f2py -v"
    assert subprocess.run(["bash", "-c", script], env={"PATH": "/usr/bin:/bin"}, check=True).returncode == 0


def test_byte_code_is_there_and_independent_of_time(numpy_env):
    cached = next((numpy_env.prefix / "lib/python3.8/site-packages/numpy/__pycache__").glob("__init__.*.pyc"))
    assert cached.read_bytes()[4:8] == b"\1\0\0\0"  # hash-based, unchecked
    library = numpy_env.prefix / "lib/python3.8/__pycache__/json"
    assert (library.parent / "os.cpython-38.pyc").read_bytes()[4:8] == b"\1\0\0\0"


@pytest.mark.thorough
def test_channel_over_http_gives_the_same_environment(tmp_path):
    package = local_channel(interpreter_for(need("3.8")))
    handler = functools.partial(QuietHandler, directory=str(package.channel))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            env = build_environment(
                Requirements(pip=("six",)), python="3.8", channels=(url,), cache=tmp_path / "other cache"
            )
        finally:
            server.shutdown()
            thread.join()
    assert env.prefix.is_relative_to(tmp_path / "other cache")
    assert answers(env.prefix, "import sys, json, six; print(json.dumps(sys.prefix))") == str(env.prefix)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("requirements", "kind", "named"),
    [
        (Requirements(conda=("no-such-package >=6",)), "unresolvable", "no-such-package >=6"),
        (Requirements(pip=("six", "no-such-package-of-envpack<2")), "unresolvable", "no-such-package-of-envpack<2"),
        (Requirements(pip=("numpy>=2", "six")), "wheel-missing", "numpy>=2"),
    ],
)
def test_unresolvable_requirement_is_named_and_the_store_stays_clean(cache, requirements, kind, named):
    before = entries(cache)
    with pytest.raises(EnvironmentBuildError) as caught:
        build_environment(requirements, python=need("3.8"))
    assert caught.value.kind == kind
    assert repr(named) in caught.value.message
    assert entries(cache) == before


def entries(cache: Path) -> list[str]:
    folder = cache / "environments"
    return [name for name in names_in(folder) if not name.endswith(".lock")] if folder.is_dir() else []


def test_unreachable_channel_is_named():
    with pytest.raises(EnvironmentBuildError) as caught:
        build_environment(Requirements(), python="3.8", channels=("http://127.0.0.1:9/none",))
    assert caught.value.kind == "channel-unreachable"
    assert "127.0.0.1:9" in caught.value.message


def test_target_with_an_older_glibc_is_refused():
    with pytest.raises(EnvironmentBuildError) as caught:
        build_environment(Requirements(), python=need("3.8"), glibc="2.5")
    assert caught.value.kind == "glibc-too-old"


@pytest.mark.thorough
def test_builds_at_the_same_time_build_once(tmp_path):
    minor = need("3.10")
    with ThreadPoolExecutor(3) as pool:
        jobs = [
            pool.submit(build_environment, Requirements(pip=("six",)), python=minor, cache=tmp_path) for _ in range(3)
        ]
        assert sorted(job.result().fresh for job in jobs) == [False, False, True]


def test_killed_build_leaves_no_environment_and_the_next_one_cleans_up(tmp_path, packaged):
    minor = need("3.8")
    packaged(minor, tmp_path)
    code = (
        "from tests.built import build_environment; from envpack.requirements.model import Requirements; "
        f"build_environment(Requirements(pip=('six',)), python='{minor}')"
    )
    environment = os.environ | {"ENVPACK_CACHE_DIR": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment)
    wait_until(lambda: list(tmp_path.glob("environments/.*.partial/lib/python*")))
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not list(tmp_path.glob("environments/[!.]*"))
    assert build_environment(Requirements(pip=("six",)), python=minor, cache=tmp_path).fresh
    assert not list(tmp_path.glob("environments/.*.partial"))


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_full_disk_while_building_is_said_so(small_disk):
    with pytest.raises(StorageError) as caught:
        build_environment(Requirements(pip=("numpy",)), python=need("3.8"), cache=small_disk)
    assert caught.value.kind == "disk-full"
    assert not list(small_disk.glob("environments/[!.]*"))
    assert not list(small_disk.glob("*/.*partial*"))

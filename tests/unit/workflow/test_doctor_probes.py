"""Each probe says what is there, and what to do where something lacks; none keeps the others waiting."""

import gc
import os
import socket
import subprocess
import sys
import threading
import warnings

import pytest

from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import InputError
from envpack.workflow.doctor.host import PROBES, compiler, examine, pythons
from envpack.workflow.doctor.services import Observation, channels, containers, index


def of(folder, *channels):
    """A project that names channels."""
    return Project(repository=folder, settings=Settings(channels=channels))


@pytest.fixture
def project(tmp_path):
    return Project(repository=tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_configured(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_", "CONDA", "DOCKER")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


class TestExamine:
    def test_everything_is_looked_at_in_order(self, project):
        seen = examine(project, 30)
        assert all(observation.state in ("ok", "warn", "missing") and observation.what for observation in seen)
        assert all(observation.fix for observation in seen if observation.state != "ok")
        assert len(seen) >= len(PROBES)
        assert next(iter(seen)).name == "system"

    def test_a_blocked_probe_becomes_a_warning(self, project):
        released = threading.Event()
        probes = {"slow": lambda _: released.wait(), "fast": lambda _: [Observation("fast", "ok", "here")]}
        slow, fast = examine(project, 0.3, probes)
        released.set()
        assert (slow.name, slow.state, slow.what) == ("slow", "warn", "no response within 0.3 s")
        assert fast.state == "ok"

    def test_a_probe_that_fails_is_an_observation_too(self, project):
        def refuses(_):
            raise InputError("bad-condarc", "no", "correct it")

        def breaks(_):
            return 1 // 0

        refused, broken = examine(project, 5, {"a": refuses, "b": breaks})
        assert refused == Observation("a", "missing", "no", "correct it")
        assert (broken.state, "ZeroDivisionError" in broken.what) == ("warn", True)


class TestTools:
    def test_a_compiler_that_is_named_is_found_first(self, project, tmp_path, monkeypatch):
        (tmp_path / "mine").write_text("#!/bin/sh\necho my compiler 1.0\n")
        (tmp_path / "mine").chmod(0o755)
        monkeypatch.setenv("CXX", str(tmp_path / "mine"))
        (seen,) = compiler(project)
        assert (seen.state, seen.what) == ("ok", "my compiler 1.0")

    def test_the_pythons_of_this_machine_and_those_that_uv_lists_are_looked_at(self, project):
        (seen,) = pythons(project)
        assert seen.state in ("ok", "missing")


@pytest.fixture
def closed():
    """The address of a closed port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


class TestNetwork:
    def test_an_unreachable_channel(self, tmp_path, closed, monkeypatch):
        (seen,) = channels(of(tmp_path, closed))
        assert (seen.state, seen.what) == ("warn", f"{closed}: unreachable")
        monkeypatch.setenv("PIP_INDEX_URL", closed.replace("://", "://me:secret@"))
        (seen,) = index(Project(repository=tmp_path))
        assert (seen.state, seen.what) == ("warn", f"{closed}: unreachable")

    def test_the_default_index_behind_a_proxy_that_is_down(self, project, monkeypatch):
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        (seen,) = index(project)
        assert (seen.state, seen.what) == ("warn", "the default index of uv: unreachable")
        assert "UV_INDEX_URL" in seen.fix

    def test_the_default_index_is_checked_without_a_python_on_path(self, project, monkeypatch, tmp_path):
        """One that hangs would be said to be an index without a response."""
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        (tmp_path / "bin").mkdir()
        for program in ("python3", "python", "python3.7"):
            (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n: > {tmp_path}/started\n")
            (tmp_path / "bin" / program).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        (seen,) = index(project)
        assert (seen.state, (tmp_path / "started").exists()) == ("warn", False)

    def test_without_channels_the_pythons_of_this_machine_count(self, project):
        (seen,) = channels(project)
        assert (seen.state, "interpreters of this machine" in seen.what) == ("ok", True)


class TestContainers:
    def test_no_daemon(self, project, tmp_path, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        (seen,) = containers(project)
        assert (seen.state, "process" in seen.what) == ("warn", True)

    def test_a_socket_that_nobody_listens_at(self, project, tmp_path, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/dead.sock")
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "dead.sock"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the library leaves its socket to the garbage collector
            (seen,) = containers(project)
            gc.collect()
        assert seen.state == "warn"


class TestStorage:
    @pytest.mark.parametrize(
        ("options", "words"), [("noexec", "mounted noexec"), ("size=1m", "servers unpack archives there")]
    )
    def test_a_folder_that_servers_cannot_unpack_to(self, tmp_path, options, words):
        code = (
            "import sys; from pathlib import Path; from envpack.settings.project import Project;"
            "from envpack.settings.table import Settings;"
            "from envpack.workflow.doctor.host import shared_memory, temporary_folder; place = Path(sys.argv[1]);"
            "project = Project(repository=place);"
            "print(*temporary_folder(project, place), *shared_memory(project, place), sep='\\n')"
        )
        script = f'mount -t tmpfs -o {options} none "$1" && exec "$2" -c "$3" "$1"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", tmp_path, sys.executable, code]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("needs unshare")
        # unshare refuses in a root folder that is no mount point, as of chroot.
        if any(word in done.stderr for word in ("permitted", "denied", "propagation")):
            pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
        temporary, shared = done.stdout.splitlines()
        assert "state='warn'" in temporary
        assert words in temporary
        assert ("state='warn'" in shared) == (options == "size=1m")

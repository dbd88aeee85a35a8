"""Each probe says what is there, and what to do where something lacks; none keeps the others waiting."""

import gc
import os
import socket
import stat
import subprocess
import sys
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import InputError, StubError
from envpack.workflow.doctor import host as probes
from envpack.workflow.doctor.host import PROBES, cache, compiler, examine, gpu, pythons, shared_memory, system
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
    def test_this_machine(self, project):
        (seen,) = system(project)
        assert "glibc" in seen.what

    def test_a_compiler_that_is_named_is_found_first(self, project, tmp_path, monkeypatch):
        (tmp_path / "mine").write_text("#!/bin/sh\necho my compiler 1.0\n")
        (tmp_path / "mine").chmod(0o755)
        monkeypatch.setenv("CXX", str(tmp_path / "mine"))
        (seen,) = compiler(project)
        assert (seen.state, seen.what) == ("ok", "my compiler 1.0")

    @pytest.mark.parametrize(("prebuilt", "state"), [(("3.10",), "warn"), ((), "missing")])
    def test_tools_to_compile_matter_less_with_compiled_stubs(self, project, monkeypatch, prebuilt, state):
        def absent(*_):
            raise StubError("extra-missing", "it is missing", "install it")

        monkeypatch.setattr(probes, "prebuilt_pythons", lambda machine: prebuilt)
        monkeypatch.setattr(probes, "find_tool", absent)
        monkeypatch.setattr(probes, "find_toolchain", absent)
        monkeypatch.setattr(probes, "pybind11_folder", absent)
        seen = [*compiler(project), *probes.tools(project)]
        assert [(observation.name, observation.state, observation.fix) for observation in seen] == [
            (name, state, "install it") for name in ("compiler", "cmake", "ninja", "headers")
        ]

    def test_pythons_without_a_shared_library_are_listed(self, project):
        (seen,) = pythons(project)
        assert seen.state in ("ok", "missing")

    def test_without_a_python_what_to_do_is_said(self, project, monkeypatch):
        def absent(minor):
            raise InputError("python-missing", "none", f"install Python {minor}")

        monkeypatch.setattr(probes, "available_interpreters", lambda: ())
        monkeypatch.setattr(probes, "interpreter_here", absent)
        (seen,) = pythons(project.saying(Settings(python_preference="only-system")))
        assert (seen.name, seen.state) == ("Pythons", "missing")
        assert seen.what.startswith("none with a shared library; not installed: 3.6, 3.7")
        assert seen.fix == "install Python 3.6"

    def test_the_newest_python_that_can_be_fetched_stands_for_the_others(self, project, monkeypatch):
        offered = {"3.8": "https://old.example/3.8", "3.12": "https://new.example/3.12"}
        asked = []
        monkeypatch.setattr(probes, "available_interpreters", lambda: ())
        monkeypatch.setattr(probes, "fetchable", lambda _: offered)
        monkeypatch.setattr(probes, "unreachable", lambda url: asked.append(url) or "")
        (seen,) = pythons(project)
        assert asked == ["https://new.example/3.12"]
        assert (seen.state, "fetched from new.example when needed: 3.8, 3.12" in seen.what) == ("ok", True)


class Answers(BaseHTTPRequestHandler):
    requested: list[str]
    status = 200

    def do_HEAD(self):
        type(self).requested.append(self.path)
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def answering():
    """A server with a configurable HTTP status for every request."""
    handler = type("Answering", (Answers,), {"requested": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def closed():
    """The address of a closed port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


class TestNetwork:
    @pytest.mark.parametrize(
        ("status", "state", "words"),
        [(200, "ok", ""), (401, "warn", "credentials"), (404, "warn", "404"), (503, "warn", "503")],
    )
    def test_a_channel(self, tmp_path, answering, status, state, words):
        answering.status = status
        (seen,) = channels(of(tmp_path, f"{answering.address}/mine", "local"))
        assert answering.requested == ["/mine/noarch/repodata.json"]
        assert seen.state == state
        assert words in seen.what

    def test_channels_of_the_conda_configuration(self, project, tmp_path, answering):
        (tmp_path / ".condarc").write_text(f"channels: [forge, near]\nchannel_alias: {answering.address}/mirror\n")
        assert [seen.state for seen in channels(project)] == ["ok", "ok"]
        assert sorted(answering.requested) == [f"/mirror/{name}/noarch/repodata.json" for name in ("forge", "near")]

    def test_a_channel_in_a_folder(self, tmp_path):
        (tmp_path / "channel/noarch").mkdir(parents=True)
        (seen,) = channels(of(tmp_path, str(tmp_path / "channel")))
        assert seen.state == "ok"
        (seen,) = channels(of(tmp_path, str(tmp_path / "none")))
        assert (seen.state, "no such file or folder" in seen.what) == ("warn", True)

    def test_an_unreachable_channel(self, tmp_path, closed, monkeypatch):
        (seen,) = channels(of(tmp_path, closed))
        assert (seen.state, seen.what) == ("warn", f"{closed}: unreachable")
        monkeypatch.setenv("PIP_INDEX_URL", closed.replace("://", "://me:secret@"))
        (seen,) = index(Project(repository=tmp_path))
        assert (seen.state, seen.what) == ("warn", f"{closed}: unreachable")

    def test_the_default_index_behind_a_proxy_that_is_down(self, project, monkeypatch):
        for name in (
            "UV_DEFAULT_INDEX",
            "UV_INDEX_URL",
            "PIP_INDEX_URL",
            "UV_OFFLINE",
            "UV_NO_INDEX",
            "NO_PROXY",
            "no_proxy",
        ):
            monkeypatch.delenv(name, raising=False)
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        (seen,) = index(project)
        assert (seen.state, seen.what) == ("warn", "the default index of uv: unreachable")
        assert "UV_INDEX_URL" in seen.fix

    def test_the_index_that_is_configured(self, project, answering, monkeypatch):
        monkeypatch.setenv("UV_INDEX_URL", f"{answering.address}/simple/")
        (seen,) = index(project)
        assert (seen.state, answering.requested) == ("ok", ["/simple/numpy/"])

    def test_no_request_when_offline(self, tmp_path, closed, monkeypatch):
        monkeypatch.setenv("UV_OFFLINE", "1")
        monkeypatch.setenv("CONDA_OFFLINE", "true")
        (seen,) = index(Project(repository=tmp_path))
        assert (seen.state, "not checked" in seen.what) == ("ok", True)
        (seen,) = channels(of(tmp_path, closed))
        assert (seen.state, "not checked" in seen.what) == ("ok", True)

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


class TestGpu:
    # As /proc says it on machines with the driver, in its two kinds.
    VERSIONS = (
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root)\n", "570.124.06"),
        ("", "unknown"),
    )

    @pytest.mark.parametrize(("text", "version"), VERSIONS)
    def test_driver_and_devices(self, project, tmp_path, text, version):
        (tmp_path / "nvidiactl").touch()
        (tmp_path / "gpus/0000:01:00.0").mkdir(parents=True)
        (tmp_path / "gpus/0000:01:00.0/information").write_text("Model: \t\t NVIDIA H100\nIRQ: 1\n")
        (tmp_path / "version").write_text(text)
        (seen,) = gpu(project, tmp_path, tmp_path)
        assert (seen.state, seen.what) == ("ok", f"driver {version}: NVIDIA H100")

    def test_none(self, project, tmp_path):
        (seen,) = gpu(project, tmp_path, tmp_path)
        assert (seen.state, "CPU" in seen.what) == ("warn", True)


class TestStorage:
    def test_shared_memory(self, project, tmp_path):
        (seen,) = shared_memory(project)
        assert "free" in seen.what
        (seen,) = shared_memory(project, tmp_path / "none")
        assert seen.state == "missing"

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

    def test_a_cache_that_cannot_be_written_to(self, project, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "file/cache"))
        (seen,) = cache(project)
        assert (seen.state, "not writable" in seen.what) == ("missing", True)

    def test_a_cache_that_does_not_exist_yet(self, project, tmp_path, monkeypatch):
        monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "to/be/made"))
        (seen,) = cache(project)
        assert seen.what.startswith(str(tmp_path / "to/be/made"))
        assert not (tmp_path / "to").exists()

    def test_a_cache_on_another_file_system(self, project, monkeypatch):
        if os.stat("/dev/shm").st_dev == project.repository.stat().st_dev:
            pytest.skip("needs /dev/shm on another file system than the temporary folder")
        assert stat.S_ISDIR(os.stat("/dev/shm").st_mode)
        monkeypatch.setenv("ENVPACK_CACHE_DIR", "/dev/shm/envpack-doctor")
        (seen,) = cache(project)
        assert seen.state == "warn"

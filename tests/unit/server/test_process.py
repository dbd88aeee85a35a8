import os
import socket
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.server import launch, process
from envpack.server.launch import (
    ServerInstallation,
    find_server,
    install_server_command,
    library_path,
    link_backends,
    write_user_site_probe,
)
from envpack.server.process import ProcessRuntime
from envpack.support.errors import ServerError
from envpack.support.installation import install_beside, install_command
from tests.waiting import soon


def install(folder, script="exit 1"):
    """A fake installation whose server is a shell script."""
    (folder / "bin").mkdir(parents=True)
    (folder / "backends/python").mkdir(parents=True)
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        (folder / "backends/python" / name).write_text("")
    server = folder / "bin/tritonserver"
    server.write_text(f"#!/bin/sh\n{script}\n")
    server.chmod(0o755)
    return folder


def test_a_server_is_found_by_folder_program_or_path(tmp_path, monkeypatch):
    home = install(tmp_path / "triton")
    program = home / "bin/tritonserver"
    assert find_server(home).executable == program
    assert find_server(program).executable == program
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert find_server().executable == program


def test_another_user_can_read_the_probe_of_the_user_site(tmp_path):
    before = os.umask(0o077)
    try:
        write_user_site_probe(tmp_path)
    finally:
        os.umask(before)
    for place in (tmp_path / ".local").rglob("*"):
        assert stat.S_IMODE(place.stat().st_mode) == (0o755 if place.is_dir() else 0o444), place


def test_a_wheel_has_its_release_in_every_folder(tmp_path):
    install(tmp_path / "pytriton/tritonserver")
    installed = tmp_path / "nvidia_pytriton-0.5.3.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: nvidia-pytriton\nVersion: 0.5.3\n")
    (tmp_path / "nvidia_pytriton.libs").mkdir()
    found = find_server(tmp_path / "pytriton/tritonserver")
    assert (found.release, found.library_path) == ("24.02", str(tmp_path / "nvidia_pytriton.libs"))


def test_libraries_in_a_folder_with_blanks_are_named_by_a_link_without(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for name in ("my packages", "packages"):
        install(tmp_path / name / "pytriton/tritonserver")
        libraries = tmp_path / name / "nvidia_pytriton.libs"
        libraries.mkdir()
        found = find_server(tmp_path / name / "pytriton/tritonserver")
        named = {library_path(found, home) for _attempt in range(2)}
        assert {Path(place).resolve() for place in named} == {libraries}
        assert named == {str(home / "libraries" if " " in name else libraries)}


def test_the_error_of_a_missing_server_says_how_to_install_one(tmp_path):
    with pytest.raises(ServerError) as caught:
        find_server(tmp_path / "nowhere")
    assert (caught.value.kind, caught.value.where) == ("server-missing", str(tmp_path / "nowhere"))
    assert caught.value.hint.endswith(f": {install_server_command()}")


def test_the_server_comes_without_packages_that_have_no_wheel_for_a_python(monkeypatch):
    monkeypatch.setattr(launch.sys, "version_info", (3, 12, 9))
    assert install_server_command() == install_command("server")
    monkeypatch.setattr(launch.sys, "version_info", (3, 13, 0))
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert install_server_command() == install_beside("--no-deps", *project["optional-dependencies"]["server"])


def test_a_server_without_the_python_backend_is_rejected(tmp_path):
    home = install(tmp_path / "triton")
    (home / "backends/python/libtriton_python.so").unlink()
    with pytest.raises(ServerError) as caught:
        find_server(home)
    assert caught.value.message == "this server has no libtriton_python.so in backends/python"
    assert (caught.value.kind, caught.value.where) == ("server-missing", str(home))


def test_backends_are_links_and_always_have_a_default_stub(tmp_path):
    extra = tmp_path / "extra/python_3_8"
    extra.mkdir(parents=True)
    (extra / "triton_python_backend_stub").write_text("")
    (extra / "triton_python_backend_utils.py").symlink_to("../python/triton_python_backend_utils.py")
    installation = find_server(install(tmp_path / "triton"))
    assert link_backends(installation, tmp_path / "b", extra.parent) == ("python", "python_3_8")
    stub = tmp_path / "b/python/triton_python_backend_stub"
    assert stat.S_IMODE(stub.stat().st_mode) == 0o755
    assert (tmp_path / "b/python_3_8/triton_python_backend_utils.py").resolve().is_relative_to(tmp_path / "triton")


def test_a_server_that_takes_the_rights_to_read_a_stub_does_not_take_them_from_the_installed_one(tmp_path, monkeypatch):
    """It does that to each stub that ends with another status than 1 when it is run without arguments."""
    installed = install(tmp_path / "it's triton") / "backends/python/triton_python_backend_stub"
    of_user = tmp_path / "extra/python_3_8/triton_python_backend_stub"
    of_user.parent.mkdir(parents=True)
    for stub in (installed, of_user):
        stub.write_text('#!/bin/sh\necho "$0" "$@"; exit 127\n')
        stub.chmod(0o755)
    for is_noexec in (False, True):
        backends = tmp_path / f"b{is_noexec}"
        monkeypatch.setattr(os, "statvfs", lambda _, no=is_noexec: SimpleNamespace(f_flag=os.ST_NOEXEC if no else 0))
        link_backends(find_server(tmp_path / "it's triton"), backends, tmp_path / "extra")
        for stub, folder in ((installed, "python"), (of_user, "python_3_8")):
            placed = backends / folder / stub.name
            assert placed.is_symlink() == is_noexec  # no program can be run there
            if is_noexec:
                continue
            placed.chmod(0o500)
            assert stat.S_IMODE(stub.stat().st_mode) == 0o755
            assert subprocess.run([placed], check=False).returncode == 1
            ran = subprocess.run([placed, "a b", "c"], check=False, capture_output=True, text=True)
            assert (ran.stdout, ran.returncode) == (f"{stub} a b c\n", 127)


@pytest.mark.parametrize("is_noexec", [True, False])
def test_the_library_is_a_copy_unless_it_cannot_be_run_there(tmp_path, monkeypatch, is_noexec):
    """A server refuses a link that leads out of a backend's folder, if a model names the library as its `runtime`."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC if is_noexec else 0))
    extra = tmp_path / "extra/python_3_8"
    extra.mkdir(parents=True)
    (extra / "triton_python_backend_stub").write_text("")
    link_backends(find_server(install(tmp_path / "triton")), tmp_path / "b", extra.parent)
    libraries = [tmp_path / "b/python/libtriton_python.so", tmp_path / "b/python_3_8/libtriton_python_3_8.so"]
    assert [library.is_symlink() for library in libraries] == [is_noexec, is_noexec]
    assert all(library.is_file() for library in libraries)


def test_other_backends_of_the_server_and_of_the_user_are_links(tmp_path):
    home = install(tmp_path / "triton")
    for folder, file in {
        home / "backends/onnxruntime": "libtriton_onnxruntime.so",
        home / "backends/identity": "libtriton_identity.so",
        home / "backends/notes": "README",
        tmp_path / "extra/identity": "libtriton_identity.so",
        tmp_path / "extra/vllm": "model.py",
    }.items():
        folder.mkdir(parents=True)
        (folder / file).write_text("")
    assert link_backends(find_server(home), tmp_path / "without", home) == ("python",)
    assert link_backends(find_server(home), tmp_path / "b", tmp_path / "extra") == ("python",)
    links = {link.name: link.resolve() for link in (tmp_path / "b").iterdir() if link.is_symlink()}
    assert links == {
        "onnxruntime": home / "backends/onnxruntime",
        "identity": tmp_path / "extra/identity",
        "vllm": tmp_path / "extra/vllm",
    }


def test_the_error_of_a_server_that_dies_at_start_has_its_last_lines(tmp_path):
    runtime = ProcessRuntime(find_server(install(tmp_path / "triton", "echo cannot do this; exit 3")))
    with pytest.raises(ServerError) as caught, runtime.start(tmp_path):
        pass
    assert caught.value.kind == "server-failed"
    assert caught.value.message.endswith("\ncannot do this")


def test_the_stack_of_a_server_that_crashes_at_start_hides_neither_reason_nor_fix(tmp_path):
    reason = "what():  Resource temporarily unavailable"
    crash = [reason, "Signal (6) received.", *(f"{at:2}# 0x00007F7C in /lib/libc.so.6" for at in range(16))]
    body = "\n".join(f"echo '{line}'" for line in crash) + "\nexit 134"
    runtime = ProcessRuntime(find_server(install(tmp_path / "triton", body)))
    with pytest.raises(ServerError, match="Signal \\(6\\) received") as caught, runtime.start(tmp_path):
        pass
    assert reason in caught.value.message
    assert "ulimit -u" in caught.value.hint


def test_arguments_reach_the_server_and_an_unresponsive_one_is_stopped(tmp_path, monkeypatch):
    """The time limit begins when the server has printed its line."""
    wait = process._wait_until_live

    def wait_later(server, seconds):
        assert soon(lambda: "last" in server.log())
        return wait(server, seconds)

    monkeypatch.setattr(process, "_wait_until_live", wait_later)
    program = 'while [ "$1" != --more ]; do shift; done; echo "last $*"; exec sleep 60'
    installation = find_server(install(tmp_path / "triton", program))
    runtime = ProcessRuntime(installation, arguments=("--more",), start_seconds=0.1)
    with pytest.raises(ServerError, match="last --more --log-format=default --log-file= "), runtime.start(tmp_path):
        pass


def test_a_port_in_use_is_an_error(tmp_path):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        runtime = ProcessRuntime(find_server(install(tmp_path / "triton")), port=port)
        with pytest.raises(ServerError, match=f"port {port} is in use") as caught, runtime.start(tmp_path):
            pass
    assert caught.value.kind == "port-taken"


def test_another_port_is_used_if_the_selected_one_was_taken(tmp_path):
    count = tmp_path / "count"
    script = f'echo x >> {count}; echo "Address already in use"; exit 1'
    runtime = ProcessRuntime(
        ServerInstallation(install(tmp_path / "t", script) / "bin/tritonserver", tmp_path / "t/backends")
    )
    with pytest.raises(ServerError) as caught, runtime.start(tmp_path):
        pass
    assert caught.value.kind == "port-taken"
    assert len(count.read_text().split()) == 5


def test_stubs_of_models_have_their_modes_again_after_the_server(tmp_path):
    repository, modes = tmp_path / "models", {"one": 0o755, "other": 0o644, "kept": 0o755}
    for name, mode in modes.items():
        (repository / name).mkdir(parents=True)
        (repository / name / "triton_python_backend_stub").touch(mode)
    script = f"cd {repository} && chmod 100 one/* other/*; rm kept/*; echo broken; exit 1"
    runtime = ProcessRuntime(find_server(install(tmp_path / "t", script)))
    with pytest.raises(ServerError), runtime.start(repository):
        pass
    left = {file.parent.name: stat.S_IMODE(file.stat().st_mode) for file in repository.glob("*/*")}
    assert left == {"one": 0o755, "other": 0o644}


def test_importing_is_light():
    code = "import sys, envpack.verification, envpack.repository; print([m for m in ('requests', 'google.protobuf', 'numpy') if m in sys.modules])"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

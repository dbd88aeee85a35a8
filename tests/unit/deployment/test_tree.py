import json
import os
import signal
import subprocess
import sys

import pytest

from envpack.deployment.folder import MANIFEST_NAME, assemble
from envpack.deployment.plan import plan_deployment
from envpack.inspection.repository import inspect_repository
from envpack.support.errors import InputError


@pytest.fixture
def plan(project, release):
    return plan_deployment(project)


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_tree_has_models_and_backends(plan, tmp_path):
    output = tmp_path / "tree"
    assemble(plan, output)
    assert everything(output / "backends") == [
        "python_3_8",
        *(f"python_3_8/{name}" for name in ("libtriton_python_3_8.so", "model.py")),
        *(f"python_3_8/triton_python_backend_{name}" for name in ("stub", "utils.py")),
    ]
    assert everything(output / "models/late") == [
        *("1", "1/model.py", "config.pbtxt"),
        *("python3.8", "python3.8/bin", "python3.8/bin/.hidden", "python3.8/lib"),
        "triton_python_backend_stub",
    ]
    assert os.listdir(output / "models/both/1") == []
    library = output / "backends/python_3_8/libtriton_python_3_8.so"
    assert os.readlink(library) == "../python/libtriton_python.so"


def test_the_dockerfile_copies_what_the_tree_has_to_where_the_server_reads_it(plan, project, release, tmp_path):
    assemble(plan, tmp_path / "tree")
    assert (tmp_path / "tree/Dockerfile").read_text().splitlines() == [
        f"ARG BASE={release.image}",
        "FROM $BASE",
        'COPY ["models", "/models/"]',
        'COPY ["envpack-layout.json", "/opt/envpack/envpack-layout.json"]',
        'COPY ["backends", "/opt/tritonserver/backends/"]',
        "ENV PYTHONNOUSERSITE=1",
        'CMD ["tritonserver", "--model-repository=/models"]',
    ]
    without_backends = plan_deployment(project, ["late"], served_from="/srv/$x/")
    assemble(without_backends, tmp_path / "tree")
    lines = (tmp_path / "tree/Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("COPY")] == [
        'COPY ["models", "/srv/\\\\$x/"]',
        'COPY ["envpack-layout.json", "/opt/envpack/envpack-layout.json"]',
    ]
    assert lines[-1] == 'CMD ["tritonserver", "--model-repository=/srv/$x"]'


def test_an_ensemble_gets_the_version_folder_that_git_did_not_keep(project, tmp_path):
    (project.repository / "both/1").rmdir()
    assemble(plan_deployment(project), tmp_path / "tree")
    assert everything(tmp_path / "tree/models/both") == ["1", "config.pbtxt"]
    assert everything(project.repository / "both") == ["config.pbtxt"]


def test_an_ensemble_gets_a_version_that_its_policy_allows(project, tmp_path):
    (project.repository / "both/1").rmdir()
    config = project.repository / "both/config.pbtxt"
    config.write_text(f"{config.read_text()}version_policy {{ specific {{ versions: [3, 2] }} }}\n")

    def missing():
        findings = inspect_repository(project, project.release, ["both"]).findings
        return [finding for finding in findings if finding.kind == "version-missing"]

    (found,) = missing()
    assert found.fix.startswith(f"mkdir {project.repository}/both/3,")
    assemble(plan_deployment(project, ["both"]), tmp_path / "tree")
    assert everything(tmp_path / "tree/models/both") == ["3", "config.pbtxt"]
    (project.repository / "both/3").mkdir()
    assert not missing()


def test_only_environments_are_linked(plan, project, tmp_path):
    output = tmp_path / "tree"
    assemble(plan, output, link_mode="hardlink")

    def same(name):
        return (output / "models/late" / name).samefile(project.repository / "late" / name)

    assert same("python3.8/bin/.hidden")
    assert not same("triton_python_backend_stub")
    assert not same("config.pbtxt")
    assert not same("1/model.py")
    assemble(plan, output, link_mode="copy")
    assert not same("python3.8/bin/.hidden")


def test_every_user_can_read_the_tree_whatever_the_umask(plan, project, tmp_path):
    (project.repository / "late/1/model.py").chmod(0o600)
    (project.repository / "late/1/program").write_text("#!/bin/sh\n")
    (project.repository / "late/1/program").chmod(0o700)
    before = os.umask(0o077)
    assemble(plan, tmp_path / "tree")
    os.umask(before)
    modes = {
        str(path.relative_to(tmp_path / "tree")): path.stat().st_mode & 0o777
        for path in (tmp_path / "tree").rglob("*")
        if not path.is_symlink()
    }
    assert {mode for name, mode in modes.items() if (tmp_path / "tree" / name).is_dir()} == {0o755}
    assert modes["models/late/1/model.py"] == modes[MANIFEST_NAME] == 0o644
    assert modes["models/late/1/program"] == 0o755


def test_files_are_copied_across_file_systems(plan, other_file_system):
    manifest = assemble(plan, other_file_system / "tree")
    assert manifest["files"] > 8
    assert (other_file_system / "tree/models/late/python3.8/bin/.hidden").read_text() == "activate"


def test_an_earlier_tree_is_replaced(plan, tmp_path):
    output = tmp_path / "tree"
    assemble(plan, output)
    (output / "models/old").mkdir()
    assemble(plan, output)
    assert not (output / "models/old").exists()


# Assembles a tree, and kills itself before the operation on files with this number; prints how many there are.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from envpack.deployment.folder import assemble
from envpack.deployment.plan import plan_deployment
from envpack.settings.project import Project
from envpack.settings.releases import find_release
from envpack.repository.placement import backends_folder

project = Project(repository=Path(sys.argv[1]))
plan = plan_deployment(project)
place, operations = int(sys.argv[3]), 0


def count(event, arguments):
    global operations
    operations += event.startswith(("open", "os.", "shutil.", "ctypes."))
    if operations == place and event != "os.kill":
        os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(count)
assemble(plan, Path(sys.argv[2]))
print(operations)
"""
PLACES = 8


def test_a_kill_leaves_a_complete_tree(plan, project, tmp_path):
    output = tmp_path / "parent/tree"
    for number in range(200):
        (project.repository / f"late/1/{number}").write_text("x")
    manifest = assemble(plan, output)

    def killed_at(place):
        command = [sys.executable, "-c", PROGRAM, project.repository, output, str(place)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    operations = int(killed_at(0).stdout)
    assert operations > 200
    for part in range(1, PLACES + 1):
        done = killed_at(operations * part // PLACES)
        assert done.returncode == -signal.SIGKILL, done
        assert json.loads((output / MANIFEST_NAME).read_text()) == manifest
        assert len(os.listdir(output / "models/late/1")) == 201
    assemble(plan, output)
    assert os.listdir(output.parent) == ["tree"]


@pytest.mark.parametrize("target", ["..", "../..", "/"])
def test_a_link_to_a_folder_that_contains_it_is_refused(target, plan, project, tmp_path):
    (project.repository / "both/1/again").symlink_to("../../late")
    (project.repository / "late/1/again").symlink_to(target)
    with pytest.raises(InputError) as caught:
        assemble(plan, tmp_path / "tree")
    assert caught.value.kind == "endless-link"
    assert not list(tmp_path.glob("*tree*"))


def test_a_folder_may_be_named_by_two_links(plan, project, tmp_path):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "w.bin").write_bytes(b"w")
    for name in ("first", "second"):
        (project.repository / "late/1" / name).symlink_to(weights)
    assemble(plan, tmp_path / "tree")
    assert (tmp_path / "tree/models/late/1/second/w.bin").read_bytes() == b"w"

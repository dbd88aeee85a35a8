"""The findings in a repository: models, configurations, files and links."""

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from envpack.inspection.repository import inspect_repository, is_repository
from envpack.repository.config_editor import set_backend, set_string_parameter
from envpack.repository.placement import in_model_folder
from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.support.errors import InputError
from tests.unit.inspection.findings import kinds, name_environment


def test_a_good_repository_has_no_findings(project, release):
    found = inspect_repository(project, release)
    assert found.findings == ()
    assert found.models == ("both", "one", "two")
    assert found.ok


@pytest.fixture
def unprivileged():
    """A folder in the system's for temporary files, and a user who must obey the modes of files."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        user = os.geteuid()
        yield Path(folder), (lambda: os.seteuid(65534) if user == 0 else None)
        os.seteuid(user)


def test_a_model_that_cannot_be_read_does_not_hide_the_others(release, unprivileged):
    repository, become_nobody = unprivileged
    for name in ("config", "folder", "loose"):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text('backend: "python"\n')
    (repository / "config/config.pbtxt").chmod(0)
    (repository / "folder").chmod(0)
    become_nobody()
    found = inspect_repository(Project(repository=repository), release)
    assert [(finding.kind, finding.where, finding.fix) for finding in found.findings] == [
        ("unreadable", repository / "config/config.pbtxt", f"make it readable: `chmod -R u+rX {repository}/config`"),
        ("unreadable", repository / "folder", f"make it readable: `chmod -R u+rX {repository}/folder`"),
        ("model-without-code", repository / "loose/1", found.findings[-1].fix),
    ]


def test_the_folder_of_a_file_system_that_only_root_may_read_is_no_model(release, unprivileged):
    repository, become_nobody = unprivileged
    (repository / "lost+found").mkdir(mode=0o700)
    become_nobody()
    found = inspect_repository(Project(repository=repository), release)
    assert found.models == ()
    assert [(finding.kind, finding.where) for finding in found.findings] == [
        ("stray-folder", repository / "lost+found")
    ]


def test_a_folder_of_a_model_that_cannot_be_entered_is_no_other_folder(release, unprivileged):
    """As after `chmod -R 644`: its files are listed, and Python 3.14 finds none of them."""
    repository, become_nobody = unprivileged
    for name in ("model", "version"):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1/model.py").touch()
        (repository / name / "config.pbtxt").write_text('backend: "python"\n')
    (repository / "model").chmod(0o644)
    (repository / "version/1").chmod(0o644)
    become_nobody()
    found = inspect_repository(Project(repository=repository), release)
    assert [(finding.kind, finding.fix) for finding in found.findings] == [
        ("unreadable", f"make it readable: `chmod -R u+rX {repository}/model`"),
        ("unreadable", f"make it readable: `chmod -R u+rX {repository}/version`"),
    ]


def test_a_backend_that_cannot_be_read_is_to_be_made_readable_where_it_is(release, unprivileged):
    folder, become_nobody = unprivileged
    (folder / "models/m/1").mkdir(parents=True)
    (folder / "models/m/config.pbtxt").write_text('backend: "python_3_8"\n')
    (folder / "models/m/1/model.py").touch()
    backend = folder / "backends/python_3_8"
    backend.mkdir(parents=True)
    backend.chmod(0)
    become_nobody()
    project = Project(repository=folder / "models", said=Settings(backends=folder / "backends"))
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.fix) == ("unreadable", f"make it readable: `chmod -R u+rX {backend}`")


def test_an_endless_link_is_named(project, release):
    endless_link(project.repository / "one")
    (finding,) = inspect_repository(project, release, ["one"]).findings
    assert finding.where == project.repository / "one/1/again"
    what = "this is a link to a folder that contains it: servers walk it many times, and it cannot be deployed"
    assert (finding.what, finding.fix) == (what, "remove the link, or let it name only what the model needs")


def test_modes_are_not_blamed_for_a_file_that_is_too_large(project, release):
    config = project.repository / "one/config.pbtxt"
    with config.open("r+b") as file:
        file.truncate(1 << 40)
    (finding,) = (found for found in inspect_repository(project, release, ["one"]).findings if found.where == config)
    assert (finding.kind, finding.fix) == ("unreadable", "replace it by a file that can be read, or remove it")
    assert finding.what == "cannot be read: it is larger than 4194304 bytes"


def test_an_ensemble_of_a_model_that_cannot_be_read(project, release, permissions_for_root):
    (project.repository / "two/config.pbtxt").chmod(0)
    assert inspect_repository(project, release, ["both"]).findings == ()


def test_settings_for_a_model_that_is_not_there_are_a_warning(project, release):
    named = dataclasses.replace(project, models={"one": Settings(), "oen": Settings()})
    found = inspect_repository(named, release)
    (finding,) = found.findings
    assert (finding.kind, finding.severity, finding.where) == ("settings-unused", "warning", project.file)
    assert finding.what == "[models.oen] is for a model that the repository does not have"
    assert inspect_repository(named, release, ["one"]).findings == (), "of a single model, nothing is said of others"


def test_a_parameter_that_no_stub_reads_is_a_warning(project, release):
    config = project.repository / "one/config.pbtxt"
    for name, value in (("ENVPACK_RESTART", "3"), ("ENVPACK_RESTARTS", "3"), ("restart", "x")):
        config.write_text(set_string_parameter(config.read_text(), name, value, config))
    (finding,) = inspect_repository(project, release, ["one"]).findings
    assert (finding.kind, finding.severity, finding.where) == ("settings-unused", "warning", config)
    assert finding.what == "no stub reads the parameter ENVPACK_RESTART"


def test_repositories_and_environments_are_distinguished(project, environment, tmp_path):
    assert is_repository(project.repository)
    assert not is_repository(environment)
    assert not is_repository(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert not is_repository(tmp_path / "empty")
    (tmp_path / "empty/envpack.toml").touch()
    assert is_repository(tmp_path / "empty")


def stray(model):
    (model.parent / "notes").mkdir()


def hidden(model):
    (model.parent / ".git").mkdir()


def broken_link_beside(model):
    (model.parent / ".#envpack.toml").symlink_to("me@host.17")  # as Emacs locks a file


def odd_version(model):
    (model / "2tmp").mkdir()
    (model / "2tmp/model.py").touch()


def empty_version(model):
    (model / "2").mkdir()


def no_code(model):
    (model / "1/model.py").unlink()


def broken_config(model):
    (model / "config.pbtxt").write_text("nonsense {")


def config_of_a_newer_server(model):
    (model / "config.pbtxt").write_text('backend: "python"\nno_such_field: 1\n')


def other_name(model):
    with (model / "config.pbtxt").open("a") as config:
        config.write('name: "other"\n')


def no_environment(model):
    shutil.rmtree(model / "env")


def unusable_environment(model):
    (model / "env/bin/activate").unlink()


def environment_without_libpython(model):
    next((model / "env/lib").glob("libpython*")).unlink()


def relative_environment(model):
    text = (model / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(text.replace("$$TRITON_MODEL_DIRECTORY/", ""))


def keyword_in_the_middle(model):
    text = (model / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(text.replace("$$TRITON", "/tmp/$$TRITON"))


def spaced_environment(model):
    (model / "env").rename(model / "my env")
    name_environment(model, in_model_folder("my env"))


def private_code(model):
    (model / "1/model.py").chmod(0o600)


def private_model(model):
    model.chmod(0o700)


def private_folder_of_an_environment(model):
    (model / "env/lib").chmod(0o750)


def changed_environment(model):
    listed = ["bin/activate", "file", "x", 99, "0" * 64, "", ""]
    (model / "env/envpack-files.json").write_text(json.dumps({"schema": 1, "files": [listed]}))
    (model / "env/envpack-environment.json").write_text(json.dumps({"key": "key"}))


def broken_link(model):
    (model / "1/weights").symlink_to("/nowhere/weights")


def endless_link(model):
    (model / "1/again").symlink_to("..")
    (model / "env/bin").mkdir(exist_ok=True)
    (model / "env/bin/X11").symlink_to(".")  # as packages of an environment have them


def no_step(model):
    shutil.rmtree(model)


def unknown_backend(model):
    config = model / "config.pbtxt"
    config.write_text(set_backend(config.read_text(), "python_3_10", config))


def not_a_stub(model):
    (model / "triton_python_backend_stub").write_text("#!/bin/sh\nexit 1\n")
    (model / "triton_python_backend_stub").chmod(0o755)


def dangling_stub(model):
    (model / "triton_python_backend_stub").symlink_to("../stub")


BREAKS = {
    stray: [("error", "stray-folder")],
    hidden: [("error", "stray-folder")],
    broken_link_beside: [("error", "broken-link")],
    odd_version: [("error", "odd-version")],
    empty_version: [("error", "model-without-code")],
    no_code: [("error", "model-without-code")],
    broken_config: [("error", "bad-config")],
    config_of_a_newer_server: [("error", "bad-config")],
    other_name: [("error", "model-name-mismatch")],
    no_environment: [("error", "environment-missing")],
    unusable_environment: [("error", "environment-unusable")],
    environment_without_libpython: [("warning", "libpython-missing")],
    relative_environment: [("error", "bad-environment-path")],
    keyword_in_the_middle: [("error", "bad-environment-path")],
    spaced_environment: [("error", "bad-path")],
    private_code: [("warning", "not-for-everybody")],
    changed_environment: [("error", "environment-changed")],
    private_model: [("warning", "not-for-everybody")],
    private_folder_of_an_environment: [("warning", "not-for-everybody")],
    broken_link: [("error", "broken-link")],
    endless_link: [("warning", "endless-link")],
    no_step: [("error", "step-missing")],
    unknown_backend: [("error", "backend-missing")],
    not_a_stub: [("error", "not-a-stub")],
    dangling_stub: [("error", "broken-link"), ("error", "not-a-stub")],
}


@pytest.mark.parametrize("change", BREAKS, ids=lambda change: change.__name__)
def test_each_kind_of_damage_is_found(project, release, change):
    change(project.repository / "one")
    assert kinds(project, release) == BREAKS[change]


def test_the_hint_for_a_step_whose_folder_has_another_name_makes_it_found(project, release):
    config = project.repository / "one/config.pbtxt"
    config.write_text(f'name: "one"\n{config.read_text()}')
    config.parent.rename(project.repository / "uno")
    fixes = {finding.kind: finding.fix for finding in inspect_repository(project, release).findings}
    assert fixes["step-missing"] == "rename the folder uno to one"
    (project.repository / "uno").rename(project.repository / "one")
    assert kinds(project, release) == []


def test_an_environment_may_lie_in_the_folder_of_another_model(project, release):
    """The servers from 23.04 to 24.10 that were tried resolve such a path, and published models share archives so."""
    one = project.repository / "one"
    (one / "env").rename(project.repository / "two/of_one")
    text = (one / "config.pbtxt").read_text()
    (one / "config.pbtxt").write_text(text.replace(in_model_folder("env"), in_model_folder("../two/of_one")))
    assert kinds(project, release) == []


def test_no_shell_gets_the_path_of_an_archive(project, release):
    """The server of Triton 24.10 unpacks it."""
    spaced_environment(project.repository / "one")
    shutil.rmtree(project.repository / "one/my env")
    (project.repository / "one/my env").write_bytes(b"no archive")
    assert kinds(project, release) == [("error", "archive-unsupported")]


@pytest.mark.parametrize("link", [".", "one", "one/env"])
def test_a_link_to_an_environment_by_a_path_that_a_shell_splits(project, release, tmp_path, link):
    """A server hangs with it; it takes the model's own path as it is written."""
    linked, spaced = project.repository / link, tmp_path / "my files"
    linked.rename(spaced)
    linked.symlink_to(spaced)
    finding = inspect_repository(project, release, ["one"]).findings[0]
    environment = project.repository / "one/env"
    assert (finding.kind, finding.severity, finding.where) == ("bad-path", "error", environment)
    real = str(environment.resolve())
    assert finding.what == f"links lead to {real!r}, which contains ' ', and servers pass it to a shell unquoted"
    elsewhere = dataclasses.replace(project, said=Settings(served_from="/models"))
    assert inspect_repository(elsewhere, release, ["one"]).findings == ()


def test_all_problems_are_found_at_once_with_a_fix(project, release):
    one, two = project.repository / "one", project.repository / "two"
    together = [stray, spaced_environment, other_name, private_code, broken_link, not_a_stub, odd_version]
    for change in together:
        change(one)
    broken_config(two)
    found = inspect_repository(project, release)
    expected = {kind for change in (*together, broken_config) for _, kind in BREAKS[change]}
    assert {finding.kind for finding in found.findings} == expected
    assert all(finding.what and finding.fix and finding.where.is_absolute() for finding in found.findings)
    assert not found.ok


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 36000000\n"


class TestPointers:
    """A file that git-lfs did not fetch is reported as such, and not as a damaged stub or archive as well."""

    def pointers(self, project, release):
        return [
            (f.kind, f.where.name, f.what.partition("itself")[2]) for f in inspect_repository(project, release).findings
        ]

    def test_a_stub(self, project, release):
        (project.repository / "one/triton_python_backend_stub").write_text(POINTER)
        (project.repository / "one/triton_python_backend_stub").chmod(0o755)
        assert self.pointers(project, release) == [("lfs-pointer", "triton_python_backend_stub", "")]

    def test_an_archive_in_the_model_and_other_files(self, project, release):
        one = project.repository / "one"
        shutil.rmtree(one / "env")
        for name in ("env.tar.gz", "1/weights.bin"):
            (one / name).write_text(POINTER)
        name_environment(one, in_model_folder("env.tar.gz"))
        assert self.pointers(project, release) == [("lfs-pointer", "env.tar.gz", " (and 1 more)")]

    def test_an_archive_outside_of_the_model(self, project, release, tmp_path):
        (tmp_path / "env.tar.gz").write_text(POINTER)
        name_environment(project.repository / "one", str(tmp_path / "env.tar.gz"))
        assert self.pointers(project, release) == [("lfs-pointer", "env.tar.gz", "")]


def test_named_models_and_a_missing_one(project, release):
    stray(project.repository / "one")
    broken_config(project.repository / "two")
    assert kinds(project, release, names=["one"]) == []
    with pytest.raises(InputError) as caught:
        inspect_repository(project, release, ["none"])
    assert caught.value.kind == "model-missing"


def test_an_ensemble_without_a_version_folder(project, release):
    (project.repository / "both/1").rmdir()
    (finding,) = inspect_repository(project, release).findings
    assert (finding.kind, finding.where) == ("version-missing", project.repository / "both")
    assert finding.fix.startswith(f"mkdir {project.repository}/both/1,")
    (project.repository / "both/1").mkdir()
    assert kinds(project, release) == []

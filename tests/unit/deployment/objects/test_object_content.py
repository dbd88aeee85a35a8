"""The objects of a repository: their order and content, and what is refused, with its place and a remedy."""

import os
import shutil

import pytest

from envpack.deployment.objects import content as module
from envpack.deployment.objects.content import PublishedFile, packages_of, published_files
from envpack.deployment.plan import plan_deployment
from envpack.settings.table import Settings
from envpack.support.errors import InputError
from envpack.support.progress import NoProgress
from tests.tables import every_row


@pytest.fixture
def late(repository, tmp_path):
    """The plan of the model whose environment is an archive already."""
    return lambda: plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")), ["late"])


def published(plan):
    with published_files(plan, NoProgress()) as found:
        return found


def refused(plan):
    with pytest.raises(InputError) as raised:
        published(plan)
    error = raised.value
    return error.kind, error.message, error.hint, error.where


@every_row(
    ("path", "visible"),
    [
        ("m/config.pbtxt", True),
        ("m/configs/small.pbtxt", True),
        ("m/1/model.py", True),
        ("m/2/model.onnx", True),
        ("m/1/model.savedmodel/x", True),
        ("m/1/helper.py", False),
        ("m/model.py", False),
        ("m/0/model.py", True),
        ("m/weights.bin", False),
        ("config.pbtxt", False),
    ],
)
def test_what_a_server_acts_on_is_visible(path, visible):
    assert PublishedFile(path).is_visible is visible


def test_a_version_comes_after_its_configurations_and_all_after_the_content():
    paths = [
        "b/1/model.py",
        "b/config.pbtxt",
        "b/configs/x.pbtxt",
        "a/config.pbtxt",
        "b/1/z",
        "a/1/y",
        "late/config.pbtxt",
    ]
    files = [PublishedFile(path) for path in paths]
    ordered = [file.path for file in sorted(files, key=lambda file: module._turn(file, {"late"}))]
    assert ordered == [
        *("a/1/y", "b/1/z"),
        *("a/config.pbtxt", "b/configs/x.pbtxt", "b/config.pbtxt", "b/1/model.py"),
        "late/config.pbtxt",
    ]


def test_an_archive_beside_the_model_is_sent_as_it_is_under_a_name_of_its_content(late, repository):
    found = published(late())
    archive = repository.repository / "late/python3.8.tar.gz"
    (file,) = (file for file in found.files if file.file == archive)
    assert file.path == f"late/python3.8-{file.sha256[:12]}.tar.gz"
    configuration = next(file.content.decode() for file in found.files if file.path == "late/config.pbtxt")
    assert f"$$TRITON_MODEL_DIRECTORY/{file.path.removeprefix('late/')}" in configuration
    assert not [file for file in found.files if "python3.8.tar.gz" in file.path]
    assert (found.triton, found.late, found.digest) == ("24.10", frozenset(), "")


@pytest.mark.parametrize("kind", ["pipe", "broken link"])
def test_what_is_no_file_is_named_with_a_remedy(late, repository, kind):
    odd = repository.repository / "late/1/odd"
    os.mkfifo(odd) if kind == "pipe" else odd.symlink_to("nowhere")
    assert refused(late()) == (
        "special-file",
        "this is neither a file nor a folder, and cannot be deployed",
        "remove it: a pipe, a socket, a device or a broken link serves no model",
        str(odd),
    )


def test_a_link_to_a_folder_around_it_is_named_with_a_remedy(late, repository):
    (repository.repository / "late/1/again").symlink_to("..")
    assert refused(late()) == (
        "endless-link",
        "this is a link to a folder that contains it, so that a copy would never end",
        "remove the link, or let it name only what the model needs",
        str(repository.repository / "late/1/again"),
    )


def test_a_name_that_no_store_holds_is_shown_in_one_line(late, repository):
    (repository.repository / "late/1/tab\t.py").touch()
    kind, message, hint, where = refused(late())
    assert (kind, where) == ("unpublishable-name", str(repository.repository / "late"))
    assert message == "an object store cannot hold this name: late/1/tab\\t.py"
    assert hint == "rename it: no control characters, UTF-8, 255 characters for each part, 800 bytes in all"


def test_an_environment_that_is_only_here_says_what_to_build(repository, tmp_path, cache):
    shutil.rmtree(cache / "environments/one")
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")), ["early"])
    kind, message, hint, where = refused(plan)
    assert (kind, where) == ("environment-not-cached", str(repository.repository / "early/python3.8"))
    assert message == (
        "an object store needs an archive, and the cache does not have the environment that this folder comes from"
    )
    assert hint == "run `envpack build --format tar.gz early`, or `envpack build early` and publish again"


def test_a_changed_environment_is_not_deployed(repository, tmp_path):
    place, archive = repository.repository / "early/python3.8", repository.repository / "late/python3.8.tar.gz"
    for path in (place / "lib/changed-by-pip.txt", archive):
        path.unlink()
        path.write_text("patched")
    (place / "lib/large.so").unlink()
    early = f"{place}: lib/changed-by-pip.txt was changed or removed after the build (and 1 more)"
    for name, what in (("early", early), ("late", f"{archive} was changed after the build")):
        with pytest.raises(InputError) as raised:
            plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")), [name])
        error = raised.value
        assert (error.kind, error.message, error.where) == ("environment-changed", what, str(archive.parents[1] / name))
        assert error.hint == f"run `envpack build {name}`"


def test_the_packages_of_each_environment_are_known_without_secrets(repository, tmp_path):
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    found = packages_of(plan)
    assert sorted(found) == ["early", "late"], "an ensemble has none"
    assert [package["name"] for package in found["late"]] == ["x 1", "y 1"]
    assert {tuple(package) for package in found["late"]} == {("name", "uri", "sha256")}


def test_folders_without_files_are_kept(late, repository):
    (repository.repository / "late/1/plugins/more").mkdir(parents=True)
    (repository.repository / "late/data").mkdir()
    (repository.repository / "late/data/pip.conf").write_text("index-url = https://user:password@host/")
    (repository.repository / "late/2").mkdir()
    (repository.repository / "late/2/model.py").touch()
    (repository.repository / "late/2/.hidden").touch()
    paths = {file.path for file in published(late()).files}
    kept = sorted(path.removesuffix("/.envpack-keep") for path in paths if path.endswith(".envpack-keep"))
    assert kept == ["late/1/plugins/more", "late/data"]
    assert "late/2/model.py" in paths
    assert not {path for path in paths if ".hidden" in path}


def test_programs_that_lose_their_mode_are_named(late, repository):
    folder = repository.repository / "late/1"
    for name, content in (
        ("tool.sh", b"#!/bin/sh"),
        ("a.so.1", b"\x7fELF"),
        ("b.py", b"#!/usr/bin/env python3"),
        ("c", b""),
    ):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)
    (caution,) = (text for text in published(late()).cautions if "executable" in text)
    assert caution.startswith(
        "late/1/tool.sh loses its executable bit in a store; code that starts it has to set that "
    )

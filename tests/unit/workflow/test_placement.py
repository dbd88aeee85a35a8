"""What a build puts beside a model, and what it removes there: only what it made itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.archive.selection import Selection
from envpack.environment.inventory import Package
from envpack.environment.store import MANIFEST, SCHEMA, Environment
from envpack.repository.config_editor import get_string_parameter
from envpack.repository.model import open_model
from envpack.requirements.model import Requirements
from envpack.requirements.target import Target
from envpack.settings.releases import find_release
from envpack.settings.table import FIELDS, Settings
from envpack.support.placed_files import RELEASE_FILE, STUB_NAME
from envpack.support.progress import NoProgress
from envpack.workflow import placement
from envpack.workflow.placement import numpy_version, place, release_cannot_serve, wants_stub
from envpack.workflow.recipe import Recipe
from envpack.workflow.requests import Placement
from tests.steps import Steps

NEW = "$$TRITON_MODEL_DIRECTORY/python3.8"


def environment(tmp_path, *, placeholders=0, packages=()):
    return Environment(
        key="one", python="3.8.18", minor="3.8", prefix=tmp_path / "store", packages=tuple(packages), glibc="2.17",
        glibcxx="", platform="linux-64", size=1, content="x", placeholders=placeholders,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "models/core/1").mkdir(parents=True)
    (tmp_path / "models/core/1/model.py").write_text("")
    return tmp_path / "models/core"


def configured(folder, path="", backend="python"):
    lines = [f'backend: "{backend}"']
    if path:
        lines.append(f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}')
    (folder / "config.pbtxt").write_text("\n".join([*lines, ""]))
    return open_model(folder)


@pytest.fixture
def binary(tmp_path):
    (tmp_path / "stub").write_bytes(b"\x7fELF envpack_stub_run")
    return tmp_path / "stub"


def request_for(model, **changes):
    fields = {
        "release": find_release("24.10"), "release_named": False, "served_from": "/srv/models/",
        "archive_format": "dir", "selection": Selection(exclude=("x",)), "backends": None,
    }  # fmt: skip
    said = {name: changes.pop(name) for name in FIELDS.keys() & changes.keys() - fields.keys()}
    return Placement(model=model, said=Settings(**said).settled(), **{**fields, **changes})


def recipe_for(request):
    """A recipe with the stub that a placement asks for."""
    stub = "always" if request.needs_stub else request.said.stub
    target = Target("linux-64", "3.8", "2.31", "")
    return Recipe(
        name="m", requirements=Requirements(), target=target, channels=(), triton=request.release.name, stub=stub
    )


class Placed:
    """Stands for placing an environment: keeps the arguments, and whether something was written."""

    def __init__(self, monkeypatch):
        self.asked, self.changed = [], True
        monkeypatch.setattr(placement, "place_folder", self.run)
        monkeypatch.setattr(placement, "pack_archive", self.run)

    def run(self, environment, path, selection=None, **options):
        self.asked.append((path, selection or options.pop("selection"), options))
        return self.changed


@pytest.fixture
def placed(monkeypatch):
    return Placed(monkeypatch)


def test_a_folder_is_placed_and_named_by_the_configuration(folder, tmp_path, placed):
    request = request_for(configured(folder), link_mode="copy")
    progress = Steps()
    result = place(request, environment(tmp_path, placeholders=3), None, progress)
    options = {"served_as": "/srv/models/core/python3.8", "link_mode": "copy", "progress": progress}
    assert placed.asked == [(folder / "python3.8", request.selection, options)]
    assert (result.environment, result.backend, result.changed) == (folder / "python3.8", "", True)
    assert result.stub == folder / STUB_NAME
    assert get_string_parameter(open_model(folder).config, "EXECUTION_ENV_PATH") == NEW


def test_an_archive_is_packed_and_placeholders_are_reported(folder, tmp_path, placed):
    changes = {"archive_format": "tar.gz", "packer": "conda-pack", "link_mode": "clone"}
    request, progress = request_for(configured(folder), **changes), Steps()
    result = place(request, environment(tmp_path, placeholders=3), None, progress)
    options = {"form": "tar.gz", "packer": "conda-pack", "link_mode": "clone", "progress": progress}
    assert placed.asked == [(folder / "python3.8.tar.gz", request.selection, options)]
    assert result.environment == folder / "python3.8.tar.gz"
    (text,) = progress.seen
    assert text.startswith("3 files keep a placeholder")
    place(request, environment(tmp_path), None, progress)
    assert progress.seen == [text]


def test_a_second_build_changes_nothing(folder, tmp_path, placed, binary):
    request = request_for(configured(folder))
    assert place(request, environment(tmp_path), binary, NoProgress()).changed
    placed.changed = False
    request = request_for(open_model(folder))
    assert not place(request, environment(tmp_path), binary, NoProgress()).changed


def test_a_build_removes_what_a_killed_one_left_of_environments(folder, tmp_path, placed):
    """It may have been killed while it removed the one before, which has another Python or another form."""
    configured(folder)
    (folder / ".python3.10.killed00.partial/lib").mkdir(parents=True)
    (folder / ".python3.8.tar.gz.killed00.partial").touch()
    others = ".weights.killed00.partial", ".python3.8.replaced.partial"  # of the user; the only one there may be
    for name in others:
        (folder / name).mkdir()
    place(request_for(open_model(folder)), environment(tmp_path), None, NoProgress())
    assert sorted(path.name for path in folder.glob(".*")) == sorted(others)


@pytest.mark.parametrize("part", ["environment", "configuration", "stub", "release file"])
def test_each_part_that_changes_counts(folder, tmp_path, placed, binary, part):
    place(request_for(configured(folder)), environment(tmp_path), binary, NoProgress())
    placed.changed = part == "environment"
    if part == "configuration":
        configured(folder)
    elif part == "stub":
        binary.write_bytes(b"\x7fELF new envpack_stub_run")
    elif part == "release file":
        (folder / RELEASE_FILE).write_text("24.10\n")
    assert place(request_for(open_model(folder)), environment(tmp_path), binary, NoProgress()).changed


def test_a_release_file_exists_only_for_a_named_release(folder, tmp_path, placed, binary):
    request = request_for(configured(folder), release_named=True)
    place(request, environment(tmp_path), binary, NoProgress())
    assert (folder / RELEASE_FILE).read_text() == "24.10\n"
    place(request, environment(tmp_path), None, NoProgress())
    assert (folder / RELEASE_FILE).exists()
    place(request_for(open_model(folder)), environment(tmp_path), None, NoProgress())
    assert not (folder / RELEASE_FILE).exists()
    assert (folder / STUB_NAME).exists()


def test_a_backend_directory_takes_the_stub_of_the_model(folder, tmp_path, placed, binary):
    place(request_for(configured(folder), release_named=True), environment(tmp_path), binary, NoProgress())
    request = request_for(open_model(folder), backends=tmp_path / "backends", release_named=True)
    placed.changed = False
    result = place(request, environment(tmp_path), binary, NoProgress())
    assert (result.stub, result.backend) == (tmp_path / f"backends/python_3_8/{STUB_NAME}", "python_3_8")
    assert result.changed
    assert result.stub.read_bytes() == binary.read_bytes()
    assert not (folder / STUB_NAME).exists()
    assert not (folder / RELEASE_FILE).exists()
    assert open_model(folder).backend == "python_3_8"
    assert (tmp_path / f"backends/python_3_8/{RELEASE_FILE}").read_text() == "24.10\n"
    place(request_for(open_model(folder), backends=tmp_path / "backends"), environment(tmp_path), None, NoProgress())
    assert not (tmp_path / f"backends/python_3_8/{RELEASE_FILE}").exists()


def test_a_stub_in_the_models_folder_that_is_removed_is_a_change(folder, tmp_path, placed, binary):
    request = request_for(configured(folder), backends=tmp_path / "backends")
    place(request, environment(tmp_path), binary, NoProgress())
    placed.changed = False
    (folder / STUB_NAME).touch()
    request = request_for(open_model(folder), backends=tmp_path / "backends")
    assert place(request, environment(tmp_path), binary, NoProgress()).changed
    assert not place(request, environment(tmp_path), binary, NoProgress()).changed


def test_library_and_utilities_are_copied_from_the_named_folder(folder, tmp_path, placed, binary):
    (tmp_path / "server").mkdir()
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        (tmp_path / "server" / name).write_text(name)
    request = request_for(configured(folder), backends=tmp_path / "backends", copy_library=tmp_path / "server")
    place(request, environment(tmp_path), binary, NoProgress())
    library = tmp_path / "backends/python_3_8/libtriton_python_3_8.so"
    assert (library.is_symlink(), library.read_text()) == (False, "libtriton_python.so")


@pytest.mark.parametrize(("before", "after"), [("python_3_9", "python"), ("python", "python"), ("mine", "mine")])
def test_without_backends_only_a_backend_of_ours_becomes_pythons(folder, tmp_path, placed, before, after):
    place(request_for(configured(folder, backend=before)), environment(tmp_path), None, NoProgress())
    assert open_model(folder).backend == after


def made_by_envpack(path):
    path.mkdir(parents=True)
    manifest = {
        "schema": SCHEMA, "key": "k", "python": "3.9.1", "minor": "3.9", "packages": [], "glibc": "2.17",
        "glibcxx": "", "platform": "linux-64", "size": 1, "content": "x", "stand_ins": 0,
    }  # fmt: skip
    (path / MANIFEST).write_text(json.dumps(manifest))
    return path


def test_the_previous_environment_in_the_models_folder_is_removed(folder, tmp_path, placed):
    previous, other = made_by_envpack(folder / "python3.9"), made_by_envpack(folder / "python3.10")
    model = configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.9")
    place(request_for(model), environment(tmp_path), None, NoProgress())
    assert (previous.exists(), other.exists()) == (False, True)


def test_so_is_that_of_a_build_that_has_finished_since_the_model_was_read(folder, tmp_path, placed):
    previous, model = made_by_envpack(folder / "python3.9"), configured(folder)
    configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.9")
    place(request_for(model), environment(tmp_path), None, NoProgress())
    assert not previous.exists()


def other_model(folder, value, file="config.pbtxt"):
    """Another model of the repository, one of whose configurations names an execution environment."""
    (folder.parent / "post/1").mkdir(parents=True)
    (folder.parent / "post/1/model.py").write_text("")
    config = folder.parent / "post" / file
    config.parent.mkdir(exist_ok=True)
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{value}" }} }}'
    config.write_text(f'backend: "python"\n{parameter}\n')
    return config


@pytest.mark.parametrize("file", ["config.pbtxt", "configs/large.pbtxt"])
@pytest.mark.parametrize(
    "value", ["$$TRITON_MODEL_DIRECTORY/../core/python3.9", "{repository}/core/python3.9", "/srv/models/core/python3.9"]
)
def test_a_previous_environment_stays_while_another_model_names_it(folder, tmp_path, placed, file, value):
    previous = made_by_envpack(folder / "python3.9")
    other_model(folder, value.format(repository=folder.parent), file)
    model = configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.9")
    result = place(request_for(model), environment(tmp_path), None, NoProgress())
    assert previous.exists()
    what = "stays, because EXECUTION_ENV_PATH of post names it: remove it when no model names it any more"
    assert result.warnings == (f"{previous} {what}",)


@pytest.mark.parametrize("value", ["$$TRITON_MODEL_DIRECTORY/python3.9", "a\\000b", "{", None])
def test_other_models_that_are_broken_or_name_other_environments_keep_none(folder, tmp_path, placed, value):
    previous = made_by_envpack(folder / "python3.9")
    config = other_model(folder, value)
    if value is None:
        config.write_text("nonsense {")
    model = configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.9")
    assert place(request_for(model), environment(tmp_path), None, NoProgress()).warnings == ()
    assert not previous.exists()


def test_custom_configurations_are_edited_and_what_they_named_before_is_removed(folder, tmp_path, placed, binary):
    previous = [made_by_envpack(folder / name) for name in ("python3.10", "python3.9")]
    (folder / "configs").mkdir()
    configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.10")
    (folder / "config.pbtxt").rename(folder / "configs/large.pbtxt")
    model = configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.9")
    place(request_for(model), environment(tmp_path), binary, NoProgress())
    for file in ("config.pbtxt", "configs/large.pbtxt"):
        assert NEW in (folder / file).read_text()
    assert not any(folder.exists() for folder in previous)


def test_a_previous_environment_that_cannot_be_removed_is_no_error(folder, tmp_path, placed, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError

    previous = made_by_envpack(folder / "python3.9")
    model = configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.9")
    monkeypatch.setattr(Path, "rename", refuse)
    place(request_for(model), environment(tmp_path), None, NoProgress())
    assert previous.exists()


def test_an_old_environment_of_another_user_that_stays_is_named(folder, tmp_path, placed, monkeypatch):
    left = folder / ".python3.8.other_00.partial"
    left.mkdir()
    monkeypatch.setattr("envpack.support.replacement.delete", lambda path: None)
    monkeypatch.setattr("os.access", lambda path, mode: path != left)
    done = place(request_for(configured(folder)), environment(tmp_path), None, NoProgress())
    assert [warning.partition(":")[0] for warning in done.warnings] == [f"{left} stays"]


def test_the_previous_archive_is_removed_with_its_metadata(folder, tmp_path, placed):
    for archive in (folder / "python3.8.tar", folder / "python3.9.tar"):
        archive.touch()
        described = {"key": "k", "size": 0, "mtime_ns": archive.stat().st_mtime_ns}
        archive.with_name(f"{archive.name}.json").write_text(json.dumps(described))
    model = configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.8.tar")
    place(request_for(model), environment(tmp_path), None, NoProgress())
    assert sorted(file.name for file in folder.glob("*.tar*")) == ["python3.9.tar", "python3.9.tar.json"]


def test_an_archive_that_is_already_gone_is_no_error(folder, tmp_path, placed):
    (folder / "python3.9.tar.json").write_text('{"key": "k"}')
    place(
        request_for(configured(folder, "$$TRITON_MODEL_DIRECTORY/python3.9.tar")),
        environment(tmp_path),
        None,
        NoProgress(),
    )
    assert not (folder / "python3.9.tar.json").exists()


@pytest.mark.parametrize("where", ["elsewhere/python3.9", "models/core/deep/env", "models/core/python3.8"])
def test_environments_elsewhere_and_the_current_one_stay(folder, tmp_path, placed, where):
    previous = made_by_envpack(tmp_path / where)
    value = str(previous).replace(str(folder), "$$TRITON_MODEL_DIRECTORY")
    place(request_for(configured(folder, value)), environment(tmp_path), None, NoProgress())
    assert previous.exists()


@pytest.mark.parametrize("value", ["", "$$TRITON_MODEL_DIRECTORY/", "$$TRITON_MODEL_DIRECTORY/.", "env"])
def test_values_that_name_no_environment_of_ours_remove_nothing(folder, tmp_path, placed, value):
    made_by_envpack(folder / "env")
    (folder / MANIFEST).write_text((folder / "env" / MANIFEST).read_text())
    place(request_for(configured(folder, value)), environment(tmp_path), None, NoProgress())
    assert (folder / "1/model.py").exists()
    assert (folder / "env").exists()


def test_the_repository_is_no_previous_environment(folder, tmp_path, placed):
    (folder.parent / MANIFEST).write_text((made_by_envpack(tmp_path / "x") / MANIFEST).read_text())
    place(request_for(configured(folder, "$$TRITON_MODEL_DIRECTORY/..")), environment(tmp_path), None, NoProgress())
    assert folder.exists()


def test_what_envpack_did_not_make_stays(folder, tmp_path, placed):
    (folder / "mine").mkdir()
    (folder / "mine.tar.gz").touch()
    (folder / "changed.tar.gz").write_text("since envpack made it")
    (folder / "changed.tar.gz.json").write_text('{"key": "k", "size": 21, "mtime_ns": 1, "sha256": "0"}')
    for name in ("mine", "mine.tar.gz", "changed.tar.gz"):
        model = configured(folder, f"$$TRITON_MODEL_DIRECTORY/{name}")
        place(request_for(model), environment(tmp_path), None, NoProgress())
        assert (folder / name).exists()


@pytest.mark.parametrize(
    ("python", "numpy", "release", "cannot"),
    [
        ("3.10", "", "24.10", False),
        ("3.10", "1.26", "24.10", False),
        ("3.10", "2.0", "24.10", True),
        ("3.10", "10.1", "24.10", True),
        ("3.8", "", "24.10", True),
        ("3.12", "2.0", "25.08", False),
    ],
)
def test_what_a_releases_own_stub_cannot_serve(python, numpy, release, cannot):
    assert release_cannot_serve(python, numpy, find_release(release)) is cannot


def test_the_version_of_numpy(tmp_path):
    packages = [Package(name=name, version=version, source="pip") for name, version in (("a", "1"), ("numpy", "2.1"))]
    assert numpy_version(environment(tmp_path, packages=packages)) == "2.1"
    assert numpy_version(environment(tmp_path)) == ""


@pytest.mark.parametrize(
    ("policy", "backends", "served", "has_stub", "wanted"),
    [
        ("always", False, True, False, True),
        ("never", False, False, True, False),
        ("auto", False, True, False, False),
        ("auto", False, False, False, True),
        ("auto", False, True, True, True),
    ],
)
def test_when_a_model_gets_a_stub(folder, tmp_path, policy, backends, served, has_stub, wanted):
    """The environment has Python 3.8; of these two releases only the older one embeds it."""
    if has_stub:
        (folder / STUB_NAME).touch()
    release = find_release("23.04" if served else "24.10")
    request = request_for(
        configured(folder), stub=policy, backends=Path("/backends") if backends else None, release=release
    )
    assert wants_stub(recipe_for(request), environment(tmp_path)) is wanted


def test_the_start_is_written_and_removed_with_the_environment_and_stays_otherwise(folder, tmp_path, placed, binary):
    def configured_by(start):
        done = place(request_for(open_model(folder), start=start), environment(tmp_path), binary, NoProgress())
        return get_string_parameter(open_model(folder).config, "ENVPACK_START"), done.changed

    configured(folder, NEW)
    before = (folder / "config.pbtxt").read_text()
    assert configured_by("warm") == ("warm", True)
    placed.changed = False
    assert configured_by("") == ("warm", False)
    assert configured_by("warm") == ("warm", False)
    assert configured_by("cold") == ("", True)
    assert (folder / "config.pbtxt").read_text() == before
    assert configured_by("cold") == ("", False)


@pytest.mark.parametrize(
    ("policy", "start", "wanted"), [("auto", "warm", True), ("auto", "", False), ("never", "warm", False)]
)
def test_a_warm_start_needs_a_stub(folder, tmp_path, policy, start, wanted):
    own = environment(tmp_path, packages=[Package(name="numpy", version="1.26.4", source="pip")])
    own = replace(own, minor="3.10")
    assert wants_stub(recipe_for(request_for(configured(folder), stub=policy, start=start)), own) is wanted


def test_a_stub_that_the_file_system_does_not_let_run_is_a_warning(folder, tmp_path, placed, binary, monkeypatch):
    monkeypatch.setattr(placement, "has_stub_mode", lambda stub: False)
    done = place(request_for(configured(folder), stub="always"), environment(tmp_path), binary, NoProgress())
    (warning,) = done.warnings
    assert warning.startswith(f"{folder / STUB_NAME} is not executable")
    assert f"chmod 755 {folder / STUB_NAME}" in warning

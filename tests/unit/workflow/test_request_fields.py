"""Each field of a build request, with nothing said and with everything said."""

from dataclasses import replace
from pathlib import Path

import pytest

from envpack.archive.selection import Selection
from envpack.lock.lockfile import write_lock
from envpack.repository.model import open_model
from envpack.requirements.target import Target
from envpack.settings.project import open_project
from envpack.settings.releases import find_release
from envpack.support.errors import InputError, UsageError
from envpack.support.platforms import host_platform
from envpack.workflow.recipe import TakenOver
from envpack.workflow.requests import build_request, lock_request, placed_environment

from .test_requests import CONFIG, WARM, place, repository, request_for

__all__ = ["repository"]  # a fixture


def test_nothing_that_is_said_has_a_default(repository):
    placement = request_for(repository).placement
    assert (placement.model.name, placement.release.name, placement.release_named) == ("m", "24.10", False)
    assert (placement.served_from, placement.archive_format) == (str(repository), "dir")
    assert (placement.selection, placement.said.packer, placement.said.stub) == (Selection(), "envpack", "auto")
    assert (placement.said.link_mode, placement.backends, placement.said.copy_library) == ("auto", None, None)
    assert (placement.said.start, placement.said.force) == ("", False)


def test_what_is_said_is_in_the_placement(repository, tmp_path):
    placement = request_for(
        repository,
        triton="25.08",
        served_from="/srv",
        format="tar.gz",
        include=("*.pyi",),
        exclude=("*.md",),
        stub="always",
        link_mode="copy",
        layout="backend",
        copy_library=tmp_path,
        start="cold",
        force=True,
    ).placement
    assert (placement.release.name, placement.release_named) == ("25.08", True)
    assert (placement.served_from, placement.archive_format) == ("/srv", "tar.gz")
    assert placement.selection == Selection(("*.md",), ("*.pyi",))
    assert (placement.said.stub, placement.said.link_mode, placement.said.start, placement.said.force) == (
        "always",
        "copy",
        "cold",
        True,
    )
    assert (placement.backends, placement.said.copy_library) == (repository.parent / "backends", tmp_path)
    assert request_for(repository, triton="30.01", abi="24.10").placement.release_named
    assert request_for(repository, packer="conda-pack", format="tar").placement.said.packer == "conda-pack"


def test_a_recipe_has_what_decides_its_result(repository):
    (repository / "m/requirements.txt").write_text("six\n")
    recipe = request_for(repository).source
    release = find_release("24.10")
    assert (recipe.name, recipe.requirements.pip) == ("m", ("six",))
    assert recipe.target == Target(host_platform(), "3.10", release.glibc, release.cuda)
    assert (recipe.channels, recipe.sources, recipe.python_preference) == (("local",), (), "system")
    assert (recipe.lock, recipe.lock_file) == ("", repository / "m/envpack.lock")
    assert (recipe.triton, recipe.abi, recipe.strip, recipe.toolchain, recipe.stub) == (
        "24.10",
        "",
        False,
        "auto",
        "auto",
    )
    recipe = request_for(
        repository,
        platform="linux-aarch64",
        channels=("https://one.example", "https://two.example", "https://one.example"),
        allow_source=("six",),
        python_preference="only-system",
        strip=True,
        toolchain="zig",
        stub="never",
    ).source
    assert recipe.target.platform == "linux-aarch64"
    assert recipe.channels == ("https://one.example", "https://two.example")
    assert (recipe.sources, recipe.python_preference) == (("six",), "only-system")
    assert (recipe.strip, recipe.toolchain, recipe.stub) == (True, "zig", "never")


def test_requirements_that_settings_name_come_before_those_of_the_folder(repository):
    (repository / "m/requirements.txt").write_text("six\n")
    (repository / "shared.txt").write_text("tree\n")
    assert request_for(repository, requirements=repository / "shared.txt").source.requirements.pip == ("tree",)
    (repository / "m/requirements.txt").unlink()
    assert request_for(repository).source.requirements.pip == ("numpy",)


def test_channels_come_from_the_first_that_names_any(repository, tmp_path):
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home/.condarc").write_text("channels: [https://user.example]\n")
    assert request_for(repository).source.channels == ("https://user.example",)
    (repository / "m/environment.yml").write_text(
        "channels: [https://file.example]\ndependencies: ['https://spec.example::six', numpy]\n"
    )
    assert request_for(repository).source.channels == ("https://file.example", "https://spec.example")
    said = request_for(repository, channels=("https://said.example",)).source.channels
    assert said == ("https://said.example", "https://spec.example")


def test_the_platform_of_the_requirements_counts_after_that_of_the_caller(machine):
    machine.write_lock()
    recipe, python = lock_request(machine.project, open_model(machine.folder))
    assert recipe.lock == machine.lock().text
    assert (recipe.target.platform, python.minor, python.source) == (host_platform(), "3.10", "envpack.lock")


def test_a_lock_names_its_python_before_the_environment_does(repository, machine):
    place(repository, "python3.12", "3.12")
    lock = machine.lock()
    write_lock(replace(lock, target=replace(lock.target, python="3.9")), repository / "m/envpack.lock")
    request = request_for(repository)
    assert (request.source.target.python, request.python.source) == ("3.9", "envpack.lock")


def test_an_environment_that_is_taken_over_has_what_is_said(repository):
    (repository / "m/requirements.txt").write_text("this is no requirement\n")
    request = request_for(
        repository,
        from_prefix=Path("/opt/env"),
        python="3.9",
        platform="linux-aarch64",
        strip=True,
        toolchain="zig",
        stub="always",
    )
    assert request.python is None
    assert request.source == TakenOver(
        prefix=Path("/opt/env"),
        python="3.9",
        platform="linux-aarch64",
        triton="24.10",
        abi="",
        strip=True,
        toolchain="zig",
        stub="always",
    )


def test_a_python_that_is_not_supported_is_named_with_the_file_that_says_it(repository):
    (repository / "envpack.toml").write_text('[models.m]\nfrom_prefix = "/opt/env"\npython = "3.99"\n')
    with pytest.raises(UsageError) as raised:
        request_for(repository)
    assert raised.value.where == str(repository / "envpack.toml")
    with pytest.raises(UsageError) as raised:
        request_for(repository, python="3.98")
    assert raised.value.where == ""


@pytest.mark.parametrize(
    ("config", "stub", "has_stub", "options", "wanted"),
    [
        (CONFIG, "auto", False, {}, False),
        (CONFIG, "always", False, {}, True),
        (CONFIG, "never", True, {}, False),
        (CONFIG, "auto", True, {}, True),
        (CONFIG, "auto", False, {"start": "warm"}, True),
        (CONFIG + WARM, "auto", False, {}, True),
        (CONFIG + WARM, "auto", False, {"start": "cold"}, False),
        (CONFIG, "auto", False, {"layout": "backend"}, True),
        (CONFIG.replace('"python"', '"python_3_8"'), "auto", False, {}, True),
        (CONFIG.replace('"python"', '"python_3_8"'), "auto", False, {"layout": "model"}, False),
    ],
)
def test_when_a_model_needs_a_stub_whatever_its_environment(repository, config, stub, has_stub, options, wanted):
    (repository / "m/config.pbtxt").write_text(config)
    if has_stub:
        (repository / "m/triton_python_backend_stub").touch()
    request = request_for(repository, stub=stub, **options)
    assert request.placement.needs_stub is wanted
    assert request.source.stub == ("always" if wanted else stub)


def test_a_model_whose_code_uses_what_a_stub_of_the_release_adds_later_needs_a_stub(repository):
    code = "import triton_python_backend_utils as pb\ndef check(tensor: pb.Tensor): ...\n"
    (repository / "m/1/model.py").write_text(code)
    assert request_for(repository, stub="auto").placement.needs_stub
    assert not request_for(repository, stub="never").placement.needs_stub


@pytest.mark.parametrize(
    ("options", "kind", "message", "hint"),
    [
        (
            {"packer": "conda-pack"},
            "packer-limits",
            "conda-pack makes archives only, of all files",
            "add --format tar.gz and leave out exclude and include, or leave out packer=conda-pack",
        ),
        (
            {"packer": "conda-pack", "format": "tar", "exclude": ("*.md",)},
            "packer-limits",
            "conda-pack makes archives only, of all files",
            "add --format tar.gz and leave out exclude and include, or leave out packer=conda-pack",
        ),
        (
            {"triton": "23.04"},
            "folder-unsupported",
            "Triton 23.04 does not accept a folder as an execution environment",
            "build an archive: --format tar.gz",
        ),
        (
            {"layout": "backend", "stub": "never"},
            "layout-limits",
            "a backend for one Python contains a stub, and --stub never excludes it",
            "remove --stub never, or use --set layout=model",
        ),
        (
            {"start": "warm", "stub": "never"},
            "start-limits",
            "only envpack's stub starts models warm, and --stub never excludes it",
            "remove --stub never, or use --start cold",
        ),
    ],
)
def test_a_contradiction_is_named_with_what_to_leave_out(repository, options, kind, message, hint):
    with pytest.raises(UsageError) as raised:
        request_for(repository, **options)
    assert (raised.value.kind, raised.value.message, raised.value.hint) == (kind, message, hint)


def test_the_environment_of_a_model_is_known_if_envpack_made_it(repository):
    assert placed_environment(open_model(repository / "m")) == ("", "dir")
    place(repository, "python3.9.tar", "3.9")
    assert placed_environment(open_model(repository / "m")) == ("3.9", "tar")
    (repository / "m/config.pbtxt").write_text(
        'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" model_version: -1 } ] }'
    )
    assert placed_environment(open_model(repository / "m")) == ("", "dir")


def test_a_backend_that_is_almost_one_of_the_server_is_an_error_unless_there_is_such_a_folder(repository):
    (repository / "m/config.pbtxt").write_text(CONFIG.replace('"python"', '"pyhton"'))
    model = open_model(repository / "m", foreign=True)
    with pytest.raises(InputError) as raised:
        build_request(open_project(repository), model)
    assert (raised.value.kind, raised.value.where) == ("backend-missing", str(repository / "m/config.pbtxt"))
    (repository.parent / "backends/pyhton").mkdir(parents=True)
    assert build_request(open_project(repository), model).placement.backends is None

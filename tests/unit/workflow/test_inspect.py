"""What `envpack inspect` takes a file or a folder for, and when something is wrong with it."""

import json
import shutil

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.tarball import pack_archive
from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.send import publish
from envpack.deployment.signing import read_signing_key, read_trust
from envpack.settings.table import Settings
from envpack.store.location import parse_location
from envpack.store.objects import Objects
from envpack.support.errors import InputError
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import NoProgress
from envpack.workflow.inspect import (
    compare_with_signed,
    identify,
    inspect_environment,
    inspect_models,
    inspect_stub,
)
from tests.signing_keys import write_pair
from tests.steps import Steps
from tests.tables import every_row
from tests.unit.archive.conftest import Prefixes
from tests.unit.stub.elf_files import EM_AARCH64, write_library, write_stub


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment with Python 3.10 in the cache."""
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))

    def python(prefix):
        write_library(prefix / "lib/libpython3.10.so.1.0")

    return Prefixes(tmp_path / "cache/environments").make("one", python)


@pytest.fixture
def folder(environment, tmp_path):
    place_folder(environment, tmp_path / "env")
    return tmp_path / "env"


@pytest.fixture
def archive(environment, tmp_path):
    pack_archive(environment, tmp_path / "env.tar.gz")
    return tmp_path / "env.tar.gz"


@pytest.fixture
def repository(tmp_path):
    for name in ("one", "two"):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "1/model.py").write_text(
            "class TritonPythonModel:\n    def execute(self, r): ...\n"
        )
    return tmp_path / "models"


def test_a_path_is_what_its_content_is(repository, folder, archive, tmp_path):
    (tmp_path / "text").write_text("x")
    (tmp_path / "damaged/lib/python3.10").mkdir(parents=True)
    found = {
        path.name: identify(path)
        for path in (repository, repository / "one", folder, archive, tmp_path / "text", tmp_path / "damaged")
    }
    assert found == {
        "models": "models",
        "one": "models",
        "env": "environment",
        "env.tar.gz": "environment",
        "text": "stub",
        "damaged": "environment",
    }


def test_a_folder_with_neither_models_nor_an_environment_is_an_error(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, hint in ((repository.parent, "envpack inspect models"), (tmp_path / "none", "envpack init")):
        folder.mkdir(exist_ok=True)
        with pytest.raises(InputError) as caught:
            identify(folder)
        assert (caught.value.kind, hint in caught.value.hint) == ("repository-empty", True)


@every_row(
    ("content", "form"),
    [(b"BZh91AY&SY", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"PK\x03\x04\x14", "zip"), (b"\x28\xb5\x2f\xfd", "zstd")],
)
def test_an_archive_in_another_format_is_no_damaged_stub(tmp_path, content, form):
    (tmp_path / "env").write_bytes(content)
    with pytest.raises(InputError) as caught:
        identify(tmp_path / "env")
    what = f"it is compressed with {form}, and servers only read tar and tar.gz"
    fix = "build a supported archive: `envpack build --format tar.gz`; or unpack it and name the folder"
    error = caught.value
    assert (error.kind, error.message, error.hint) == ("environment-unreadable", what, fix)
    assert error.where == str(tmp_path / "env")


def test_a_file_that_git_lfs_has_not_fetched_is_no_damaged_stub(tmp_path):
    (tmp_path / "env.tar.gz").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(InputError, match="it is a git-lfs pointer, not the file itself"):
        identify(tmp_path / "env.tar.gz")


def test_one_model_is_inspected_in_its_repository(repository, monkeypatch):
    monkeypatch.chdir(repository)
    assert inspect_models(repository, Settings(), strict=False).found.models == ("one", "two")
    assert inspect_models(repository / "one", Settings(), strict=False).found.models == ("one",)
    for said in ("24.10", "23.04"):
        assert inspect_models(repository, Settings(triton=said), strict=False).found.release.name == said


def test_a_warning_counts_only_for_those_who_are_strict(repository):
    assert inspect_models(repository, Settings(), strict=True).ok
    (repository / "one/config.pbtxt").write_text(
        'backend: "python"\nparameters { key: "ENVPACK_START" value { string_value: "hot" } }\n'
    )
    found = inspect_models(repository, Settings(), strict=False)
    assert (bool(found.found.findings), found.found.ok) == (True, found.ok)
    assert not inspect_models(repository, Settings(), strict=True).ok
    (repository / "one/config.pbtxt").write_text("input [")
    assert not inspect_models(repository, Settings(), strict=False).ok


def test_an_environment_is_compared_with_its_files_and_with_a_release(folder, archive):
    for path in (folder, archive):
        found = inspect_environment(path, "", strict=False, sbom=None, limit=1)
        assert (found.ok, found.mismatches, found.found.path) == (True, (), path)
        assert inspect_environment(path, "24.10", strict=True, sbom=None, limit=1).ok
    (folder / "lib/changed-by-pip.txt").chmod(0o644)
    (folder / "lib/changed-by-pip.txt").write_text("by hand")
    assert not inspect_environment(folder, "", strict=False, sbom=None, limit=1).ok


def test_a_release_that_cannot_run_an_environment_is_named(folder, tmp_path):
    metadata = folder / "envpack-environment.json"
    inventory = json.loads(metadata.read_text())
    metadata.chmod(0o644)
    metadata.write_text(json.dumps(inventory | {"glibc": "2.99"}))
    found = inspect_environment(folder, "24.10", strict=False, sbom=tmp_path / "sbom.json", limit=1)
    assert ([one.kind for one in found.mismatches], found.ok) == (["glibc-too-old"], False)
    assert inspect_environment(folder, "", strict=False, sbom=None, limit=1).ok
    assert not (tmp_path / "sbom.json").exists(), "of what cannot be used there is no bill of materials"


def test_a_bill_of_materials_names_the_environment_and_its_packages(folder, archive, tmp_path):
    for path in (folder, archive):
        found = inspect_environment(path, "", strict=False, sbom=tmp_path / "sbom.json", limit=1)
        document = json.loads((tmp_path / "sbom.json").read_text())
        component = document["metadata"]["component"]
        assert component["name"] == path.name
        assert component["version"] == found.found.manifest["content"]
        assert {part["name"] for part in document["components"]} >= {"x", "y"}


def test_a_limit_bounds_what_an_archive_unpacks_to(archive):
    with pytest.raises(InputError) as raised:
        inspect_environment(archive, "", strict=False, sbom=None, limit=0)
    assert raised.value.where == str(archive)


def test_a_stub_is_compared_with_an_environment_and_a_release(folder, tmp_path, monkeypatch):
    stub = write_stub(tmp_path / STUB_NAME, "3.10")
    found = inspect_stub(stub, None, "")
    assert (found.facts.python, found.mismatches) == ("3.10", ())
    monkeypatch.chdir(tmp_path)
    assert inspect_stub(stub, folder.relative_to(tmp_path), "24.10").mismatches == ()
    other = write_stub(tmp_path / "other/stub", "3.12")
    assert [one.kind for one in inspect_stub(other, folder, "").mismatches] == ["python-mismatch"]
    foreign = write_stub(tmp_path / "arm/stub", "3.10", machine=EM_AARCH64)
    assert [one.kind for one in inspect_stub(foreign, folder, "").mismatches] == ["machine-mismatch"]
    newer = inspect_stub(write_stub(tmp_path / "new/stub", "3.10"), None, "25.08").mismatches
    assert [one.kind for one in newer] == ["release-mismatch"], "it knows two ABI epochs"


def test_downloaded_models_are_compared_with_what_was_signed(tmp_path):
    private, public = write_pair(tmp_path)
    (tmp_path / "remote").mkdir()
    files = (PublishedFile("m/config.pbtxt", content=b"x"), PublishedFile("m/1/model.py", content=b"x"))
    publish(
        Publication(files, ()), Objects(parse_location(f"file://{tmp_path}/remote")), keys=[read_signing_key(private)]
    )
    shutil.copytree(tmp_path / "remote/m", tmp_path / "copy/m")
    steps, trust = Steps(), read_trust([public])
    compare_with_signed(tmp_path / "copy", trust, steps)
    assert steps.seen == [f"compare {tmp_path}/copy with what was signed: 2 files"]
    (tmp_path / "copy/m/1/model.py").write_text("y")
    with pytest.raises(InputError) as raised:
        compare_with_signed(tmp_path / "copy", trust, NoProgress())
    assert raised.value.kind == "published-changed"

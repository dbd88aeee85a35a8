"""From a repository to each place where servers read it, as `envpack layout` and `envpack publish` do it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.fetch import pull_image
from envpack.deployment.signing import read_trust
from envpack.inspection import preflight
from envpack.inspection.facts import EnvironmentFacts
from envpack.repository.model import open_model
from envpack.repository.placement import point_to_environment
from envpack.settings.table import Settings
from envpack.store.location import parse_location
from envpack.support.errors import InputError, UsageError
from envpack.support.progress import NoProgress
from envpack.verification.published import verify_published
from envpack.workflow.inspect import inspect_image
from envpack.workflow.publish import lay_out, publish_objects, publish_to_registry
from tests.signing_keys import write_pair
from tests.steps import Steps
from tests.verdicts import full_verdict


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def plain(project, tmp_path):
    """The repository with models that need no environment, so that nothing has to be packed."""
    for name in ("early", "late"):
        (project.repository / name / "config.pbtxt").write_text('backend: "python"\n')
    return project.saying(Settings(backends=tmp_path / "backends"))


def test_a_folder_gets_the_models_and_the_commands_that_serve_them(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = Steps()
    project = project.saying(Settings(backends=tmp_path / "backends", link_mode="copy"))
    done = lay_out(project, ["late", "early"], Path("early/../tree"), steps)
    files, size = done.description["files"], done.description["size"]
    assert steps.seen == [f"assemble 2 models and 1 backend in early/../tree: {files} files, {size / 1e6:.1f} MB"]
    assert sorted(path.name for path in (tmp_path / "tree/models").iterdir()) == ["early", "late"]
    assert done.command == ("tritonserver", "--model-repository=/models")
    assert f"type=bind,source={tmp_path}/tree/models,target=/models,readonly" in done.docker
    assert done.cautions == ()
    model = tmp_path / "tree/models/late/1/model.py"
    assert model.stat().st_ino != (project.repository / "late/1/model.py").stat().st_ino


def test_a_layout_leaves_out_texts_with_passwords_and_names_them(project, tmp_path):
    for name, folder in (("requirements.txt", "late"), ("setup.sh", "late/1"), ("pip.conf", "late/python3.8")):
        (project.repository / folder / name).write_text("--index-url https://me:word@index.example/\n")
    done = lay_out(project, ["late"], tmp_path / "tree", NoProgress())
    assert [text.partition(" is left out: line 1 ")[0] for text in done.cautions] == [
        "late/1/setup.sh",
        "late/requirements.txt",
    ]
    named = {"pip.conf", "setup.sh", "requirements.txt"}
    assert [path.parent.name for path in (tmp_path / "tree").rglob("*") if path.name in named] == ["python3.8"]


def test_models_that_were_not_built_are_named(plain, tmp_path):
    (plain.repository / "late/requirements.txt").write_text("numpy\n")
    (plain.repository / "network/1").mkdir(parents=True)
    (plain.repository / "network/1/model.onnx").touch()
    (plain.repository / "network/requirements.txt").write_text("onnx\n")
    what = "late: it has requirements.txt, but config.pbtxt names no execution environment: run `envpack build late`"
    assert lay_out(plain, [], tmp_path / "tree", NoProgress()).cautions == (what,)
    url = (tmp_path / "published").as_uri()
    assert publish_objects(plain, [], url, NoProgress(), dry_run=True).cautions == (what,)


def test_files_that_a_server_will_miss_are_named(plain, tmp_path):
    network, weights = plain.repository / "network", plain.repository / "late/1/weights.bin"
    network.mkdir()
    (network / "config.pbtxt").write_text('backend: "onnxruntime"')
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    pointer, missing = lay_out(plain, [], tmp_path / "tree", NoProgress()).cautions
    assert pointer == f"{weights}: it is a git-lfs pointer, not the file itself: fetch the file: `git lfs pull`"
    assert missing.startswith(f"{network}: it has no version folder, so no server loads it; ")
    assert missing.endswith(": put model.onnx in network/1")


def test_files_that_the_code_names_and_that_stay_behind_are_named(plain, tmp_path):
    late = plain.repository / "late"
    (late / "1/.key").touch()
    (late / "1/labels.py").symlink_to(__file__)  # which is copied
    (late / "1/model.py").write_text("open(Path(__file__).parent / '.key')")
    (caution,) = lay_out(plain, [], tmp_path / "tree", NoProgress()).cautions
    assert caution.startswith(f"{late}: it names late/1/.key, which `envpack layout` and `publish` leave out: move it ")
    url = (tmp_path / "published").as_uri()
    assert publish_objects(plain, [], url, NoProgress(), dry_run=True).cautions == (caution,)


def test_an_environment_that_no_server_reads_is_named(plain, tmp_path):
    archive = plain.repository / "late/env.zip"
    archive.write_bytes(b"PK\x03\x04")
    point_to_environment(open_model(plain.repository / "late"), "$$TRITON_MODEL_DIRECTORY/env.zip")
    cautions = lay_out(plain, [], tmp_path / "tree", NoProgress()).cautions
    assert f"{archive}: it is compressed with zip, and servers only read tar and tar.gz" in " ".join(cautions)


def test_an_environment_that_the_image_of_the_release_is_too_old_for_is_named(plain, tmp_path, monkeypatch):
    (plain.repository / "early/env").mkdir()
    point_to_environment(open_model(plain.repository / "early"), "$$TRITON_MODEL_DIRECTORY/env")
    facts = EnvironmentFacts(plain.repository / "early/env", "3.8", "x86_64", "2.99", "", "")
    monkeypatch.setattr(preflight, "read_environment_facts", lambda _: facts)
    what = f"the environment needs glibc 2.99, but the image of Triton {plain.release.name} has "
    assert what in " ".join(lay_out(plain, [], tmp_path / "tree", NoProgress()).cautions)


def test_a_missing_library_is_missed_before_environments_are_packed(project, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    steps = Steps()
    with pytest.raises(UsageError) as caught:
        publish_objects(project.saying(Settings(backends=tmp_path / "backends")), [], "s3://bucket/{digest}", steps)
    assert (caught.value.kind, steps.seen) == ("obstore-missing", [])
    assert caught.value.message.startswith("s3://bucket/{digest} needs obstore")


def test_the_layout_of_an_absent_model_leaves_no_folder(project, tmp_path):
    with pytest.raises(InputError, match="absent"):
        lay_out(project, ["absent"], tmp_path / "tree", NoProgress())
    assert not (tmp_path / "tree").exists()


def test_an_object_store_gets_the_models_that_are_named(plain, tmp_path):
    (tmp_path / "remote").mkdir()
    steps = Steps()
    done = publish_objects(plain, ["late"], f"file://{tmp_path}/remote", steps)
    count, size = len(done.published.sent), done.published.size
    step, result = steps.seen
    assert step == f"publish 1 model to file://{tmp_path}/remote"
    assert result.startswith("to send: 5 files")
    assert result.endswith(f": {count} files, {size / 1e6:.1f} MB")
    assert done.url == f"file://{tmp_path}/remote"
    assert done.command == ("tritonserver", f"--model-repository={tmp_path}/remote")
    assert done.pruned == ()
    assert {path.split("/")[0] for path in done.published.sent} == {"late"}


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        ("models", "models/{digest}", "lies in file://ROOT/models"),
        ("models", "models/team/more", "lies in file://ROOT/models"),
        ("models/v1", "models", "holds v1"),
        ("models/team/v1", "models", "holds team/v1"),
    ],
)
def test_a_publication_is_in_no_other(plain, tmp_path, first, second, where):
    """A server that loads all of the outer one ends: the inner one is no model."""
    publish_objects(plain, ["late"], f"file://{tmp_path}/{first}", NoProgress())
    with pytest.raises(UsageError) as caught:
        publish_objects(plain, ["late"], f"file://{tmp_path}/{second}", NoProgress(), dry_run=True)
    said = f"it {where}, another publication, and a server takes the inner one of both for a model"
    assert (caught.value.kind, caught.value.message) == ("output-inside", said.replace("ROOT", str(tmp_path)))


@pytest.mark.parametrize(
    "place", ["repository", "repository/late/{digest}", "repository/new/{digest}", "link", "elsewhere/linked/x"]
)
def test_models_are_not_published_into_their_own_repository(plain, tmp_path, place):
    (tmp_path / "link").symlink_to("repository")
    (tmp_path / "elsewhere").mkdir()
    (plain.repository / "early").rename(tmp_path / "elsewhere/linked")
    (plain.repository / "early").symlink_to(tmp_path / "elsewhere/linked")
    before = sorted(plain.repository.rglob("*"))
    url = f"file://{tmp_path}/{place}"
    with pytest.raises(UsageError) as raised:
        publish_objects(plain, ["late", "early"], url, NoProgress())
    error = raised.value
    assert (error.kind, error.where) == ("output-inside", url)
    assert error.message.startswith("models cannot be published into their own repository")
    assert error.hint == f"give a folder outside of {plain.repository}"
    assert sorted(plain.repository.rglob("*")) == before


def test_models_are_published_beside_their_repository(plain, tmp_path):
    done = publish_objects(plain, ["late"], f"file://{tmp_path}", NoProgress())
    assert (tmp_path / "late/1/model.py").is_file()
    assert len(done.published.sent) == 5


def test_a_model_that_is_gone_is_removed_if_all_are_published(plain, tmp_path):
    (tmp_path / "remote").mkdir()
    url = f"file://{tmp_path}/remote"
    publish_objects(plain, (), url, NoProgress())
    (plain.repository / "late/1/more.py").write_text("x")
    publish_objects(plain, ["late"], url, NoProgress(), delete=True)
    assert (tmp_path / "remote/early/1/model.py").exists(), "the others were not asked for"
    (plain.repository / "late/1/more.py").unlink()
    publish_objects(plain, (), url, NoProgress())
    assert (tmp_path / "remote/late/1/more.py").exists()
    publish_objects(plain, (), url, NoProgress(), delete=True)
    assert not (tmp_path / "remote/late/1/more.py").exists()


def test_a_dry_run_sends_nothing_and_prunes_nothing(plain, tmp_path):
    (tmp_path / "remote").mkdir()
    url = f"file://{tmp_path}/remote/{{digest}}"
    first = publish_objects(plain, (), url, NoProgress())
    (plain.repository / "late/1/model.py").write_text("changed")
    planned = publish_objects(plain, (), url, NoProgress(), dry_run=True, prune=1)
    assert planned.published.sent
    assert (planned.pruned, planned.url != first.url) == ((), True)
    folders = {path.parent for path in (tmp_path / "remote").rglob("*") if path.is_file()}
    assert {str(folder.relative_to(tmp_path / "remote")).split("/")[0] for folder in folders} == {
        first.url.rpartition("/")[2]
    }


def test_a_file_that_others_wrote_is_replaced_by_force_only(plain, tmp_path):
    (tmp_path / "remote/late/1").mkdir(parents=True)
    (tmp_path / "remote/late/1/model.py").write_text("foreign")
    url = f"file://{tmp_path}/remote"
    with pytest.raises(InputError, match="late/1/model.py would be replaced"):
        publish_objects(plain, (), url, NoProgress())
    publish_objects(plain, (), url, NoProgress(), force=True)
    assert (tmp_path / "remote/late/1/model.py").read_text() == "code"


def test_models_are_signed_with_each_key(plain, tmp_path):
    (tmp_path / "remote").mkdir()
    private, _ = write_pair(tmp_path)
    publish_objects(plain, ["late"], f"file://{tmp_path}/remote", NoProgress(), sign=[private])
    envelope = json.loads((tmp_path / "remote/late/.envpack-statement.json").read_text())
    assert len(envelope["signatures"]) == 1


def test_options_of_another_kind_of_address_say_what_to_use_instead(plain, tmp_path):
    with pytest.raises(UsageError) as raised:
        publish_objects(plain, (), f"file://{tmp_path}/{{digest}}", NoProgress(), delete=True)
    error = raised.value
    assert error.message == "nothing is replaced at an address with {digest}, so there is nothing to delete"
    assert error.hint == "leave --delete out; --prune N removes publications that newer ones have replaced"
    with pytest.raises(UsageError) as raised:
        publish_objects(plain, (), f"file://{tmp_path}", NoProgress(), prune=1)
    error = raised.value
    assert error.message == "--prune is for an address with {digest}, where each publication has its own"
    assert error.hint == "write s3://bucket/models/{digest}, or use --delete"
    with pytest.raises(UsageError, match="prune is -1"):
        publish_objects(plain, (), f"file://{tmp_path}/{{digest}}", NoProgress(), prune=-1)


# A registry


def test_a_registry_gets_an_image_that_can_be_pulled_and_inspected(project, registry, address, tmp_path):
    private, public = write_pair(tmp_path)
    project = project.saying(Settings(backends=tmp_path / "backends"))
    planned = publish_to_registry(project, (), f"oci://{address}", NoProgress(), dry_run=True, sign=[private])
    assert not registry.manifests
    done = publish_to_registry(project, (), f"oci://{address}", NoProgress(), sign=[private])
    assert (planned.sent[:-1], done.sent[-1]) == (done.sent[:-1], "signature")
    trust = read_trust([public])
    (tmp_path / "pulled").mkdir()
    pulled = pull_image(parse_image_address(f"oci://{address}"), tmp_path / "pulled", NoProgress(), trust=trust)
    assert sorted(path.name for path in pulled.models.iterdir()) == ["both", "early", "late"]
    steps = Steps()
    found = inspect_image(f"oci://{address}", Settings(), trust, steps, strict=False)
    assert steps.seen[0] == f"fetch oci://{address}: signed"
    assert sorted(found.found.models) == ["both", "early", "late"]
    steps = Steps()
    assert inspect_image(f"oci://{address}", Settings(), None, steps, strict=False).ok == found.ok
    assert steps.seen[0] == f"fetch oci://{address}: "


def test_a_base_image_is_named_by_its_digest_and_an_image_by_a_tag(project, registry, address, tmp_path):
    project = project.saying(Settings(backends=tmp_path / "backends"))
    with pytest.raises(UsageError, match="it has no digest"):
        publish_to_registry(project, (), f"oci://{address}", NoProgress(), base=f"oci://{address}")
    with pytest.raises(UsageError, match="it has a digest"):
        publish_to_registry(project, (), f"oci://{address.name}@sha256:{'0' * 64}", NoProgress())


@pytest.mark.parametrize(("place", "evidence"), [("models", []), ("mo dels", ["warning"])])
def test_a_verdict_warns_of_an_address_from_which_no_server_serves(plain, tmp_path, monkeypatch, place, evidence):
    """What the server of `verify` loads is a copy."""
    publish_objects(plain, ["late"], f"file://{tmp_path}/{place}", NoProgress())
    monkeypatch.setattr("envpack.verification.published.verify", lambda *_, **__: replace(full_verdict(), ok=True))
    found = verify_published(parse_location(f"file://{tmp_path}/{place}"))
    assert [check.status for check in found.checks if check.id == "published"] == evidence
    assert found.ok

"""Publishing a repository: only what changed is sent, configurations last, and nothing of others is touched."""

import hashlib
import json
import os
import shutil

import pytest

from envpack.archive import Selection, pack_archive, place_folder
from envpack.deployment import (
    Publication,
    PublishedFile,
    check_signed,
    copy_publication,
    plan_deployment,
    publish,
    published_files,
)
from envpack.deployment.objects import digests
from envpack.deployment.objects.record import OWN, RECORD
from envpack.deployment.signing import opened, read_public_key, read_signing_key
from envpack.deployment.statements import parse_statement, read_trust
from envpack.repository import get_string_parameter, in_model_folder, open_model, parse_config, point_to_environment
from envpack.settings import Settings
from envpack.store import Objects, parse_location
from envpack.support.errors import EnvpackError, InputError, ModelsError, StorageError
from envpack.support.progress import NoProgress
from tests.faults.command_line import assert_refused, envpack
from tests.signing_keys import write_pair
from tests.unit.archive.conftest import Prefixes


class Noted(Objects):
    """Notes what is written and removed, in order; writing a path in ``broken`` fails."""

    def __init__(self, location):
        super().__init__(location)
        self.written, self.removed, self.broken = [], [], ""

    def _note(self, path):
        if path == self.broken:
            raise KeyboardInterrupt
        if not path.startswith(OWN):
            self.written.append(path)

    def write(self, path, content):
        self._note(path)
        return super().write(path, content)

    def upload(self, path, content):
        self._note(path)
        return super().upload(path, content)

    def delete(self, paths):
        self.removed += [path for path in paths if not path.startswith(OWN)]
        super().delete(paths)


@pytest.fixture
def objects(tmp_path):
    (tmp_path / "remote").mkdir()
    return Noted(parse_location(f"file://{tmp_path}/remote"))


@pytest.fixture
def remote(objects):
    return objects.location.folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def publication(**contents):
    """Objects by path, where ``m__x`` stands for ``m/x``; configurations last."""
    files = [PublishedFile(name.replace("__", "/"), content=text.encode()) for name, text in contents.items()]
    return Publication(tuple(sorted(files, key=lambda file: file.path.endswith("model.py"))), ())


def config(model, text="a"):
    return {f"{model}__1__model.py": text, f"{model}__config.pbtxt": text}


def below(remote):
    found = (str(path.relative_to(remote)) for path in remote.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(OWN))


def test_what_a_server_acts_on_is_sent_last_and_model_by_model(objects, remote):
    siblings = {"a__1__helper.py": "a", "b__1__helper.py": "b", "a__weights.bin": "a"}
    done = publish(publication(**config("a"), **config("b"), **siblings), objects)
    assert sorted(objects.written[:3]) == ["a/1/helper.py", "a/weights.bin", "b/1/helper.py"]
    for model in ("a", "b"):
        of_model = [path for path in objects.written[3:] if path.startswith(model)]
        assert of_model == [f"{model}/config.pbtxt", f"{model}/1/model.py"]
    assert below(remote) == sorted(done.sent)
    assert (len(done.sent), done.unchanged, done.size) == (7, 0, 7)


def test_what_is_there_is_not_sent_again(objects):
    publish(publication(**config("a"), **config("b")), objects)
    objects.written.clear()
    done = publish(publication(**config("a"), **config("b", "changed")), objects)
    assert (sorted(objects.written), done.unchanged) == (["b/1/model.py", "b/config.pbtxt"], 2)
    objects.written.clear()
    done = publish(publication(**config("a"), **config("b", "changed")), objects)
    assert (objects.written, done.sent, done.unchanged) == ([], (), 4)


def test_what_is_going_to_be_sent_is_said_before(objects):
    said = []

    class Said(NoProgress):
        def detail(self, text):
            said.append((len(objects.written), text))

    environment = "e" * 5_000_000
    models = publication(a__environment=environment, b__environment=environment, **config("a"))
    publish(models, objects, progress=Said())
    assert said == [(0, "to send: 4 files, 10.0 MB, of them 5.0 MB the content of another file")]


def test_a_dry_run_changes_nothing(objects, remote):
    done = publish(publication(**config("a")), objects, dry_run=True)
    assert done.sent == ("a/config.pbtxt", "a/1/model.py")
    assert os.listdir(remote) == []
    publish(publication(**config("a")), objects)
    done = publish(publication(**config("b")), objects, dry_run=True, delete=True)
    assert sorted(done.removed) == ["a/1/model.py", "a/config.pbtxt"]
    assert below(remote) == ["a/1/model.py", "a/config.pbtxt"]


def test_what_went_stays_until_it_is_to_be_deleted(objects, remote):
    publish(publication(**config("a"), **config("b")), objects)
    done = publish(publication(**config("b")), objects)
    assert (done.removed, sorted(done.outdated)) == ((), ["a/1/model.py", "a/config.pbtxt"])
    done = publish(publication(**config("b")), objects, delete=True)
    assert (sorted(done.removed), done.outdated) == (["a/1/model.py", "a/config.pbtxt"], ())
    assert objects.removed == ["a/1/model.py", "a/config.pbtxt"]
    assert below(remote) == ["b/1/model.py", "b/config.pbtxt"]


def test_other_models_are_no_concern_of_some(objects, remote):
    publish(publication(**config("a"), **config("b")), objects)
    done = publish(publication(**config("b", "new")), objects, only=["b"], delete=True)
    assert (done.removed, done.outdated) == ((), ())
    assert len(below(remote)) == 4
    done = publish(publication(**config("a"), **config("b", "new")), objects)
    assert (done.sent, done.unchanged) == ((), 4)


def test_what_went_from_one_of_several_models_is_removed_with_that_one_only(objects, remote):
    publish(publication(**config("a"), **config("b")), objects)
    done = publish(publication(**{"a/config.pbtxt": "a"}), objects, only=["a"], delete=True)
    assert done.removed == ("a/1/model.py",)
    assert below(remote) == ["a/config.pbtxt", "b/1/model.py", "b/config.pbtxt"]


def test_what_others_wrote_is_neither_replaced_nor_removed(objects, remote):
    (remote / "a").mkdir()
    (remote / "a/config.pbtxt").write_text("of somebody")
    (remote / "notes.txt").write_text("of somebody")
    with pytest.raises(InputError) as raised:
        publish(publication(**config("a")), objects)
    assert raised.value.kind == "published-not-ours"
    assert below(remote) == ["a/config.pbtxt", "notes.txt"]
    publish(publication(**config("a")), objects, force=True)
    publish(publication(**config("b")), objects, delete=True)
    assert below(remote) == ["b/1/model.py", "b/config.pbtxt", "notes.txt"]


def test_what_others_changed_since_is_neither_replaced_nor_removed(objects, remote):
    publish(publication(**config("a"), **config("b")), objects)
    (remote / "a/config.pbtxt").write_text("changed by somebody")
    with pytest.raises(InputError) as raised:
        publish(publication(**config("a"), **config("b")), objects)
    assert raised.value.kind == "published-not-ours"
    done = publish(publication(**config("b")), objects, delete=True)
    assert (done.removed, done.outdated) == (("a/1/model.py",), ("a/config.pbtxt",))
    assert (remote / "a/config.pbtxt").read_text() == "changed by somebody"


@pytest.mark.parametrize("at", ["b/1/model.py", "a/config.pbtxt", "b/config.pbtxt"])
def test_a_publication_that_was_interrupted_can_be_repeated(objects, remote, at):
    publish(publication(**config("a")), objects)
    objects.broken = at
    new = publication(**config("a", "new"), **config("b", "new"))
    with pytest.raises(KeyboardInterrupt):
        publish(new, objects)
    objects.broken = ""
    publish(new, objects)
    assert {(remote / name).read_text() for name in below(remote)} == {"new"}
    assert publish(new, objects).sent == ()
    assert json.loads((remote / RECORD).read_text())["pending"] == {}


def test_a_model_that_only_an_interrupted_publication_sent_can_be_removed(objects, remote):
    objects.broken = "b/config.pbtxt"
    with pytest.raises(KeyboardInterrupt):
        publish(publication(**config("a"), **config("b")), objects)
    objects.broken = ""
    publish(publication(**config("a")), objects, delete=True)
    assert below(remote) == ["a/1/model.py", "a/config.pbtxt"]


def test_two_publications_at_once_are_noticed(objects, remote, monkeypatch):
    """The lease of the other one has expired, but it goes on."""
    create = objects.create

    def late(path, content):
        return create(path, b"of the other") if path == RECORD else create(path, content)

    monkeypatch.setattr(objects, "create", late)
    with pytest.raises(StorageError) as raised:
        publish(publication(**config("a")), objects)
    assert raised.value.kind == "publication-conflict"
    assert below(remote) == []


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 2}', '{"schema": 1, "files": {"a": 1}, "pending": {}}'])
def test_a_damaged_record_is_refused_unless_everything_is_sent_again(objects, remote, content):
    (remote / RECORD).write_text(content)
    with pytest.raises(StorageError) as raised:
        publish(publication(**config("a")), objects)
    assert raised.value.kind == "store-corrupt"
    publish(publication(**config("a")), objects, force=True)
    assert publish(publication(**config("a")), objects).sent == ()


def test_a_file_that_changes_while_it_is_published_is_an_error(objects, tmp_path):
    file = tmp_path / "model.py"
    file.write_text("before")
    with pytest.raises(StorageError, match="changed while") as raised:
        publish(Publication((PublishedFile("a/1/model.py", file, sha256="0" * 64),), ()), objects)
    assert raised.value.kind == "file-unusable"


def test_a_copy_is_what_was_published(objects, remote, tmp_path):
    publish(publication(**config("a")), objects)
    assert copied(objects, tmp_path).compared
    assert below(tmp_path / "copy") == ["a/1/model.py", "a/config.pbtxt"]
    for change in (
        lambda file: file.write_text("b"),
        lambda file: file.write_text("longer"),
        lambda file: file.unlink(),
    ):
        change(remote / "a/1/model.py")
        with pytest.raises(InputError) as raised:
            copied(objects, tmp_path)
        assert raised.value.kind == "published-changed"


def test_without_its_record_nothing_is_compared(objects, remote, tmp_path):
    publish(publication(**config("a")), objects)
    (remote / RECORD).unlink()
    (remote / "a/1/model.py").write_text("changed")
    assert not copied(objects, tmp_path).compared


def test_half_a_publication_is_refused_until_it_is_repeated(objects, remote, tmp_path):
    publish(publication(**config("a")), objects)
    new = publication(**config("a", "new"), **config("b", "new"))
    objects.broken = "b/1/model.py"
    with pytest.raises(KeyboardInterrupt):
        publish(new, objects)
    objects.broken = ""
    with pytest.raises(InputError, match="a publication has not ended") as raised:
        copied(objects, tmp_path)
    assert raised.value.kind == "published-changed"
    publish(publication(**config("a", "new")), objects)
    with pytest.raises(InputError, match="b/config.pbtxt") as raised:
        copied(objects, tmp_path)
    assert "--delete" in raised.value.hint
    publish(publication(**config("a", "new")), objects, delete=True)
    assert copied(objects, tmp_path).files == 2


def test_a_model_that_another_program_put_beside_is_refused(objects, remote, tmp_path):
    """A server would load it."""
    publish(publication(**config("a")), objects)
    _written("c/config.pbtxt", "")(remote)
    with pytest.raises(InputError, match="c/config.pbtxt was not published"):
        copied(objects, tmp_path)


def test_an_address_with_a_record_and_nothing_else_is_refused(objects, remote, tmp_path):
    publish(publication(**config("a")), objects)
    publish(publication(), objects, delete=True)
    with pytest.raises(InputError, match="nothing is published there"):
        copied(objects, tmp_path)


@pytest.fixture
def keys(tmp_path):
    return write_pair(tmp_path)


def copied(objects, tmp_path, public=None):
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    (tmp_path / "copy").mkdir()
    return copy_publication(objects, tmp_path / "copy", NoProgress(), trust=read_trust([public] if public else []))


def test_each_model_gets_a_signed_statement_and_an_unchanged_one_is_not_sent_again(objects, remote, keys, tmp_path):
    key = read_signing_key(keys[0])
    done = publish(publication(**config("a"), **config("b")), objects, keys=[key])
    assert done.sent[:2] == (SIGNED, "b/.envpack-statement.json")
    assert publish(publication(**config("a"), **config("b")), objects, keys=[key]).sent == ()
    copied(objects, tmp_path, keys[1])
    again = publish(publication(**config("a", "new"), **config("b")), objects, keys=[key])
    assert sorted(again.sent) == ["a/.envpack-statement.json", "a/1/model.py", "a/config.pbtxt"]
    copied(objects, tmp_path, keys[1])
    assert (tmp_path / "copy/a/1/model.py").read_text() == "new"


SIGNED = "a/.envpack-statement.json"


def _written(name, text):
    def change(remote):
        (remote / name).parent.mkdir(parents=True, exist_ok=True)
        (remote / name).write_text(text)

    return change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param(_written("a/1/model.py", "b"), "published-changed", id="one byte"),
        pytest.param(_written("a/2/model.py", "a"), "published-changed", id="one more version"),
        pytest.param(_written("a/.envpack-statement.json", "{}"), "signature-invalid", id="damaged statement"),
        pytest.param(_written("c/config.pbtxt", "a"), "signature-invalid", id="one more model"),
        pytest.param(lambda remote: (remote / "a/1/model.py").unlink(), "published-changed", id="one less"),
        pytest.param(
            lambda remote: (remote / "a/.envpack-statement.json").unlink(), "signature-invalid", id="unsigned"
        ),
        pytest.param(
            lambda remote: shutil.copy(remote / "b/.envpack-statement.json", remote / "a"),
            "signature-invalid",
            id="statement of another model",
        ),
    ],
)
def test_what_is_not_as_it_was_signed_is_refused(objects, remote, keys, tmp_path, change, kind):
    publish(publication(**config("a"), **config("b")), objects, keys=[read_signing_key(keys[0])])
    change(remote)
    with pytest.raises(InputError) as raised:
        copied(objects, tmp_path, keys[1])
    assert raised.value.kind == kind
    assert raised.value.where


def test_the_record_does_not_count_where_a_signature_is_required(objects, remote, keys, tmp_path):
    """An intruder who may write changes a file and the record, but cannot sign."""
    publish(publication(**config("a")), objects, keys=[read_signing_key(keys[0])])
    publish(publication(**config("a", "evil")), objects, only=["b"])
    copied(objects, tmp_path)
    with pytest.raises(InputError) as raised:
        copied(objects, tmp_path, keys[1])
    assert raised.value.kind == "published-changed"
    publish(publication(**config("a", "evil")), objects, keys=[read_signing_key(write_pair(tmp_path, "other")[0])])
    with pytest.raises(InputError) as raised:
        copied(objects, tmp_path, keys[1])
    assert raised.value.kind == "signature-invalid"


@pytest.fixture
def downloaded(objects, remote, keys):
    """The folder of an object store is what a download of it is."""
    publish(publication(**config("a"), **config("b")), objects, keys=[read_signing_key(keys[0])])
    (remote / RECORD).unlink()
    return remote


def test_downloaded_models_are_compared_with_what_was_signed(downloaded, keys):
    trust = read_trust([keys[1]])
    places = {".": 4, "a": 2, "a/1": 1, "a/1/model.py": 1}
    assert {place: check_signed(downloaded / place, trust) for place in places} == places


@pytest.mark.parametrize(
    ("change", "place", "kind"),
    [
        (_written("a/1/model.py", "b"), ".", "published-changed"),
        (_written("a/1/model.py", "b"), "a/1/model.py", "published-changed"),
        (_written("a/2/model.py", "a"), "a", "published-changed"),
        (lambda folder: (folder / "a/1/model.py").unlink(), "a", "published-changed"),
        (_written(SIGNED, "{}"), "a", "signature-invalid"),
        (lambda folder: (folder / SIGNED).unlink(), ".", "signature-invalid"),
        (lambda folder: (folder / SIGNED).unlink(), "a/1/model.py", "signature-invalid"),
        (lambda folder: shutil.move(folder / "a", folder / "c"), "c", "signature-invalid"),
    ],
)
def test_downloaded_models_that_differ_are_refused(downloaded, keys, change, place, kind):
    change(downloaded)
    with pytest.raises(InputError) as raised:
        check_signed(downloaded / place, read_trust([keys[1]]))
    assert raised.value.kind == kind
    ended = envpack("inspect", downloaded / place, "--require-signature", keys[1], "--json")
    assert_refused(ended, 3, kind)


def test_what_others_put_into_a_published_model_is_refused(objects, remote, tmp_path):
    publish(publication(**config("a")), objects)
    _written("a/2/model.py", "a")(remote)
    with pytest.raises(InputError, match="a/2/model.py was not published"):
        copied(objects, tmp_path)


@pytest.fixture
def repository(project, tmp_path, cache):
    """The repository of other tests; one model has an environment of the cache as a folder, another as an archive."""
    environment = Prefixes(cache / "environments").make("one")
    selection = Selection(exclude=("/lib/nothing",))
    for model, place in (("early", "python3.8"), ("late", "python3.8.tar.gz")):
        folder = project.repository / model
        shutil.rmtree(folder / "python3.8")
        if place.endswith(".gz"):
            pack_archive(environment, folder / place)
        else:
            place_folder(environment, folder / place, selection, served_as=str(folder / place))
        point_to_environment(open_model(folder), in_model_folder(place))
    (project.repository / "late/requirements.txt").write_text("--index-url https://me:word@example.org/simple\nx\n")
    (project.repository / "early/requirements.txt").write_text("--index-url https://example.org/simple?a=b\nx\n")
    return project


@pytest.fixture
def described(repository, release, tmp_path):
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    with published_files(plan, NoProgress()) as publication:
        yield publication


def test_custom_configurations_name_the_archives_too(repository, release, tmp_path, objects):
    network = 'platform: "onnxruntime_onnx"\n'
    for model, text in (("early", 'backend: "python_3_8"\n'), ("late", 'backend: "python"\n'), ("both", network)):
        (repository.repository / model / "configs").mkdir()
        (repository.repository / model / "configs/large.pbtxt").write_text(f"{text}max_batch_size: 64\n")
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    with published_files(plan, NoProgress()) as publication:
        publish(publication, objects)
    for model in ("both", "early", "late"):
        configs = [path for path in objects.written if path.startswith(f"{model}/") and path.endswith(".pbtxt")]
        assert configs == [f"{model}/configs/large.pbtxt", f"{model}/config.pbtxt"]
    assert objects.written[-2:] == ["both/configs/large.pbtxt", "both/config.pbtxt"]
    for model in ("early", "late"):
        files = [objects.location.folder / model / name for name in ("config.pbtxt", "configs/large.pbtxt")]
        configs = [parse_config(file.read_text(), file) for file in files]
        assert [config.backend for config in configs] == ["python", "python"]
        assert len({get_string_parameter(config, "EXECUTION_ENV_PATH") for config in configs}) == 1
    assert (objects.location.folder / "both/configs/large.pbtxt").read_text() == f"{network}max_batch_size: 64\n"


def test_environments_are_archives_in_the_folders_of_their_models(described, objects, remote):
    publish(described, objects)
    names = below(remote)
    for model in ("early", "late"):
        (archive,) = [name for name in names if name.startswith(f"{model}/python3.8")]
        assert archive.endswith(".tar.gz")
        assert (
            f'"$$TRITON_MODEL_DIRECTORY/{archive.partition("/")[2]}"' in (remote / model / "config.pbtxt").read_text()
        )
    assert [name for name in names if "python3.8" not in name] == [
        "both/1/.envpack-keep",
        "both/config.pbtxt",
        "early/1/model.py",
        "early/config.pbtxt",
        "early/requirements.txt",
        "early/triton_python_backend_stub",
        "late/1/model.py",
        "late/config.pbtxt",
        "late/triton_python_backend_stub",
    ]


def test_a_backend_for_one_python_becomes_a_stub_beside_the_model(described, objects, remote):
    publish(described, objects)
    assert 'backend: "python"' in (remote / "early/config.pbtxt").read_text()


def test_an_ensemble_comes_after_its_members(described, objects):
    publish(described, objects)
    assert objects.written[-1] == "both/config.pbtxt"


def test_models_of_other_backends_are_published_as_they_are(repository, release, tmp_path, objects, remote):
    net, bare = repository.repository / "net", repository.repository / "bare"
    for folder in (net, bare):
        (folder / "1").mkdir(parents=True)
        (folder / "1/model.onnx").write_bytes(b"graph")
    (net / "config.pbtxt").write_bytes(b'platform: "onnxruntime_onnx" # as it is')
    (repository.repository / "both/1").rmdir()
    with published_files(
        plan_deployment(repository.saying(Settings(backends=tmp_path / "backends"))), NoProgress()
    ) as publication:
        publish(publication, objects)
    assert [name for name in below(remote) if name.split("/")[0] in ("net", "bare", "both")] == [
        "bare/1/model.onnx",
        "both/1/.envpack-keep",
        "both/config.pbtxt",
        "net/1/model.onnx",
        "net/config.pbtxt",
    ]
    assert (remote / "net/config.pbtxt").read_bytes() == b'platform: "onnxruntime_onnx" # as it is'


def test_files_with_credentials_are_left_out_and_named(described):
    assert "late/requirements.txt" not in [file.path for file in described.files]
    assert "late/requirements.txt contains credentials and is left out" in described.cautions


def test_another_environment_has_another_name(repository, release, tmp_path, cache):
    def archive_of_early():
        plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")), ["early"])
        with published_files(plan, NoProgress()) as found:
            return next(file.path for file in found.files if file.path.startswith("early/python3.8"))

    before = archive_of_early()
    assert archive_of_early() == before
    environment = Prefixes(cache / "environments").make("two", lambda prefix: (prefix / "lib/more").write_text("more"))
    folder = repository.repository / "early/python3.8"
    place_folder(environment, folder, Selection(), served_as=str(folder))
    assert archive_of_early() != before


def test_a_folder_whose_environment_the_cache_lacks_is_refused(repository, release, tmp_path, cache):
    shutil.rmtree(cache / "environments/one")
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    with pytest.raises(ModelsError) as raised, published_files(plan, NoProgress()):
        pass
    assert raised.value.kind == "environment-not-cached"


def test_what_is_no_file_is_refused(repository, release, tmp_path):
    os.mkfifo(repository.repository / "late/pipe")
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    with pytest.raises(EnvpackError) as raised, published_files(plan, NoProgress()):
        pass
    assert raised.value.kind == "special-file"


@pytest.mark.parametrize(
    "name", ["tab\t.py", "line\n.py", "escape\x1b.py", "delete\x7f.py", "byte\udcff.py", "/".join(["a" * 250] * 4)]
)
def test_a_name_that_no_object_store_holds_is_refused_before_anything_is_sent(repository, tmp_path, objects, name):
    file = repository.repository / "late" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    with pytest.raises(EnvpackError) as raised, published_files(plan, NoProgress()):
        pass
    assert raised.value.kind == "unpublishable-name"
    assert "\n" not in raised.value.message
    assert "\x1b" not in raised.value.message


def test_a_statement_names_the_packages_of_the_environment(described, objects, remote, keys):
    publish(described, objects, keys=[read_signing_key(keys[0])])
    statement = opened((remote / "late/.envpack-statement.json").read_bytes(), [read_public_key(keys[1])], "")
    assert set(parse_statement(statement).subjects) == {name for name in below(remote) if name.startswith("late/")} - {
        "late/.envpack-statement.json"
    }
    build = statement["predicate"]["buildDefinition"]
    assert build["externalParameters"] == {"model": "late", "triton": "24.10", "address": str(objects.location)}
    assert [package["name"] for package in build["resolvedDependencies"]] == ["x 1", "y 1"]


class TestDigests:
    """Digests of files are remembered, and forgotten with any change."""

    @pytest.fixture
    def file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(digests, "_SETTLED", 0)
        (tmp_path / "weights.bin").write_bytes(b"before")
        return tmp_path / "weights.bin"

    def digest(self, file):
        (described,) = digests.describe_files([PublishedFile("m/weights.bin", file)], "place")
        return described.sha256

    def test_an_unchanged_file_is_not_read_again(self, file, monkeypatch):
        before = self.digest(file)
        monkeypatch.setattr(digests, "_sha256", lambda *_: pytest.fail("it was read"))
        assert self.digest(file) == before

    def test_a_change_that_keeps_size_and_modification_time_is_noticed(self, file):
        before, status = self.digest(file), file.stat()
        file.write_bytes(b"after!")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
        assert self.digest(file) == hashlib.sha256(b"after!").hexdigest() != before

    def test_another_file_in_its_place_is_noticed(self, file, tmp_path):
        before, status = self.digest(file), file.stat()
        (tmp_path / "other").write_bytes(b"after!")
        os.utime(tmp_path / "other", ns=(status.st_atime_ns, status.st_mtime_ns))
        (tmp_path / "other").rename(file)
        assert self.digest(file) != before

    def test_what_has_just_been_written_is_read_again(self, file, monkeypatch):
        """Its next change may have the same time stamps."""
        monkeypatch.setattr(digests, "_SETTLED", 10**12)
        self.digest(file)
        monkeypatch.setattr(digests, "_sha256", lambda *_: "read")
        assert self.digest(file) == "read"

    def test_a_changed_file_is_never_signed_with_its_old_digest(self, file, objects, remote, keys, tmp_path):
        key = read_signing_key(keys[0])
        files = (PublishedFile("m/weights.bin", file), PublishedFile("m/1/model.py", content=b"a"))
        publish(Publication(files, ()), objects, keys=[key])
        status = file.stat()
        file.write_bytes(b"after!")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        publish(Publication(files, ()), objects, keys=[key])
        statement = opened((remote / "m/.envpack-statement.json").read_bytes(), [read_public_key(keys[1])], "")
        assert parse_statement(statement).subjects["m/weights.bin"] == hashlib.sha256(b"after!").hexdigest()
        copied(objects, tmp_path, keys[1])


def test_tests_samples_and_training_are_not_published(repository, tmp_path, objects):
    for name in ("tests/test_model.py", "envpack/smoke.json", "training/train.py", "test_it.py", "conftest.py"):
        (repository.repository / "late" / name).parent.mkdir(exist_ok=True)
        (repository.repository / "late" / name).write_text("for authors")
    for name in ("1/tests/data.py", "1/test_time.py", "tokenizer/vocabulary.txt"):
        (repository.repository / "late" / name).parent.mkdir(exist_ok=True)
        (repository.repository / "late" / name).write_text("for the model")
    project = repository.saying(Settings(backends=tmp_path / "backends"))
    with published_files(plan_deployment(project), NoProgress()) as found:
        publish(found, objects)
    texts = {name: (objects.location.folder / name).read_bytes() for name in below(objects.location.folder)}
    assert b"for authors" not in texts.values()
    assert [name for name, text in texts.items() if text == b"for the model"] == [
        "late/1/test_time.py",
        "late/1/tests/data.py",
        "late/tokenizer/vocabulary.txt",
    ]

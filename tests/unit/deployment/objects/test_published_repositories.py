"""What of a repository is published: environments as archives, configurations that name them, no files for authors."""

import shutil

import pytest

from envpack.archive.folder import place_folder
from envpack.archive.selection import Selection
from envpack.deployment.objects.content import published_files
from envpack.deployment.objects.send import publish
from envpack.deployment.plan import plan_deployment
from envpack.repository.config import parse_config
from envpack.repository.config_editor import get_string_parameter
from envpack.repository.model import open_model
from envpack.repository.placement import in_model_folder, point_to_environment
from envpack.settings.table import Settings
from envpack.support.errors import EnvpackError
from envpack.support.progress import NoProgress
from tests.unit.archive.conftest import Prefixes
from tests.unit.deployment.objects.publications import below


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
    assert [text for text in described.cautions if text.startswith("late/requirements.txt is left out: line ")]


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


@pytest.mark.parametrize(
    ("scheme", "name", "fix"),
    [
        *(("az", name, "no backslash, and no") for name in ("back\\slash.py", "dot.", "folder./a.py")),
        *(("file", name, "no '#' before digits") for name in ("a.bin#1", "#12", "folder#1/b#2")),
    ],
)
def test_a_name_that_one_kind_of_store_alters_is_refused_there_alone(repository, tmp_path, scheme, name, fix):
    file = repository.repository / "late" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    with published_files(plan, NoProgress(), scheme="gs") as found:
        assert f"late/{name}" in {entry.path for entry in found.files}
    with pytest.raises(EnvpackError) as raised, published_files(plan, scheme=scheme):
        pass
    assert raised.value.kind == "unpublishable-name"
    assert fix in raised.value.hint


def test_models_can_share_an_archive(repository, tmp_path):
    """`early` has the same files as a folder, less one; `twin` and `late` have the same archive under two names."""
    late, twin = (repository.repository / name for name in ("late", "twin"))
    shutil.copytree(late, twin)
    (twin / "python3.8.tar.gz").rename(twin / "own.tar.gz")
    point_to_environment(open_model(twin), in_model_folder("own.tar.gz"))
    plan = plan_deployment(repository.saying(Settings(backends=tmp_path / "backends")))
    with published_files(plan, NoProgress(), shares=True) as found:
        files = {file.path: file.content.decode() for file in found.files}
    archives = {path.partition("/")[0]: path for path in files if path.endswith(".tar.gz")}
    assert archives.keys() == {"early", "late"}
    assert f'"$$TRITON_MODEL_DIRECTORY/../{archives["late"]}"' in files["twin/config.pbtxt"]
    assert found.borrowed == {"twin": archives["late"]}
    with published_files(plan, NoProgress()) as found:
        assert len([file for file in found.files if file.path.endswith(".tar.gz")]) == 3


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

"""`envpack kubernetes build` prints one Job for each environment, and no secret."""

import json

import pytest
import yaml

from envpack.cli.main import run
from tests.kubernetes_schema import VERSIONS, check

STORE = "s3://bucket/envpack"


@pytest.fixture
def emit(tmp_path, capsys):
    def emit(*words, store=("--store", STORE)):
        place = ("--repository", str(tmp_path), "--python", "3.10", "--channel", "https://channel.example/conda")
        code = run(["kubernetes", "build", *place, *store, *words])
        return code, capsys.readouterr()

    return emit


@pytest.mark.parametrize("version", VERSIONS)
def test_equal_environments_share_a_job_and_all_is_valid(add_model, emit, version):
    for name, requirements in {"a": "numpy\n", "b": "scipy\n", "c": "numpy\n"}.items():
        add_model(name, requirements)
    code, shown = emit()
    assert code == 0
    documents = list(yaml.safe_load_all(shown.out))
    for document in documents:
        check(document, version)
    assert [document["kind"] for document in documents] == ["ConfigMap", "Job"] * 2
    first, first_job, second, second_job = (document["metadata"]["name"] for document in documents)
    assert first != second
    assert (first_job.startswith(first), second_job.startswith(second)) == (True, True)


def test_what_a_build_asks_for_is_part_of_the_name_of_its_job(add_model, emit):
    """A Job that has failed is none again under the same name."""
    add_model("a")
    names = [
        json.loads(emit(*words, "--json")[1].out)["jobs"][1]["metadata"]["name"]
        for words in ((), (), ("--set", "python_preference=managed"))
    ]
    assert (len(set(names)), names[0]) == (2, names[1])


def test_a_repository_without_requirements_has_nothing_to_build(add_model, tmp_path, capsys):
    folder = add_model("a")
    (folder / "requirements.txt").unlink()
    (folder / "env").mkdir()
    with (folder / "config.pbtxt").open("a") as config:
        config.write('parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env" } }')
    assert run(["kubernetes", "build", "--repository", str(tmp_path), "--store", STORE]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "nothing to build: no model has requirements of its own\n")


def test_a_job_names_the_store_the_image_and_the_secret(add_model, emit):
    add_model("a")
    _, shown = emit("--build-image", "registry.example/envpack:1", "--secret", "bucket", "--memory", "1g", "--json")
    config_map, job = json.loads(shown.out)["jobs"]
    assert json.loads(config_map["data"]["recipe.json"])["recipe"]["requirements"]["pip"] == ["numpy"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = container["command"]
    assert words[words.index("--store") + 1] == STORE
    assert container["image"] == "registry.example/envpack:1"
    assert container["envFrom"] == [{"secretRef": {"name": "bucket", "optional": True}}]
    assert container["resources"]["limits"]["memory"] == "1024Mi"
    _, default = emit("--json")
    (container,) = json.loads(default.out)["jobs"][1]["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("triton-envpack:")
    assert container["envFrom"][0]["secretRef"]["name"] == "envpack-store"


@pytest.mark.parametrize(
    "requirements", ["--index-url https://me:word@index.example/simple\nnumpy\n", "-e ./project\n"]
)
def test_what_must_not_travel_is_refused(add_model, emit, requirements):
    folder = add_model("a", requirements)
    (folder / "project").mkdir()
    (folder / "project/pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
    code, shown = emit()
    assert code == 3
    assert shown.out == ""
    assert "(not-portable)" in shown.err
    assert "word" not in shown.err.replace("password", "")


def test_requirements_outside_of_the_repository_travel_too(add_model, emit, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "base.txt"
    other.write_text("numpy\n")
    add_model("a", f"-r {other}\n")
    code, shown = emit("--json")
    assert code == 0
    (text,) = json.loads(shown.out)["jobs"][0]["data"].values()
    assert json.loads(text)["recipe"]["requirements"]["pip"] == ["numpy"]


def test_a_job_needs_a_store_that_other_machines_reach(add_model, emit, tmp_path):
    add_model("a")
    for store in ((), ("--store", f"file://{tmp_path}"), ("--store", f"file://{tmp_path}/absent")):
        code, shown = emit(store=store)
        assert (code, shown.out) == (2, "")
        assert "(fleet-needs-store)" in shown.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--emit", "kubernetes"), "use envpack kubernetes build"),
        (("--image", "x"), "use envpack kubernetes build --build-image"),
        (("--set", "store_only=true"), "store_only is for --on and --store"),
        (("--on", "local:2", "--set", "store_only=true"), "store_only is for --on and --store"),
    ],
)
def test_options_that_do_not_go_together_are_refused(add_model, tmp_path, capsys, words, says):
    add_model("a")
    assert run(["build", "--repository", str(tmp_path), *words]) == 2
    assert says in capsys.readouterr().err

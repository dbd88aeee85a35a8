"""What of a repository belongs to a deployment, entry by entry, and where it may be written."""

import json
import os
import re
from types import SimpleNamespace

import pytest

import envpack
from envpack.deployment import content, folder as module
from envpack.deployment.content import (
    ContentEntry,
    content_of,
    content_of_model,
    line_with_credentials,
    texts_with_credentials,
)
from envpack.deployment.folder import MANIFEST_NAME, assemble
from envpack.deployment.plan import plan_deployment
from envpack.repository.folders import is_for_authors
from envpack.support.errors import InputError, StorageError, UsageError
from tests.tables import every_row


@pytest.fixture
def plan(project, release):
    return plan_deployment(project, ["late"])


def test_each_entry_comes_after_its_folder_with_its_kind(tmp_path):
    folder, outside = tmp_path / "m", tmp_path / "outside"
    (folder / "env/bin").mkdir(parents=True)
    outside.mkdir()
    (outside / "data").write_text("x")
    (folder / "env/bin/.hidden").touch()
    (folder / "env/bin/python").symlink_to("/usr/bin/python3")
    (folder / ".git").mkdir()
    (folder / "program").touch(0o700)
    (folder / "file").touch(0o600)
    (folder / "inner").symlink_to("file")
    (folder / "outer").symlink_to(outside)
    (folder / "dangling").symlink_to("nowhere")
    assert [*content_of(folder, folder / "env")] == [
        ContentEntry("", "folder", folder),
        ContentEntry("dangling", "link", folder / "dangling", "nowhere"),
        ContentEntry("env", "folder", folder / "env", in_environment=True),
        ContentEntry("env/bin", "folder", folder / "env/bin", in_environment=True),
        ContentEntry("env/bin/.hidden", "file", folder / "env/bin/.hidden", in_environment=True),
        ContentEntry("env/bin/python", "link", folder / "env/bin/python", "/usr/bin/python3", in_environment=True),
        ContentEntry("file", "file", folder / "file"),
        ContentEntry("inner", "link", folder / "inner", "file"),
        ContentEntry("outer", "folder", outside),
        ContentEntry("outer/data", "file", outside / "data"),
        ContentEntry("program", "file", folder / "program", is_program=True),
    ]


def test_an_environment_that_is_a_link_is_followed_out_of_the_folder(tmp_path):
    folder, real = tmp_path / "m", tmp_path / "env"
    (real / "lib").mkdir(parents=True)
    folder.mkdir()
    (folder / "env").symlink_to(real)
    found = [(entry.path, entry.kind, entry.in_environment) for entry in content_of(folder, folder / "env")]
    assert found == [("", "folder", False), ("env", "folder", True), ("env/lib", "folder", True)]


@pytest.mark.parametrize("name", [".env", "a/.b/env", "envpack/env", "tests"])
def test_an_environment_is_deployed_from_any_place_in_the_folder(name, plan):
    model = SimpleNamespace(folder=plan.models[0].folder, environment=plan.models[0].folder / name)
    (model.environment / "lib").mkdir(parents=True)
    (model.environment / "lib/.hidden").touch()
    (model.environment.parent / ".other").touch()
    found = [entry.path for entry in content_of_model(model)]
    assert f"{name}/lib/.hidden" in found
    assert not [path for path in found if path.endswith(".other")]


@pytest.mark.parametrize("link", ["env", "zenv"])
def test_the_folder_that_an_environment_links_to_is_the_environment_too(link, plan):
    model = SimpleNamespace(folder=plan.models[0].folder, environment=plan.models[0].folder / link)
    model.environment.symlink_to("python3.8")
    found = {entry.path: (entry.kind, entry.in_environment) for entry in content_of_model(model)}
    assert found[link] == ("link", True)
    assert found["python3.8/bin/.hidden"] == ("file", True)


@every_row(
    ("target", "kind"),
    [
        ("real.bin", "link"),
        ("../1/real.bin", "link"),
        ("../data/real.bin", "link"),
        ("../python3.8/bin/.hidden", "link"),
        ("../training/real.bin", "file"),
        ("../envpack/real.bin", "file"),
        ("../.cache/real.bin", "file"),
        (".hidden/real.bin", "file"),
        ("../.visible/real.bin", "file"),
        ("../../late/1/real.bin", "file"),
        ("../python/real.bin", "file"),
        ("{folder}/1/real.bin", "file"),
        ("../training", "folder"),
    ],
)
def test_a_link_of_a_model_stays_only_if_it_leads_to_the_same_file_in_the_deployment(plan, tmp_path, target, kind):
    folder = plan.models[0].folder
    for place in ("1", "data", "training", "envpack", ".cache", "1/.hidden"):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / "real.bin").write_text(place)
    for link, place in ((".visible", "data"), ("python", "../early/1"), ("1/link.bin", target.format(folder=folder))):
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(place)
    (folder / "../early/1/real.bin").write_text("of another model")
    entries = {entry.path: entry for entry in content_of_model(plan.models[0])}
    assert entries["1/link.bin"].kind == kind
    assemble(plan, tmp_path / "tree")
    placed = tmp_path / "tree/models/late/1/link.bin"
    assert placed.is_dir() or placed.read_text() == (folder / "1/link.bin").read_text()


def test_a_link_in_a_folder_from_elsewhere_is_not_taken_for_one_of_the_model(plan, tmp_path):
    folder, outside = plan.models[0].folder, plan.models[0].folder.parent / "outside/below"
    outside.mkdir(parents=True)
    (outside.parent / "real.bin").write_text("outside")
    (outside / "link.bin").symlink_to("../real.bin")
    (folder / "data").symlink_to(outside)
    (folder / "real.bin").write_text("of the model")
    assemble(plan, tmp_path / "tree")
    assert (tmp_path / "tree/models/late/data/link.bin").read_text() == "outside"


def test_a_link_into_the_servers_own_backend_stays(tmp_path):
    (tmp_path / "python").mkdir()
    (tmp_path / "python/lib.so").touch()
    (tmp_path / "python_3_8").mkdir()
    (tmp_path / "python_3_8/lib.so").symlink_to("../python/lib.so")
    *_, link = content_of(tmp_path / "python_3_8")
    assert (link.kind, link.target) == ("link", "../python/lib.so")


@every_row(
    ("path", "expected"),
    [
        ("tests", True),
        ("tests/test_it.py", True),
        ("envpack/smoke.json", True),
        ("training/data", True),
        ("test_it.py", True),
        ("conftest.py", True),
        ("test_it.txt", False),
        ("1/test_it.py", False),
        ("1/tests/x", False),
        ("testing", False),
        ("model.py", False),
    ],
)
def test_what_is_for_authors_is_at_the_top(path, expected):
    assert is_for_authors(path) is expected


SECRET = "--index-url https://me:word@example.org/simple"


@every_row(
    ("name", "text", "expected"),
    [
        ("requirements.txt", SECRET, 1),
        ("a.in", f"x\n{SECRET}\ny", 2),
        ("pip.cfg", SECRET, 1),
        ("pip.conf", SECRET, 1),
        ("install.sh", f"pip install -i {SECRET} numpy", 1),
        ("a.json", f"{'x' * 5000}{SECRET}", 1),
        ("a.json", '{"docs":"https://example.org/x","index":"https://me:word@example.org/simple"}', 1),
        ("pip.conf", "extra-index-url=https://a.org/simple,https://me:word@example.org/simple", 1),
        ("a.json", f"http://a://://b ://c{'://' * 100_000} {SECRET}", 1),
        ("model.py", SECRET, 0),
        ("requirements.txt", "https://example.org/simple", 0),
        ("requirements.txt", "me:word@example.org", 0),
        ("requirements.txt", "", 0),
        ("vocab.txt", "http://@@ 2893\nhttps://a@@ 12\n", 0),
        ("requirements.txt", "# https://discuss.example.org/t/no-wheels/12345/2\nnumpy", 0),
        ("requirements.txt", "git+ssh://git@example.org/a.git\ngit+https://git@example.org/b.git", 0),
        ("requirements.txt", "git+ssh://deploy@example.org/a.git", 0),
        ("a.txt", "https://me:word@ is no address", 0),
        ("pip.conf", "index-url = https://${USER}:${TOKEN}@example.org/t/${TOKEN}/simple?sig=${SIG}", 0),
        ("a.json", '{"registry": "http://localhost:4873/@scope/package"}', 0),
        ("requirements.txt", "numpy\ngit+https://ghp_1@example.org/b.git", 2),
        ("pip.conf", "index-url = https://${USER}:word@example.org/simple", 1),
        ("pip.conf", "index-url = https://example.org/t/ab-12/channel", 1),
    ],
)
def test_texts_for_installers_are_searched_for_passwords(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert line_with_credentials(tmp_path / name) == expected


def test_environments_are_not_searched_for_passwords(plan):
    """They have thousands of files, which belong to packages."""
    (model,) = plan.models
    os.mkfifo(model.environment / "bin/pipe")  # which ends any walk through the environment
    (model.folder / "requirements.txt").write_text("--index-url https://me:word@example.org/simple")
    where = "line 1 has an address with a password or a token"
    caution = f"late/requirements.txt is left out: {where}; remove that if a server needs the file"
    assert texts_with_credentials(plan) == (caution,)
    with pytest.raises(InputError, match="neither a file nor a folder") as raised:
        [*content_of_model(model)]
    assert (raised.value.kind, raised.value.where) == ("special-file", str(model.environment / "bin/pipe"))


def test_a_text_is_searched_up_to_a_size(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(SECRET)
    for most, found in ((len(SECRET), True), (len(SECRET) - 1, False)):
        monkeypatch.setattr(content, "_MOST_TEXT", most)
        assert line_with_credentials(tmp_path / "a.txt") == found


def test_the_manifest_describes_all_for_people_and_programs(plan, tmp_path):
    manifest = assemble(plan, tmp_path / "tree")
    text = (tmp_path / "tree" / MANIFEST_NAME).read_text()
    assert manifest == {
        "schema": 1,
        "envpack": envpack.__version__,
        "triton": "24.10",
        "served_from": "/models",
        "models": [{"name": "late", "backend": "python", "environment": "python3.8", "stub": True}],
        "backends": [],
        "files": 4,
        "size": manifest["size"],
        "command": ["tritonserver", "--model-repository=/models"],
    }
    files = [path for path in (tmp_path / "tree/models").rglob("*") if path.is_file()]
    assert (manifest["files"], manifest["size"]) == (len(files), sum(path.lstat().st_size for path in files))
    keys = re.findall(r'^ "(\w+)":', text, re.MULTILINE)
    assert keys == sorted(manifest), "one on each line, in order"
    assert text.endswith("}\n")
    assert json.loads(text) == manifest


def test_the_environment_of_a_model_that_has_none_is_none(project, release, tmp_path):
    manifest = assemble(plan_deployment(project), tmp_path / "tree")
    assert manifest["models"][0] == {"name": "both", "backend": "", "environment": None, "stub": False}
    assert manifest["backends"] == [{"name": "python_3_8", "python": "3.8"}]


def test_a_copy_keeps_the_time_of_a_file(plan, tmp_path):
    for name, text in (("empty", ""), ("full", "x")):
        (plan.models[0].folder / "1" / name).write_text(text)
        os.utime(plan.models[0].folder / "1" / name, (1e9, 1e9))
    assemble(plan, tmp_path / "tree")
    for name, text in (("empty", ""), ("full", "x")):
        placed = tmp_path / "tree/models/late/1" / name
        assert (placed.read_text(), placed.stat().st_mtime) == (text, 1e9)


def test_a_file_that_does_not_fit_is_not_copied(plan, tmp_path, monkeypatch):
    (plan.models[0].folder / "1/weights").write_bytes(bytes(1000))
    for free in (1000, 999):
        monkeypatch.setattr(module.shutil, "disk_usage", lambda folder, free=free: SimpleNamespace(free=free))
        if free == 1000:
            assemble(plan, tmp_path / "tree")
            continue
        with pytest.raises(StorageError) as raised:
            assemble(plan, tmp_path / "other")
        assert raised.value.kind == "disk-full"
        assert not (tmp_path / "other").exists()


def test_a_place_that_is_not_envpacks_is_refused_with_a_remedy(plan, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    for name in ("file", "link", "full"):
        with pytest.raises(InputError) as raised:
            assemble(plan, tmp_path / name)
        error = raised.value
        assert (error.kind, error.where) == ("output-not-ours", str(tmp_path / name))
        assert error.message == "this exists, and `envpack layout` did not create it"
        assert error.hint == "give a folder that does not exist, or remove this one"
    (tmp_path / "empty").mkdir()
    assemble(plan, tmp_path / "empty")


def test_a_place_in_a_repository_of_links_is_refused(project, release, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (project.repository / "late").rename(tmp_path / "elsewhere/late")
    (project.repository / "late").symlink_to(tmp_path / "elsewhere/late")
    for place in (project.repository / "tree", tmp_path / "elsewhere/late/tree", tmp_path / "elsewhere"):
        with pytest.raises(UsageError) as raised:
            assemble(plan_deployment(project, ["late"]), place)
        assert (raised.value.kind, raised.value.where) == ("output-inside", str(place))


def test_a_place_in_the_repository_is_refused_with_a_remedy(plan, project, tmp_path):
    for place in (project.repository, project.repository / "tree", project.repository / "late/tree", tmp_path):
        with pytest.raises(UsageError) as raised:
            assemble(plan, place)
        error = raised.value
        assert (error.kind, error.where) == ("output-inside", str(place))
        assert error.message == "the output folder cannot be inside the repository or contain it"
        assert error.hint == f"give a folder outside of {project.repository}"

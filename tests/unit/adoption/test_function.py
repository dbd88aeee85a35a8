"""The sources of a function: parsed, never imported."""

import pytest

from envpack.adoption import inspect_artifact
from envpack.support.errors import InputError

TRAP = "raise SystemExit\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(
        f"import json\nimport helper\nfrom lib.deep import x\nimport PIL\n{TRAP}def f(): ...\n"
    )
    (tmp_path / "helper.py").write_text("import sklearn.svm\nimport app\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/__init__.py").write_text("from . import deep\n")
    (tmp_path / "lib/deep.py").write_text("import yaml\n")
    (tmp_path / "unrelated.py").write_text("import torch\n")
    return tmp_path


def test_what_its_module_imports_comes_along(folder):
    found = inspect_artifact("app:f")
    assert found.files == {"app.py": folder / "app.py", "helper.py": folder / "helper.py", "lib": folder / "lib"}
    assert sorted(found.requirements["requirements.txt"].split()) == ["numpy", "pillow", "pyyaml", "scikit-learn"]


def test_a_module_of_a_package(folder):
    (folder / "lib/deep.py").write_text("def g(): ...\n")
    found = inspect_artifact("lib.deep:g")
    assert (found.source, found.files) == (folder / "lib/deep.py", {"lib": folder / "lib"})


def test_requirements_of_the_folder_count_more(folder):
    (folder / "requirements.txt").write_text("numpy<2\n-r more.txt\n")
    (folder / "more.txt").write_text("pillow\n")
    found = inspect_artifact("app:f", python="3.9").requirements
    assert found.pop("python_env.yaml") == "python: '3.9'\ndependencies:\n- -r requirements.txt\n"
    assert found == {name: folder / name for name in ("requirements.txt", "more.txt")}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("app:g", "no function g"),
        ("later:f", "a coroutine"),
        ("nowhere:f", "no module nowhere"),
        ("model:f", "called model"),
        ("wrong:f", "not Python"),
    ],
)
def test_what_is_no_function_is_refused(folder, name, says):
    (folder / "model.py").write_text("def f(): ...\n")
    (folder / "later.py").write_text("async def f(): ...\n")
    (folder / "wrong.py").write_text("def f(:\n")
    with pytest.raises(InputError, match=says):
        inspect_artifact(name)

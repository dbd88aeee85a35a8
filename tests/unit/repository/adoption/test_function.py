"""The sources of a function: parsed, never imported."""

import pytest

from envpack.repository.adoption.kinds import inspect_artifact
from envpack.support.errors import InputError
from tests.tables import every_row

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


def test_a_module_of_a_folder_without_init(folder):
    (folder / "src/app").mkdir(parents=True)
    (folder / "src/app/serve.py").write_text("import yaml\nfrom src.app import deep\ndef g(): ...\n")
    (folder / "src/app/deep.py").write_text("import helper\n")
    found = inspect_artifact("src.app.serve:g")
    assert found.source == folder / "src/app/serve.py"
    assert found.files == {name: folder / name for name in ("app.py", "helper.py", "lib", "src")}
    assert found.requirements["requirements.txt"].split() == ["numpy", "pillow", "scikit-learn", "pyyaml"]


@every_row(
    ("line", "files", "packages"),
    [
        ("import tools.one", ["tools"], []),
        ("import tools.one.deep", ["tools"], []),
        ("from tools import one", ["tools"], []),
        ("from tools.one import name", ["tools"], []),
        ("from tools.one import *", ["tools"], []),
        ("import tools\nimport tools.one", ["tools"], []),
        ("import both", ["both"], []),
        # An installed package precedes a folder without __init__.py that does not have the module.
        ("import tools", [], ["tools"]),
        ("import tools.other", [], ["tools"]),
        ("from tools import other", [], ["tools"]),
        ("from google.cloud.storage import Client", [], ["google-cloud-storage"]),
    ],
)
def test_an_import_is_of_a_folder_or_of_a_package(folder, line, files, packages):
    for name in ("tools/one.py", "both/__init__.py", "both.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / "app.py").write_text(f"{line}\ndef f(): ...\n")
    found = inspect_artifact("app:f")
    assert sorted(found.files) == sorted(["app.py", *files])
    assert found.requirements["requirements.txt"].split() == ["numpy", *packages]


def test_requirements_of_the_folder_count_more(folder):
    (folder / "requirements.txt").write_text("numpy<2\n-r more.txt\n")
    (folder / "more.txt").write_text("pillow\n")
    found = inspect_artifact("app:f", python="3.9").requirements
    assert found.pop("python_env.yaml") == "python: '3.9'\ndependencies:\n- -r requirements.txt\n"
    assert found == {name: folder / name for name in ("requirements.txt", "more.txt")}


def test_an_artifact_may_be_named_by_a_path_with_dots(folder, monkeypatch):
    (folder / "requirements.txt").write_text("numpy<2\n")
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    (folder / "model.onnx").write_bytes(b"\x08\x07")
    assert list(inspect_artifact("../model.onnx").requirements) == ["requirements.txt"]


def test_requirements_that_include_a_file_from_elsewhere_are_refused(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "common.txt"
    elsewhere.write_text("numpy\n")
    (folder / "requirements.txt").write_text(f"-r {elsewhere}\n")
    with pytest.raises(InputError) as refused:
        inspect_artifact("app:f")
    assert (refused.value.kind, refused.value.where) == ("bad-artifact", str(folder / "requirements.txt"))
    assert str(elsewhere) in refused.value.message
    assert refused.value.hint == f"copy that file into {folder}, and include it from there"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("app:g", "no function g"),
        ("later:f", "a coroutine"),
        ("parts:f", "a generator"),
        ("placed:f", "by their position alone"),
        ("app:Model.f", "no function Model.f"),
        ("nowhere:f", "no module nowhere"),
        ("wrong:f", "not Python"),
    ],
)
def test_what_is_no_function_is_refused(folder, name, says):
    (folder / "later.py").write_text("async def f(): ...\n")
    (folder / "parts.py").write_text("def f(x):\n    for one in x:\n        yield one\n")
    (folder / "placed.py").write_text("def f(x: int, /) -> int: ...\n")
    (folder / "wrong.py").write_text("def f(:\n")
    with pytest.raises(InputError, match=says):
        inspect_artifact(name)


def test_a_module_named_by_its_file_is_named_as_a_module(folder):
    for name, fix in (("app.py:f", "write app:f"), ("nowhere.py:f", "run it in the folder of the module")):
        with pytest.raises(InputError, match="no module") as refused:
            inspect_artifact(name)
        assert refused.value.hint == fix


@every_row(
    ("code", "files", "packages"),
    [
        ("try:\n    import fast\nexcept ImportError:\n    fast = None", [], []),
        ("try:\n    import cupy as xp\nexcept:\n    import yaml as xp", [], ["pyyaml"]),
        ("try:\n    import helper\n    import fast\nexcept Exception:\n    pass", ["helper.py"], ["scikit-learn"]),
        ("try:\n    import fast\nexcept ImportError:\n    raise SystemExit('install it')", [], ["fast"]),
        ("try:\n    import fast\nfinally:\n    pass", [], ["fast"]),
        ("try:\n    import fast\nexcept OSError:\n    pass", [], ["fast"]),
        ("try:\n    import fast\nexcept ImportError:\n    pass\nimport fast", [], ["fast"]),
        ("import typing\nif typing.TYPE_CHECKING:\n    import fast\nelse:\n    import yaml", [], ["pyyaml"]),
        ("if not TYPE_CHECKING:\n    import fast", [], ["fast"]),
        ("if FAST:\n    import fast", [], ["fast"]),
    ],
)
def test_packages_that_its_module_does_without_are_not_required(folder, code, files, packages):
    (folder / "helper.py").write_text("import sklearn.svm\n")
    (folder / "h.py").write_text(f"{code}\ndef f(): ...\n")
    found = inspect_artifact("h:f")
    assert sorted(found.files) == sorted(["h.py", *files])
    assert sorted(found.requirements["requirements.txt"].split()) == sorted(["numpy", *packages])


def test_a_function_with_a_generator_in_it_is_none(folder):
    code = "def f(x: str) -> str:\n    def parts():\n        yield x\n    return ''.join(parts())\n"
    (folder / "inner.py").write_text(code)
    assert inspect_artifact("inner:f").kind == "function"

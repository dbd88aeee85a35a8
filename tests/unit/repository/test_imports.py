"""Imports of a model's code."""

from envpack.repository.imports import find_own_module, hidden_modules, imported_modules, used_too_early
from envpack.requirements.import_names import is_provided, package_of, requirement_of
from tests.tables import every_row


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_modules_from_elsewhere_are_found_with_their_lines(tmp_path):
    files = {
        "m/1/model.py": (
            "import os, __main__, numpy as np\nfrom PIL import Image\nfrom . import near\nimport helper, shared\n"
            "import triton_python_backend_utils as pb_utils\ntry:\n    import maybe\nexcept ImportError:\n    pass\n"
            "if np:\n    import perhaps\nwith suppress(ImportError): import cupy\n"
            "class M:\n    def execute(self):\n        import torch.nn\n"
            "import old, elsewhere, parts.first\nfrom parts import second\n"
        ),
        "m/1/near.py": f"import scipy\nfrom ..shared import x\nfrom {'.' * 99} import y\n",
        "m/1/train.py": "import wandb\n",
        "m/1/parts/__init__.py": "from .first import thing\n",
        "m/1/parts/first.py": "from ..near import x\nimport pandas\n",
        "m/1/parts/second.py": "from . import third\n",
        "m/1/parts/third.py": "import yaml\n",
        "m/1/parts/unused.py": "import never\n",
        "m/1/helper.py": "import requests\n",
        "m/1/elsewhere.py": "import sys, early\ndef f(): import late\nsys.path.append('/x')\nimport unknown\n",
        "m/1/old.py": "print 'Python 2'\nimport never\n",
        "m/shared/__init__.py": "import below\n",
        "m/docs/conf.py": "import sphinx\n",
    }
    write(tmp_path, files)
    model = tmp_path / "m/1/model.py"
    assert imported_modules(tmp_path / "m", "3.10") == {
        "numpy": f"{model}:1",
        "PIL": f"{model}:2",
        "torch": f"{model}:15",
        "requests": f"{tmp_path}/m/1/helper.py:1",
        "below": f"{tmp_path}/m/shared/__init__.py:1",
        "scipy": f"{tmp_path}/m/1/near.py:1",
        "early": f"{tmp_path}/m/1/elsewhere.py:1",
        "pandas": f"{tmp_path}/m/1/parts/first.py:2",
        "yaml": f"{tmp_path}/m/1/parts/third.py:1",
    }
    assert imported_modules(tmp_path / "m", "3.10", "train.py") == {"wandb": f"{tmp_path}/m/1/train.py:1"}


def test_packages_in_a_namespace_are_told_apart(tmp_path):
    (tmp_path / "m/1").mkdir(parents=True)
    model = tmp_path / "m/1/model.py"
    model.write_text(
        "from google.cloud import storage, bigquery as b\nimport google.protobuf.message\nfrom google import genai\n"
        "from azure.storage.blob import *\nfrom google.cloud.storage import Client\nfrom ruamel import *\n"
    )
    found = imported_modules(tmp_path / "m", "3.10")
    assert {module: int(place.rpartition(":")[2]) for module, place in found.items()} == {
        "google.cloud.storage": 1,
        "google.cloud.bigquery": 1,
        "google.protobuf": 2,
        "google.genai": 3,
        "azure.storage.blob": 4,
        "ruamel": 6,
    }
    assert [package_of(module) for module in found][1:5] == [
        "google-cloud-bigquery",
        "protobuf",
        "google-genai",
        "azure-storage-blob",
    ]


@every_row(
    ("python", "without"),
    [("3.8", set()), ("3.11", set()), ("3.12.4", {"distutils", "imp"}), ("3.13", {"distutils", "imp", "cgi", "crypt"})],
)
def test_modules_that_left_the_standard_library_come_from_elsewhere(python, without, tmp_path):
    (tmp_path / "m/1").mkdir(parents=True, exist_ok=True)
    (tmp_path / "m/1/model.py").write_text("import cgi, crypt, distutils.version, imp, json, parser, tomllib\n")
    assert set(imported_modules(tmp_path / "m", python)) == without
    proposed = {"distutils": "setuptools", "imp": "zombie-imp", "cgi": "legacy-cgi", "crypt": "standard-crypt"}
    assert [package_of(module) for module in without] == [proposed[module] for module in without]


@every_row(
    ("module", "packages", "provided"),
    [
        ("numpy", {"numpy"}, True),
        ("cv2", {"opencv-python"}, True),
        ("cv2", {"pillow"}, False),
        ("yaml", {"PyYAML"}, True),
        ("sklearn", {"scikit_learn"}, True),
        ("cupy", {"cupy-cuda12x"}, True),
        ("dateutil", {"python-dateutil"}, True),
        ("bson", {"pymongo"}, True),
        ("gridfs", {"pymongo"}, True),
        ("nvidia", {"nvidia-cublas-cu12"}, True),
        ("tritonclient", {"tritonclient"}, True),
        ("requests", {"numpy"}, False),
        ("google.cloud.storage", {"google-cloud-storage"}, True),
        ("google.cloud.storage", {"protobuf"}, False),
        ("google.protobuf", {"protobuf"}, True),
    ],
)
def test_packages_provide_modules_by_name(module, packages, provided):
    assert is_provided(module, packages) is provided


@every_row(
    ("module", "package"),
    [
        ("cv2", "opencv-python-headless"),
        ("PIL", "pillow"),
        ("yaml", "pyyaml"),
        ("sklearn", "scikit-learn"),
        ("flash_attn", "flash-attn"),
        ("bson", "pymongo"),
        ("ffmpeg", "ffmpeg-python"),
        ("hydra", "hydra-core"),
        ("awq", "autoawq"),
        ("llama_cpp", "llama-cpp-python"),
        ("cuda", "cuda-python"),
        ("cupy", "cupy-cuda12x"),
        ("fastdeploy", "fastdeploy-python"),
    ],
)
def test_the_package_of_a_module_is_known(module, package):
    assert package_of(module) == package


def test_a_client_of_triton_is_required_with_what_it_imports():
    assert package_of("tritonclient") == "tritonclient"
    assert requirement_of("tritonclient") == "tritonclient[grpc,http]"
    assert requirement_of("cv2") == package_of("cv2")


def test_modules_beside_the_code_are_hidden_by_those_of_python_and_its_packages(tmp_path):
    files = {
        "m/1/model.py": "import queue, utils, common, helper\nfrom . import json\nimport parts.first\n",
        "m/1/queue.py": "import helper\n",
        "m/1/utils/__init__.py": "from .a import b\n",
        "m/1/json.py": "",
        "m/common.py": "",
        "m/helper.py": "import sys\nsys.path.insert(0, '/x')\nimport random\n",
        "m/random.py": "",
        "m/1/parts/first.py": "",
        "e/lib/python3.10/queue.py": "",
        "e/lib/python3.10/random.py": "",
        "e/lib/python3.10/json/__init__.py": "",
        "e/lib/python3.10/site-packages/utils.cpython-310-x86_64-linux-gnu.so": "",
        "e/lib/python3.10/site-packages/common/__init__.py": "",
        "e/lib/python3.10/site-packages/parts/readme.txt": "",
    }
    write(tmp_path, files)
    model = tmp_path / "m"
    line = model / "1/model.py:1"
    of_python = {"queue": (model / "1/queue.py", line)}
    of_packages = {"utils": (model / "1/utils/__init__.py", line), "common": (model / "common.py", line)}
    assert hidden_modules(model, "model.py", tmp_path / "e") == of_python | of_packages
    assert hidden_modules(model, "model.py", None) == of_python


def test_pkg_resources_is_required_from_a_setuptools_that_has_it():
    assert requirement_of("pkg_resources") == "setuptools<81"
    assert requirement_of("distutils") == "setuptools"


def test_a_name_that_is_too_long_for_a_file_is_no_module_of_the_model(tmp_path):
    name = "x" * 300
    write(tmp_path, {"m/1/model.py": f"import {name}\n"})
    assert imported_modules(tmp_path / "m", "3.10") == {name: f"{tmp_path}/m/1/model.py:1"}
    assert hidden_modules(tmp_path / "m", "model.py", None) == {}
    assert find_own_module(name, tmp_path / "m") is None


@every_row(
    ("code", "name"),
    [
        ("class M:\n def f(self, request: pb_utils.InferenceRequest): ...", "InferenceRequest"),
        ("class M:\n async def f(self) -> list[pb_utils.Tensor]: ...", "Tensor"),
        ("def f(log=pb_utils.Logger): ...", "Logger"),
        ("LOG = pb_utils.Logger", "Logger"),
        ("import triton_python_backend_utils\nLOG = triton_python_backend_utils.Logger", "Logger"),
        ("def f(config: pb_utils.ModelConfig): ...", ""),  # the server's module has it
        ("def f(request: 'pb_utils.InferenceRequest'): ...", ""),
        ("from __future__ import annotations\nimport triton_python_backend_utils as p\ndef f(t: p.Tensor): ...", ""),
        ("from __future__ import annotations\nimport triton_python_backend_utils as p\nL = p.Logger", "Logger"),
        ("from triton_python_backend_utils import InferenceResponse", "InferenceResponse"),
        ("from triton_python_backend_utils import get_input_tensor_by_name", ""),
        ("def f():\n from triton_python_backend_utils import Tensor", ""),
        ("def f(g=lambda: pb_utils.Tensor, log=pb_utils.Logger): ...", "Logger"),
        ("class A:\n class B(pb_utils.Tensor): ...", "Tensor"),
        ("f = g and pb_utils.Tensor", ""),
        ("def f():\n def g(request: pb_utils.InferenceRequest): ...", ""),
        ("if TYPE_CHECKING:\n A = pb_utils.Tensor", ""),
        ("try:\n A = pb_utils.Tensor\nexcept AttributeError: ...", ""),
        ("answer = lambda array: pb_utils.Tensor('OUT', array)", ""),
        ("for name in ():\n def f(): return pb_utils.Tensor", ""),
        ("def f(request: other.InferenceRequest): ...", ""),
        ("def f(request: pb_utils.InferenceRequest: ...", ""),
    ],
)
def test_what_code_uses_before_the_stub_of_a_release_adds_it(tmp_path_factory, code, name):
    file = tmp_path_factory.mktemp("m") / "1/model.py"
    file.parent.mkdir()
    head = "" if code.startswith("from") else "import triton_python_backend_utils as pb_utils\n"
    file.write_text(head + code)
    found = used_too_early(file.parents[1], "model.py")
    assert (found[0] if found else "") == name


def test_files_that_code_imports_when_it_is_imported_use_it_too_early_as_well(tmp_path):
    uses = "try:\n  import triton_python_backend_utils as p\nexcept ImportError: ...\ndef f(t: p.Tensor): ...\n"
    files = {
        "m/1/model.py": "from parts import second\ndef f():\n  import later\n",
        "m/parts/__init__.py": "",
        "m/parts/second.py": "import queue\nfrom .third import x\n",
        "m/1/later.py": uses,
        "m/1/queue.py": uses,  # which the standard library has
    }
    write(tmp_path, files)
    assert used_too_early(tmp_path / "m", "model.py") is None
    write(tmp_path, {"m/parts/third.py": uses})
    assert used_too_early(tmp_path / "m", "model.py") == ("Tensor", tmp_path / "m/parts/third.py:4")

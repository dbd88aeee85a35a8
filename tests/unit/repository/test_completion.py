"""Whether a model can complete its configuration."""

import pytest

from envpack.repository.model import open_model

CONFIG = """
backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] } ]
"""
PLAIN = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model/1").mkdir(parents=True)
    (tmp_path / "model/1/model.py").write_text(PLAIN)
    (tmp_path / "model/config.pbtxt").write_text(CONFIG)
    return tmp_path / "model"


@pytest.mark.parametrize(
    "code",
    [
        PLAIN,
        f'"""The class TritonPythonModel = what a server wants."""\n{PLAIN}',
        PLAIN.replace("Model:", "Model(object):"),
        "raise ValueError('not yet')\n",
        "",
        PLAIN.replace("return []", "return [}"),
        f"type X = int\n{PLAIN}",
    ],
)
def test_a_plain_class_cannot(model, code):
    (model / "1/model.py").write_text(code)
    assert not open_model(model).may_complete


@pytest.mark.parametrize(
    "code",
    [
        PLAIN.replace("execute", "auto_complete_config"),
        f"from common import Base\n{PLAIN.replace('Model:', 'Model(Base):')}",
        f"from common import Base\n{PLAIN.replace('Model:', 'Model(Base):')}return [}}",
        f"import common\n@common.add\n{PLAIN}",
        f"import common\n{PLAIN.replace('Model:', 'Model(metaclass=common.Meta):')}",
        "from common import TritonPythonModel\n",
        "from common import Base as TritonPythonModel\n",
        "from common import *\n",
        "import common\nTritonPythonModel = common.make()\n",
        f"{PLAIN}import common\nTritonPythonModel = common.add(TritonPythonModel)\n",
        f"if True:\n    {PLAIN.replace(chr(10), chr(10) + '    ')}",
    ],
)
def test_a_class_that_gets_methods_from_elsewhere_may(model, code):
    (model / "1/model.py").write_text(code)
    assert open_model(model).may_complete


def test_a_model_in_another_encoding_is_read(model):
    code = f"# coding: latin-1\n# für alle\nimport common\n@common.add\n{PLAIN}"
    (model / "1/model.py").write_bytes(code.encode("latin-1"))
    assert open_model(model).may_complete


def test_a_module_beside_the_model_may_add_the_method(model):
    (model / "1/helper.py").write_text("def add(cls):\n    cls.auto_complete_config = lambda config: config\n")
    assert open_model(model).may_complete


@pytest.mark.parametrize("part", ["backend", "input", "output"])
def test_a_configuration_that_lacks_something_may(model, part):
    lines = [line for line in CONFIG.splitlines() if not line.startswith(part)]
    (model / "config.pbtxt").write_text("\n".join(lines))
    assert open_model(model).may_complete


def test_a_model_without_a_configuration_may(model):
    (model / "config.pbtxt").unlink()
    assert open_model(model).may_complete

"""Scripts of ci/, loaded as modules."""

import importlib.util
from pathlib import Path

CI = Path(__file__).parents[3] / "ci"


def model_config_schema():
    spec = importlib.util.spec_from_file_location("model_config_schema", CI / "model_config_schema.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

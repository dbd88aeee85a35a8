"""The model.py in a backend directory of envpack.

Since 23.10, a server treats such a directory as a backend written in Python, and the stub imports this file instead of
the model's. This file therefore exports the class of the model that the stub was started for. envpack never imports it.
"""

import importlib
import os
import sys

with open("/proc/self/cmdline", "rb") as _command_line:  # noqa: PTH123 - imports as little as possible
    _file = os.fsdecode(_command_line.read().split(b"\0")[1])
_version = os.path.dirname(_file)  # noqa: PTH120
sys.path += [_version, os.path.dirname(_version)]  # noqa: PTH120
_name = os.path.splitext(os.path.basename(_file))[0]  # noqa: PTH119, PTH122
_model = importlib.import_module(os.path.basename(_version) + "." + _name)  # noqa: PTH119
if hasattr(_model, "TritonPythonModel"):  # otherwise the stub reports that the class is missing
    TritonPythonModel = _model.TritonPythonModel

"""The model.py of a backend folder that envpack makes.

Servers from 23.10 on take such a folder for a backend that is itself written in Python, and a stub then imports this
file instead of the model's. So it hands on the class of the model that the stub was started for. Never imported by
envpack.
"""

import importlib
import os
import sys

with open("/proc/self/cmdline", "rb") as _command_line:  # noqa: PTH123 - nothing is imported that need not be
    _file = os.fsdecode(_command_line.read().split(b"\0")[1])
_version = os.path.dirname(_file)  # noqa: PTH120
sys.path += [_version, os.path.dirname(_version)]  # noqa: PTH120
_name = os.path.splitext(os.path.basename(_file))[0]  # noqa: PTH119, PTH122
_model = importlib.import_module(os.path.basename(_version) + "." + _name)  # noqa: PTH119
if hasattr(_model, "TritonPythonModel"):  # else the stub says that there is none
    TritonPythonModel = _model.TritonPythonModel

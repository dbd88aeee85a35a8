"""The backend's module of this name on the server of `envpack dev --debug`. It must run on Python 3.6.

Every stub imports it before its model. The first instance of the model that is debugged waits here for a debugger.
Then the server's own module runs in this one, so the model sees no difference. The variable ENVPACK_DEBUG names a file
with a JSON object:

- ``utilities``: the server's own module
- ``name``, ``folder``: of the model that is debugged; no name, no debugger
- ``program``, ``run``: what waits for the debugger, and its settings
"""

import json
import os
import runpy

_MODEL_FILE, _INSTANCE, _ARGUMENTS = 1, 8, 9  # words of a stub's command line


def _is_debugged(settings):
    """Whether this process runs an instance of the model. A stub that completes a configuration has another name."""
    with open("/proc/self/cmdline", "rb") as file:
        words = os.fsdecode(file.read()).split("\0")
    if not settings["name"] or len(words) <= _ARGUMENTS:
        return False
    if os.path.dirname(os.path.dirname(words[_MODEL_FILE])) != settings["folder"]:
        return False
    if "--template" in words[_ARGUMENTS:]:
        os._exit(0)  # its forks could not be debugged from the start; stubs then start the model without a template
    return words[_INSTANCE] != settings["name"]


with open(os.environ["ENVPACK_DEBUG"], encoding="utf-8") as _file:
    _SETTINGS = json.load(_file)
if _is_debugged(_SETTINGS):
    os.environ["ENVPACK_RUN"] = json.dumps(_SETTINGS["run"])
    runpy.run_path(_SETTINGS["program"])
with open(_SETTINGS["utilities"], encoding="utf-8") as _file:
    exec(compile(_file.read(), _SETTINGS["utilities"], "exec"), globals())

"""What `envpack run` does in the model's process before it imports the model. It must run on Python 3.6.

``triton_python_backend_utils`` imports it if the variable ENVPACK_RUN has settings: a JSON object with

- ``debug``: [host, port]: wait there for a debugger; ``debugger``: a folder that has debugpy if the environment has not
- ``claim``: a file that the first process removes: no other one waits, such as one that is started again after a death
- ``profile``: a file for the time that each function took
- ``memray``: a file for memray's records, if the environment has memray
"""

import json
import os
import sys
from pathlib import Path

_MOST_FUNCTIONS = 100  # of libraries


def begin(settings):
    """Do what the settings say."""
    if "debug" in settings and _is_first(settings["claim"]):
        _await_debugger(*settings["debug"], settings.get("debugger"))
    if "memray" in settings:
        _record_memory(settings["memray"])
    if "profile" in settings:
        _profile(settings["profile"])


def _is_first(claim):
    try:
        Path(claim).unlink()
    except OSError:
        return False
    return True


def _await_debugger(host, port, folder):
    if folder:
        sys.path.append(folder)
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # or it warns of Python's frozen modules
    import debugpy

    debugpy.configure(python=sys.executable)
    debugpy.listen((host, port))
    sys.stderr.write("envpack: waiting for a debugger at {}:{}\n".format(host, port))
    sys.stderr.flush()
    debugpy.wait_for_client()


def _record_memory(file):
    import atexit

    try:
        import memray
    except ImportError:
        return
    tracker = memray.Tracker(file)
    tracker.__enter__()
    atexit.register(tracker.__exit__, None, None, None)


def _profile(file):
    """Of the thread that runs the model; coroutines run in another one."""
    import atexit
    import cProfile

    profile = cProfile.Profile()
    atexit.register(_write_profile, profile, file, os.getpid())
    profile.enable()


def _write_profile(profile, file, process):
    import pstats

    profile.disable()
    if os.getpid() != process:  # the model has forked this one
        return
    functions = [
        {"function": name, "file": path, "line": line, "calls": calls, "own_seconds": own, "seconds": total}
        for (path, line, name), (_, calls, own, total, _) in pstats.Stats(profile).stats.items()
    ]
    functions.sort(key=lambda function: -function["own_seconds"])
    kept = [found for at, found in enumerate(functions) if at < _MOST_FUNCTIONS or _is_own(found["file"])]
    part = Path(file + ".part")
    part.write_text(json.dumps(kept), encoding="utf-8")  # the process may be ended meanwhile
    part.replace(file)


def _is_own(file):
    """Whether a function is of the model, not of Python or a package."""
    return not file.startswith((sys.prefix, "<", "~"))


begin(json.loads(os.environ.pop("ENVPACK_RUN")))

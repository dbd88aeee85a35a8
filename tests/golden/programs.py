"""The JSON of the commands that need an interpreter, a compiler, a package index or a server: the real ones.

The environment and the stub are kept in the cache of the tests. The commands run in one place, in this order, and later
ones find what earlier ones made.
"""

import signal

from envpack.conda.choice import interpreter_for
from envpack.server.launch import find_server
from envpack.stub.toolchain import find_toolchain
from envpack.support.errors import EnvpackError
from tests.faults.command_line import Ended
from tests.golden.json_text import json_text
from tests.golden.repository import write_repository
from tests.server.flow.developing import developments

_PYTHON = "3.10"
_AT = "--repository repository"
_BUILD = f"build double {_AT} --python {_PYTHON} --channel local"
_STUB = f"stub --python {_PYTHON}"
_MADE = "out/triton_python_backend_stub"
_TEST = """def test_one_is_doubled(triton_model):
    assert triton_model("double").infer(IN=[[1]])["OUT"].tolist() == [[2]]
"""
# Files: the words of each command; WORK stands for the folder.
_COMMANDS = {
    "lock": (f"lock double {_AT} --python {_PYTHON} --channel local", f"lock double {_AT} --update numpy"),
    "build": (
        *(f"{_BUILD} --dry-run", f"{_BUILD} --stub always", f"{_BUILD} --stub always", f"{_BUILD} --dry-run"),
        f"{_BUILD} --start warm --store file://WORK/store --set push=true",
    ),
    "stub": (
        *(f"{_STUB} --output out --dry-run", f"{_STUB} --output out", f"{_STUB} --output out"),
        f"{_STUB} --only cp310-x86_64 --output matrix",
    ),
    "inspect": (
        *(f"inspect {_AT}", f"inspect {_MADE} --environment repository/double/python3.10 --triton 24.10"),
        "inspect repository/double/python3.10 --triton 24.10",
    ),
    "layout": (f"layout {_AT} --output tree",),
    "publish": (f"publish file://WORK/published {_AT}",),
    "store": ("cache ls --store file://WORK/store", "cache verify --store file://WORK/store"),
    # These leave byte code beside the models.
    "run": (f"run double {_AT} --repeat 3 --input samples.json",),
    "test": (f"test --local {_AT} -- -p no:cacheprovider",),
    "verify": (f"verify {_AT} --runtime process --set requests=3",),
}


def missing():
    """What this machine lacks for these commands, ``""`` for nothing."""
    try:
        interpreter_for(_PYTHON)
        find_toolchain()
        find_server()
    except EnvpackError as error:
        return str(error)
    return ""


def texts(place):
    """One file for each command, with a document for each of its command lines."""
    _write_ingredients(place)
    found = {f"{name}.json": json_text([_told(place, line) for line in lines]) for name, lines in _COMMANDS.items()}
    return found | {"dev.json": json_text(_dev(place)), "doctor.json": json_text(_doctor(place))}


def _told(place, line):
    own, *rest = line.replace("WORK", str(place.folder)).partition(" -- ")
    ended = place.envpack(*own.split(), "--json", *"".join(rest).split())
    assert ended.code == 0, ended
    return {"command": line, **place.document(ended)}


def _write_ingredients(place):
    """The repository, and in the cache what its build takes long to make: whether that was there changes no output."""
    work = place.folder
    write_repository(work / "before", only="double")
    write_repository(work / "repository", only="double")
    ended = place.envpack(*_BUILD.replace(_AT, "--repository before").split(), "--stub", "always")
    assert ended.code == 0, ended
    (work / "samples.json").write_text('{"data": [{"IN": [1, 2]}]}')
    (work / "repository/double/tests").mkdir()
    (work / "repository/double/tests/test_double.py").write_text(_TEST)
    for name in ("store", "out"):
        (work / name).mkdir()


def _dev(place):
    """`envpack dev` until the model is ready; Ctrl-C ends it."""
    with developments() as start:
        running = start(place.folder / "repository", "double", "--json")
        running.wait_until_ready("double")
        running.process.send_signal(signal.SIGINT)
        out, err = running.process.communicate(timeout=60)
    ended = Ended(running.process.returncode, out, err)
    return {"command": f"dev double {_AT} --python {_PYTHON}", **place.document(ended)}


def _doctor(place):
    """The form of what `envpack doctor` says; the rest is about the machine."""
    ended = place.envpack("doctor", *_AT.split(), "--json")
    checks = ended.document["checks"]
    assert {check["state"] for check in checks} <= {"ok", "warn", "missing"}
    return {
        "command": f"doctor {_AT}",
        "exit code": ended.code,
        "keys": list(ended.document),
        "keys of a check": sorted({key for check in checks for key in check}),
    }

"""`envpack dev` and models that write into their own folders: only what a person saves loads them again."""

import pytest

from envpack.server.kserve import RequestError
from tests.server.flow.developing import write_at_once
from tests.waiting import soon

# Before the class of the model, its file being HERE.
WRITES = {
    "at each import": "with open(f'{HERE}/imports.txt', 'a') as file:\n    file.write('x')\n",
    "all the time": (
        "import threading, time\n"
        "def keep(at=0):\n"
        "    while True:\n"
        "        with open(f'{HERE}/counter.bin', 'w') as file:\n"
        "            file.write(str(time.time()))\n"
        "        time.sleep(0.05)\n"
        "threading.Thread(target=keep, daemon=True).start()\n"
    ),
    "into an open file": (
        "import threading, time\n"
        "log = open(f'{HERE}/own.log', 'a', buffering=1)\n"
        "def keep():\n"
        "    while True:\n"
        "        print('line', file=log)\n"
        "        time.sleep(0.05)\n"
        "threading.Thread(target=keep, daemon=True).start()\n"
    ),
    "its own code": "os.utime(__file__)\n",
}
NAMES = {
    "at each import": "imports.txt",
    "all the time": "counter.bin",
    "into an open file": "own.log",
    "its own code": "model.py",
}


@pytest.mark.parametrize(
    ("how", "exists"),
    [
        ("all the time", True),
        *(
            pytest.param(how, exists, marks=pytest.mark.thorough)
            for how in WRITES
            for exists in (False, True)
            if (how, exists) not in [("all the time", True), ("its own code", True)]
        ),
    ],
)
def test_what_a_model_writes_does_not_load_it_and_edits_do(required, develop, how, exists):
    code = (required / "1/model.py").read_text()
    here = "import os\nHERE = os.path.dirname(os.path.abspath(__file__))\n"
    (required / "1/model.py").write_text(f"{here}{WRITES[how]}{code}")
    if exists:
        (required / "1" / NAMES[how]).write_text("from before")
    (required / "1/helper.py").write_text("")
    running = develop(required.parent, "--json")
    running.wait_until_ready("doubler")
    running.wait_for(f"doubler: 1/{NAMES[how]}: written by the model, which does not load it again")

    (required / "1/helper.py").unlink()
    write_at_once(required / "1/model.py", f"{here}{WRITES[how]}{code}".replace("* 2", "* 3"))
    assert soon(lambda: answers(running, (3, 6))), "an edit is taken, though files change all the time"
    states = running.end()
    assert states["doubler"]["own_writes"] == [f"1/{NAMES[how]}"]
    assert states["doubler"]["loads"] <= 2 + 4, "the first, that of the edit, and few until the writer is known"


def answers(running, expected):
    try:
        return running.answer() == expected
    except RequestError:  # while it is being loaded
        return False

"""What envpack says of every mistake in `tests/faults/bad_commands.py`: exit code, kind, and the whole text."""

from tests.faults.bad_commands import CATALOGUE
from tests.golden.json_text import json_text


def texts(place):
    """One file; the mistakes are in the order of the catalogue."""
    assert len(CATALOGUE) >= 100
    return {"bad-input.json": json_text({bad.name: _refusal(place, bad, n) for n, bad in enumerate(CATALOGUE)})}


def _refusal(place, bad, number):
    parent = place.folder / str(number)
    parent.mkdir()
    ended = place.envpack(*bad.arguments(bad.write(parent)))

    def shown(text):
        return place.text(text.replace(str(parent), "<parent>"))

    error = ended.document["error"]
    return {
        "command": bad.command,
        "exit code": ended.code,
        "kind": error["kind"],
        "text": shown(ended.err).splitlines(),
        "where": shown(error["where"]),
        "message": shown(error["message"]).splitlines(),
    }

"""Options that were removed: each is refused in one line that names what to use."""

import json

from ci.docs.pages import commands
from envpack.cli.main import REMOVED, run


def test_removed_options_are_refused_and_what_takes_their_place_is_named(capsys):
    known = commands()
    for words, instead in REMOVED.items():
        command, _, option = words.rpartition(" ")
        names = {name for parameter in known[command].params for name in parameter.opts}
        assert option not in names, f"{words} exists"
        assert run([*words.split(), "--json"]) == 2, words
        shown = capsys.readouterr()
        error = json.loads(shown.out)["error"]
        assert (error["kind"], error["message"]) == ("usage", f"envpack {command} no longer has {option}")
        assert error["hint"] == instead
        assert "Traceback" not in shown.err


def test_an_option_of_another_command_is_only_unknown(capsys):
    assert run(["lock", "--image", "x"]) == 2
    assert "No such option '--image'" in capsys.readouterr().err

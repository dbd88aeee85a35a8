"""What `build`, `lock` and `stub` would do: the requests that follow from options, envpack.toml and the models."""

import shutil

from tests.golden.asked import noted, plain
from tests.golden.json_text import json_text
from tests.golden.normal import normal_document
from tests.golden.option_tables import BUILDS, LOCKS, MODELS, STUBS
from tests.golden.stub_targets import write_pythons


def texts(place):
    """One file for each command."""
    tables = {"build": BUILDS, "lock": LOCKS, "stub": STUBS}
    assert sum(map(len, tables.values())) >= 40
    write_pythons(place.folder / "pythons")
    (place.folder / "store").mkdir()
    return {
        f"{command}.json": json_text({one.name: _asked(place, command, one) for one in table})
        for command, table in tables.items()
    }


def _asked(place, command, one):
    """The words, envpack.toml, and what they ask for, or why they are refused."""
    repository = place.folder / "repository"
    _write_repository(repository, one.project)
    words = [command, *one.words.replace("WORK", str(place.folder)).split()]
    words += [] if command == "stub" else ["--repository", str(repository)]
    requests, ended = [], None
    with noted(requests):
        ended = place.envpack(*words)
    asked = {"command": f"{command} {one.words}", "envpack.toml": one.project.splitlines()}
    if ended is None or ended.code == 0:
        return asked | {"requests": normal_document(plain(requests), place.shown)}
    return asked | {"exit code": ended.code, "text": place.text(ended.err).splitlines()}


def _write_repository(repository, project):
    shutil.rmtree(repository, ignore_errors=True)
    for path, text in (MODELS | ({"envpack.toml": project} if project else {})).items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)

"""Model repositories in the style of those that users have, each with what commands say of it.

A case is a folder below ``repositories`` with a model repository and ``outcome.toml``: for each ``[[run]]`` the
``command``, its ``exit_code``, all ``findings`` of `envpack inspect` as ``"KIND WHERE"``, the models that ``failed``,
parts of what it ``says``, ``files`` that are there afterwards, and a label for the ``bytes`` of a file, which are equal
for equal labels. Every command runs in the repository. A case that is ``real`` builds with this machine's Python and
packages.
"""

import tomllib
from pathlib import Path

import pytest

from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.cache import kept_cache
from tests.faults.command_line import envpack
from tests.field.copies import copy_case
from tests.needed_pythons import need
from tests.rings import parameters

HERE = Path(__file__).with_name("repositories")
CASES = {file.parent.name: file.parent for file in HERE.glob("*/outcome.toml")}
DEAR = {
    "callee_of_its_own_name",
    "callee_of_the_input",
    "networks",
    "last_line_without_end",
    "lines_of_windows",
    "some_cannot_be_published",
}


@pytest.mark.parametrize("case", parameters(sorted(CASES), CASES.keys() - DEAR))
def test_repository(case, tmp_path, addresses):
    repository = tmp_path / "models"
    copy_case(CASES[case], repository, addresses, "outcome.toml")
    outcome, labels = tomllib.loads((CASES[case] / "outcome.toml").read_text()), {}
    changes = {"ENVPACK_CACHE_DIR": str(kept_cache())}
    if not outcome.get("real"):
        changes = {"ENVPACK_CACHE_DIR": str(tmp_path / "cache"), "UV_CACHE_DIR": str(tmp_path / "uv")}
        changes |= {"UV_DEFAULT_INDEX": addresses["INDEX"], "PIP_FIND_LINKS": None, "HOME": str(tmp_path)}
    for run in outcome["run"]:
        words = [word.replace("/DESTINATION", str(tmp_path / "published")) for word in run["command"]]
        if words[0] == "build" and run["exit_code"] != 3 and "--channel" not in words:
            need(words[words.index("--python") + 1] if "--python" in words else find_release(DEFAULT_RELEASE).python)
        done = envpack(*words, "--json", changes=changes, cwd=repository)
        assert done.code == run["exit_code"], done
        if "findings" in run:
            found = done.document["findings"]
            places = [f"{finding['kind']} {Path(finding['where']).relative_to(repository)}" for finding in found]
            assert places == run["findings"], found
        if "failed" in run:
            assert [model["name"] for model in done.document["failed"]] == run["failed"]
        for text in run.get("says", ()):
            assert text in done.err + done.out, done
        for file in run.get("files", ()):
            assert (repository / file).exists(), file
        for file, label in run.get("bytes", {}).items():
            content = (repository / file).read_bytes()
            assert labels.setdefault(label, content) == content
    assert len(set(labels.values())) == len(labels)

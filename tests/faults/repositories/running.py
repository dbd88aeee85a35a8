"""Breaks repositories and runs envpack's command line on them: `inspect` one by one, `verify` many at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import envpack.verification.judge  # noqa: F401 - registers the checks of a model
from envpack.verification.verdict import CHECKS, Step
from tests.faults.broken_models import CONFIG, DOUBLE
from tests.faults.repositories.broken import ANY, ENVIRONMENT, STUB, Broken, Kit, Runtime, Site
from tests.needed_pythons import need
from tests.small_stub import with_small_stub

PYTHON = "3.10"
_ENVPACK = (sys.executable, "-m", "envpack")
_OF_EVERY_MODEL = {"libraries"}  # a warning: the environment uses libraries of the interpreter's system


@dataclass(frozen=True)
class Report:
    """A fault that a command reports.

    Attributes:
        kind: kind of the finding, failure or error.
        reason: what is wrong, with the details.
        fix: how to fix it, as the command would say it in the folder of the repository.
        step: what the command was doing, by the check that failed.
    """

    kind: str
    reason: str
    fix: str
    step: Step


def build_kit(folder: Path) -> Kit:
    """A good model and the other parts of entries, built by envpack itself."""
    need(PYTHON)
    good, newer = folder / "good", folder / "newer"
    for model, numpy in ((good, "numpy<2"), (newer, "numpy==2.2.6")):
        (model / "1").mkdir(parents=True)
        (model / "1/model.py").write_text(DOUBLE)
        (model / "config.pbtxt").write_text(CONFIG)
        (model / "requirements.txt").write_text(f"{numpy}\n")
        command = [*_ENVPACK, "build", model.name, "--repository", str(folder), "--python", PYTHON, "--stub", "always"]
        subprocess.run(command, check=True, capture_output=True)
    environments = [(model / ENVIRONMENT).rename(folder / f"{model.name}-environment") for model in (good, newer)]
    config = good / "config.pbtxt"
    config.write_text(config.read_text().replace(f"$$TRITON_MODEL_DIRECTORY/{ENVIRONMENT}", str(environments[0])))
    from envpack.server.launch import find_server

    return Kit(good, *environments, dict(find_server().stubs), lambda release: _one_release(folder, release))


def _one_release(folder: Path, release: str) -> Path:
    """A stub that is inspected and never started: the small one."""
    variables = os.environ | {"PYTHONPATH": str(with_small_stub(folder / "small-stub"))}
    (folder / release).mkdir(exist_ok=True)
    command = [*_ENVPACK, "stub", "--python", PYTHON, "--triton", release, "--output", str(folder / release)]
    subprocess.run(command, check=True, capture_output=True, env=variables, cwd=folder)  # not where envpack itself lies
    return folder / release / STUB


@dataclass
class Catalogue:
    """Runs entries and collects what envpack reports about them.

    Attributes:
        entries: all entries that can be run.
        kit: what they are made of.
        folder: where the repositories are made.
        words: further words for every ``verify``.
        variables: environment variables for every command.
    """

    entries: tuple[Broken, ...]
    kit: Kit
    folder: Path
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    _verdicts: dict[tuple[object, ...], dict[str, object]] = field(default_factory=dict)

    def reports(self, entry: Broken) -> list[Report]:
        """All reports of the command about an entry's model, most important first."""
        if entry.found_by == "inspect":
            return _of_inspection(self._run(entry, ("inspect", str(self._broken(entry, self.folder / entry.id)))))
        group = _group(entry)
        served = [other for other in self.entries if _group(other) == group]
        if group not in self._verdicts:
            self._verdicts[group] = self._verify(served)
        return list(_of_verdict(self._verdicts[group], entry, {other.model for other in served} - {entry.model}))

    def reports_on_good_repository(
        self, command: Literal["inspect", "verify"], runtime: Runtime = "process"
    ) -> list[Report]:
        """The reports about an unchanged repository."""
        options = ("--strict",) if command == "inspect" else ()
        good = Broken(f"good-{command}", "nothing", lambda _: None, "", "", "", command, runtime, options, alone=True)
        return Catalogue((good,), self.kit, self.folder, self.words, self.variables).reports(good)

    def _verify(self, entries: list[Broken]) -> dict[str, object]:
        first = entries[0]
        folder = self.folder / f"verify-{first.id}"
        for entry in entries:
            repository = self._broken(entry, folder)
        words = ("verify", "--repository", str(repository), "--runtime", first.runtime, *self.words)
        return self._run(first, words)

    def _broken(self, entry: Broken, folder: Path) -> Path:
        """Put the entry's model into ``folder/models``; where the repository is then."""
        model = folder / "models" / entry.model
        self.good_model(model)
        moved = entry.change(Site(model.parent, model, self.kit))
        return moved if isinstance(moved, Path) and moved.is_dir() else model.parent

    def good_model(self, place: Path) -> Path:
        """A model without a fault, at ``place``."""
        return Path(shutil.copytree(self.kit.model, place, copy_function=os.link, symlinks=True))

    def _run(self, entry: Broken, words: tuple[str, ...]) -> dict[str, object]:
        command = [*entry.host, *_ENVPACK, *words, *entry.options, "--json"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.variables, **dict(entry.variables)},
        )
        assert done.stdout, done.stderr
        return {**json.loads(done.stdout), "code": done.returncode}


def _group(entry: Broken) -> tuple[object, ...]:
    own = entry.id if entry.alone else ""
    return entry.found_by, entry.runtime, entry.options, entry.host, entry.variables, own


def _report(kind: str, reason: str, fix: str, step: Step) -> Report:
    return Report(kind, reason, re.sub(r" --repository [^\s`]+", "", fix), step)


def _of_inspection(document) -> list[Report]:
    if "error" in document:
        return [_of_error(document["error"], "files")]
    assert document["code"] == (0 if document["ok"] else 1)
    if document["ok"]:
        return []
    findings = sorted(document["findings"], key=lambda finding: finding["severity"] != "error")
    return [_report(found["kind"], f"{found['where']}: {found['what']}", found["fix"], "files") for found in findings]


def _of_verdict(document, entry: Broken, others: set[str]) -> Iterator[Report]:
    """All that a verdict says about the models of an entry, and about the server; ``others`` are not its models."""
    if "error" in document:
        yield _of_error(document["error"], "start")
        return
    verdict = document["verdict"]
    assert document["code"] == (0 if verdict["ok"] else 1)
    for model in verdict["models"]:
        if model["name"].startswith(entry.model) and model["name"] not in others:
            yield from _of_model(model)
    for check in verdict["checks"]:
        if check["status"] in {"failed", "warning"}:
            yield _report(check["id"], check["evidence"], check["fix"], CHECKS[check["id"]].step)


def _of_model(model) -> Iterator[Report]:
    """The failure of a model, and further checks that failed or warn."""
    failed = [check for check in model["checks"] if check["status"] == "failed"]
    failure = model["failure"]
    if failure:
        step = CHECKS[failed[0]["id"]].step if failed else "load"
        yield _report(failure["kind"], "\n".join((failure["reason"], *failure["details"])), failure["fix"], step)
    warnings = [check for check in model["checks"] if check["status"] == "warning"]
    for check in (*failed[1:], *(warning for warning in warnings if warning["id"] not in _OF_EVERY_MODEL)):
        yield _report(check["id"], check["evidence"], check["fix"], CHECKS[check["id"]].step)


def _of_error(error, step: Step) -> Report:
    return _report(error["kind"], f"{error['where']}: {error['message']}", error["hint"], step)


def missing_tool(entry: Broken) -> str:
    """A tool that an entry needs and this machine lacks, or ``""``."""
    for tool in entry.tools:
        if shutil.which(tool) is None:
            return tool
    if "unshare" in entry.host and os.geteuid() != 0:
        return "root's right to mount"
    return ""


def assert_reported(entry: Broken, reports: list[Report]) -> None:
    """The reports are the one that the entry of the catalogue names, and those that it lists as right beside it."""
    right = [
        report
        for report in reports
        if report.kind == entry.kind and holds(report.reason, entry.reason) and holds(report.fix, entry.fix)
    ]
    assert len(right) == 1, reports
    assert right[0].step == entry.found_in, right
    others = [report for report in reports if report is not right[0]]
    assert sorted(report.kind for report in others) == sorted(entry.also), others


def holds(text: str, expected: str) -> bool:
    """Whether a text has all parts of what is expected, in that order."""
    at = 0
    for part in expected.split(ANY):
        at = text.find(part.strip(), at)
        if at < 0:
            return False
        at += len(part.strip())
    return True

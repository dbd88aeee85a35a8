"""docs/reference/errors.md has a section for every kind of failure, under its exit code, and none too many."""

import ast
import functools
import re
from pathlib import Path

import envpack
import envpack.verification.run  # registers all checks
from ci.docs import pages
from envpack.support import errors
from envpack.verification.verdict import CHECKS

PACKAGE = Path(envpack.__file__).parent
GUIDE = Path(__file__).parents[2] / "docs/reference/errors.md"
CODES = {name: value.exit_code for name, value in vars(errors).items() if hasattr(value, "exit_code")}
NEGATIVE = 1


@functools.cache
def _calls():
    return [
        (file.relative_to(PACKAGE), node)
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]


def _texts(node):
    return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}


def _given(call):
    """The arguments of a call by their names; those of an error in its order."""
    names = ("kind", "message", "hint", "where") if call.func.id in CODES else ()
    return dict(zip(names, call.args, strict=False)) | {keyword.arg: keyword.value for keyword in call.keywords}


def _raised():
    """Kinds and exit codes of errors, by the literals of their calls."""
    for file, call in _calls():
        given = _given(call)
        if not isinstance(given.get("kind"), ast.Constant):
            continue
        if call.func.id in CODES:
            yield given["kind"].value, CODES[call.func.id]
        elif call.func.id == "Location":  # whose method raises an InputError
            yield given["kind"].value, CODES["InputError"]
        elif call.func.id == "ErrorPattern":  # of what uv says
            yield given["kind"].value, CODES["EnvironmentBuildError"]
        elif file.parts[0] == "cli":
            from envpack.cli import interrupts, main

            known = {"usage": 2, "bug": main._BUG, "interrupted": interrupts.EXIT_CODE}
            yield given["kind"].value, known[given["kind"].value]


def _judged():
    """Kinds of failure in verdicts: of the catalogue of faults, of the checks, and what is none of these."""
    yield from (known.kind for known in CHECKS.values() if known.kind)
    yield "bad-samples"  # an InputError that the judge puts into the verdict of its model
    for file, call in _calls():
        if file.parts[0] == "verification" and call.func.id in {"Failure", "Fault"} and call.args:
            yield from filter(None, _texts(call.args[0]))
        if file.parts[0] in {"inspection", "support"} and call.func.id in {"fault", "caution", "Finding"}:
            yield from _texts(call.args[0])
        if file.parts[0] == "verification" and call.func.id in {"explain", "explain_answer"}:
            yield from _texts(call.args[1])


def _used():
    return {*_raised(), *((kind, NEGATIVE) for kind in _judged())}


def _written():
    """Kinds of the guide's sections, each with the exit code of the chapter it is in."""
    found, code = [], None
    for line in pages.expand(GUIDE.read_text(encoding="utf-8")).splitlines():
        chapter = re.match(r"## Exit code (\d+)", line)
        section = re.fullmatch(r"### ([a-z-]+)", line)
        code = int(chapter[1]) if chapter else code
        found += [(section[1], code)] if section else []
    return found


def test_every_kind_has_its_section():
    without = {kind for kind, _ in _used()} - {kind for kind, _ in _written()}
    assert without == set(), "add a section for each to docs/reference/errors.md, under its exit code"


def test_every_section_is_used_once():
    written = [kind for kind, _ in _written()]
    assert sorted(written) == sorted(set(written))
    unused = set(written) - {kind for kind, _ in _used()}
    assert unused == set(), "no code raises these: remove their sections from docs/reference/errors.md"


def test_every_section_is_under_an_exit_code_that_its_kind_has():
    used = _used()
    wrong = [entry for entry in _written() if entry not in used]
    assert wrong == [], "no code raises these with this exit code: move their sections in docs/reference/errors.md"


def test_every_check_is_registered():
    results = {"passed", "failed", "warning", "skipped", "unchecked"}
    made = (call for file, call in _calls() if file.parts[0] == "verification" and call.func.id in results)
    names = {name for call in made for name in _texts(call.args[0])}
    assert names == CHECKS.keys(), "each name of a result is that of a function with the decorator `check`"


def test_a_check_of_answers_is_made_during_inference():
    assert {known.step for known in CHECKS.values() if known.of == "answers"} == {"inference"}


def test_a_check_that_can_fail_says_what_that_means():
    assert CHECKS["together"].meaning.startswith("Each model can be served by itself")
    assert all(known.kind for known in CHECKS.values() if known.meaning)


def test_every_error_says_what_to_do():
    silent = []
    for file, call in _calls():
        hint = _given(call).get("hint")
        if call.func.id in CODES and (hint is None or (isinstance(hint, ast.Constant) and not hint.value)):
            silent.append(f"{file}:{call.lineno}")
    assert silent == []

"""Small faults in lines of C++, by text: what a slip of the pen or of an editor leaves behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One changed line.

    Attributes:
        file: path below stub_src.
        line: number of the line, from 1.
        operator: kind of the change.
        before: the line as it is.
        after: the line with the fault.

    """

    file: str
    line: int
    operator: str
    before: str
    after: str

    def apply(self, text: str) -> str:
        lines = text.splitlines(keepends=True)
        assert lines[self.line - 1] == self.before + "\n"
        lines[self.line - 1] = self.after + "\n"
        return "".join(lines)


_SWAPS = {
    "comparison": {
        " == ": " != ", " != ": " == ", " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ",
    },
    "logic": {" && ": " || ", " || ": " && "},
    "arithmetic": {" + ": " - ", " - ": " + ", " * ": " + ", " % ": " / ", " += ": " = ", "++": "--", "--": "++"},
    "truth": {"true": "false", "false": "true"},
    "loop": {"while (": "if ("},
}  # fmt: skip
_WIDTHS = {
    "std::uint64_t": "std::uint32_t",
    "std::int64_t": "std::int32_t",
    "std::size_t": "std::uint16_t",
    "std::uint32_t": "std::uint16_t",
    "std::int32_t": "std::int8_t",
    "Handle": "std::int16_t",
}
_NUMBER = re.compile(r"(?<![\w.\"'])(\d+)(?![\w.\"'])")
_CONDITION = re.compile(r"\b(?:if|while|if constexpr) \(")
_NEGATED = re.compile(r"\((!)(?=[\w(])|(?<=&& )!(?=[\w(])")
_CHOICE = re.compile(r"\? ([^?:]+(?:::[^?:]+)*) : ([^?:;]+(?:::[^?:;]+)*)(?=[;,)])")
_DO_WHILE = re.compile(r"^(\s+)while \(.*\);$")
_CAST = re.compile(r"static_cast<([^<>]+)>\(")
# Fields that need all of their bits. A region of the tests is smaller than 4 GiB, so handles lose 16 bits only.
_COPY = re.compile(
    r"^(\s+[\w.>\[\]-]*(timeout_us|_id|address|trace|offset|number|byte_size|handle|error|value|args|line|flags) = )"
    r"([\w.>()-]+);$"
)
_NARROW = ("handle", "error", "value", "args", "line", "flags")
_STATEMENT = re.compile(r"^\s+(?!return\b|const\b|auto\b|using\b|case\b|throw\b|else\b|static\b)[\w*:.>\[\]<()-]+.*;$")
_DECLARATION = re.compile(r"^\s+[\w:<>*& ]+[ *&]\w+(\{.*\}|\(.*\))?( = .*)?;$")


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Every mutant of a file, in its order."""
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("//")[0].rstrip()
        if not code.startswith("  ") and " constexpr " not in code:
            continue
        if "static_assert" in code or code.endswith("override;") or '"' in code.partition("(")[0]:
            continue
        seen = {code}
        for operator, change in _OPERATORS.items():
            for after in change(code):
                if after not in seen:
                    seen.add(after)
                    yield Mutant(file, number, operator, line, after)


def _swapped(pairs: dict[str, str]) -> Callable[[str], Iterator[str]]:
    def change(code: str) -> Iterator[str]:
        for old, new in pairs.items():
            for at in _places(code, old):
                yield code[:at] + new + code[at + len(old) :]

    return change


def _places(code: str, part: str) -> list[int]:
    bounded = rf"\b{part}\b" if part.isalpha() else re.escape(part)
    return [found.start() for found in re.finditer(bounded, code) if not _in_string(code, found.start())]


def _in_string(code: str, at: int) -> bool:
    return code[:at].count('"') % 2 == 1


def _closing(code: str, at: int) -> int:
    """Index of the bracket that closes the one before `at`, or -1."""
    depth = 1
    for index in range(at, len(code)):
        depth += {"(": 1, ")": -1}.get(code[index], 0)
        if depth == 0:
            return index
    return -1


def _larger_constants(code: str) -> Iterator[str]:
    for found in _NUMBER.finditer(code):
        if not _in_string(code, found.start()):
            yield code[: found.start()] + str(int(found[1]) + 1) + code[found.end() :]


def _negated_conditions(code: str) -> Iterator[str]:
    for found in _CONDITION.finditer(code):
        end = _closing(code, found.end())
        condition = code[found.end() : end]
        if end > 0 and ";" not in condition and " = " not in condition:
            yield f"{code[: found.end()]}!({condition}){code[end:]}"
    for found in _NEGATED.finditer(code):
        at = found.end() - 1
        yield code[:at] + code[at + 1 :]


def _swapped_branches(code: str) -> Iterator[str]:
    for found in _CHOICE.finditer(code):
        yield f"{code[: found.start()]}? {found[2]} : {found[1]}{code[found.end() :]}"


def _changed_casts(code: str) -> Iterator[str]:
    for found in _CAST.finditer(code):
        yield code[: found.start()] + code[found.end() - 1 :]
        narrow = _WIDTHS.get(found[1], "std::int16_t")
        yield f"{code[: found.start(1)]}{narrow}{code[found.end(1) :]}"


def _narrowed_copies(code: str) -> Iterator[str]:
    if found := _COPY.match(code):
        width = "std::uint16_t" if found[2] in _NARROW else "std::uint32_t"
        yield f"{found[1]}static_cast<{width}>({found[3]});"


def _dropped_loops(code: str) -> Iterator[str]:
    if found := _DO_WHILE.match(code):
        yield f"{found[1]}while (false);"


def _dropped_statements(code: str) -> Iterator[str]:
    if _STATEMENT.match(code) and code.count("(") == code.count(")") and not _DECLARATION.match(code):
        yield f"{code[: len(code) - len(code.lstrip())]};"


_OPERATORS: dict[str, Callable[[str], Iterator[str]]] = {
    **{name: _swapped(pairs) for name, pairs in _SWAPS.items()},
    "constant": _larger_constants,
    "negated condition": _negated_conditions,
    "swapped branches": _swapped_branches,
    "cast": _changed_casts,
    "narrowed copy": _narrowed_copies,
    "dropped loop": _dropped_loops,
    "dropped statement": _dropped_statements,
}

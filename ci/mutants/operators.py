"""Small faults in Python code: each `Mutant` replaces one piece of a file's text."""

from __future__ import annotations

import ast
import difflib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_UNTYPED_KEYWORDS = {"encoding"}  # no effect where the locale is UTF-8
# What a call says for readers, or asserts: no behaviour depends on it in a program without another fault.
_UNSEEN = {("zip", "strict"), ("Thread", "name")}
_NAMING_CALLS = {"temp_dir"}  # of folders that are gone before anybody reads their names
_TYPING_CALLS = {"cast", "TypedDict", "TypeVar"}
_TYPING_BASES = {"TypedDict", "Protocol"}


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        file: path from the root of the repository.
        line: line of the replaced piece.
        start: offset of the piece, in bytes.
        end: its end.
        text: what replaces it.
        operator: name of the kind of fault.
        lines: first and last line of the statement, or of a compound statement's header.
        function: name of the innermost function; ``""`` outside of functions.

    """

    file: str
    line: int
    start: int
    end: int
    text: str
    operator: str
    lines: tuple[int, int]
    function: str

    @property
    def imported(self) -> bool:
        """Whether the statement runs when the module is imported, not in a function."""
        return not self.function

    def apply(self, source: bytes) -> bytes:
        """The file's content with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def changed(self, source: bytes) -> tuple[list[str], list[str]]:
        """The lines without and with the fault, as far as they differ, without indentation."""
        old, new = source.decode().splitlines(), self.apply(source).decode().splitlines()
        removed, added = [], []
        for line in difflib.ndiff(old, new):
            if line.startswith("- "):
                removed.append(line[2:].strip())
            elif line.startswith("+ "):
                added.append(line[2:].strip())
        return removed, added


def find_mutants(file: str, source: bytes) -> list[Mutant]:
    """All faults for a file, in the order of the text; a few do not compile, or compile to the same program."""
    found = _Finder(file, source).find(ast.parse(source))
    return [*{(mutant.start, mutant.end, mutant.text): mutant for mutant in found}.values()]


class _Finder:
    def __init__(self, file: str, source: bytes) -> None:
        self._file = file
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self._offsets = [0, *itertools.accumulate(lengths)]
        self._lines = (1, 1)
        self._function = ""

    def find(self, tree: ast.Module) -> Iterator[Mutant]:
        for statement in tree.body:
            yield from self._statement(statement)

    def _mutant(self, node: ast.expr | ast.stmt, text: str, operator: str) -> Mutant:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._offsets[node.lineno - 1] + node.col_offset
        end = self._offsets[node.end_lineno - 1] + node.end_col_offset
        return Mutant(self._file, node.lineno, start, end, text, operator, self._lines, self._function)

    def _expression(self, node: ast.expr, new: ast.expr, operator: str) -> Mutant:
        return self._mutant(node, f"({ast.unparse(new)})", operator)

    # Statements

    def _statement(self, node: ast.stmt) -> Iterator[Mutant]:
        body = [*getattr(node, "body", ())]
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        self._lines = (node.lineno, max(node.lineno, last))
        if _is_for_types(node) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return
        yield from self._removals(node)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for default in filter(None, (*node.args.defaults, *node.args.kw_defaults)):
                    yield from self._inside(default)
                before, self._function = self._function, node.name
                yield from self._statements(node.body)
                self._function = before
            case ast.ClassDef():
                yield from self._statements(node.body)
            case _:
                for name, value in ast.iter_fields(node):
                    if name != "annotation":
                        yield from self._parts(value if isinstance(value, list) else [value])

    def _statements(self, nodes: list[ast.stmt]) -> Iterator[Mutant]:
        lines = self._lines
        for node in nodes:
            yield from self._statement(node)
            self._lines = lines

    def _parts(self, nodes: list[object]) -> Iterator[Mutant]:
        """Faults in the parts of a statement."""
        for node in nodes:
            match node:
                case ast.stmt():
                    yield from self._statements([node])
                case ast.ExceptHandler() | ast.match_case():
                    yield from self._statements(node.body)
                case ast.withitem():
                    yield from self._inside(node.context_expr)
                case ast.expr():
                    yield from self._inside(node)

    def _removals(self, node: ast.stmt) -> Iterator[Mutant]:
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
        if is_call or isinstance(node, ast.Raise | ast.AugAssign | ast.Delete):
            yield self._mutant(node, "pass", "statement removed")
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            yield self._mutant(node, "pass", "statement removed")
        if isinstance(node, ast.Return) and node.value and not isinstance(node.value, ast.Constant):
            yield self._mutant(node, "return None", "return value")
        if isinstance(node, ast.Continue):
            yield self._mutant(node, "break", "continue")
        if isinstance(node, ast.Break):
            yield self._mutant(node, "continue", "break")
        if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
            new = ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)
            yield self._mutant(node, ast.unparse(new), "arithmetic")
        if isinstance(node, ast.If | ast.While):
            yield self._negated(node.test)

    def _negated(self, test: ast.expr) -> Mutant:
        return self._expression(test, ast.UnaryOp(ast.Not(), test), "condition")

    # Expressions

    def _inside(self, node: ast.expr) -> Iterator[Mutant]:
        """Faults in an expression and in the expressions of which it consists."""
        if isinstance(node, ast.JoinedStr):  # up to Python 3.11 positions inside are wrong
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TYPING_CALLS:
            return
        yield from self._of(node)
        if isinstance(node, ast.Call) and _is_named(node.func, *_NAMING_CALLS):
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self._inside(child)
            elif isinstance(child, ast.keyword) and isinstance(node, ast.Call) and _is_seen(node, child):
                yield from self._inside(child.value)
            elif isinstance(child, ast.comprehension):
                yield from self._inside(child.iter)
                for test in child.ifs:
                    yield self._negated(test)
                    yield from self._inside(test)

    def _of(self, node: ast.expr) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left, [first, *others], comparators):
                for other in _COMPARISONS.get(type(first), ()):
                    yield self._expression(node, ast.Compare(left, [other(), *others], comparators), "comparison")
            case ast.BoolOp(operator, values):
                swapped = ast.Or() if isinstance(operator, ast.And) else ast.And()
                yield self._expression(node, ast.BoolOp(swapped, values), "boolean")
            case ast.UnaryOp(ast.Not() | ast.USub(), operand):
                yield self._expression(node, operand, "boolean")
            case ast.BinOp(left, operator, right) if not (_is_text(left) or _is_text(right)):
                if type(operator) in _ARITHMETIC:
                    yield self._expression(node, ast.BinOp(left, _ARITHMETIC[type(operator)](), right), "arithmetic")
            case ast.IfExp(test):
                yield self._negated(test)
            case ast.Constant(value):
                yield from self._constant(node, value)
            case ast.Call():
                yield from self._call(node)

    def _constant(self, node: ast.expr, value: object) -> Iterator[Mutant]:
        if isinstance(value, bool):
            yield self._mutant(node, str(not value), "constant")
        elif isinstance(value, int | float):
            yield self._mutant(node, f"({value + 1})", "constant")
        elif isinstance(value, str | bytes) and len(value.split()) <= 1:  # sentences are for people
            yield self._mutant(node, "'mutant'" if isinstance(value, str) else "b'mutant'", "constant")

    def _call(self, node: ast.Call) -> Iterator[Mutant]:
        ordered = not _is_named(node.func, "min", "max", "suppress")
        if ordered and len(node.args) > 1 and not any(isinstance(argument, ast.Starred) for argument in node.args[:2]):
            first, second, *others = node.args
            new = ast.Call(node.func, [second, first, *others], node.keywords)
            yield self._expression(node, new, "arguments swapped")
        for keyword in node.keywords:
            if keyword.arg and _is_seen(node, keyword):
                kept = [other for other in node.keywords if other is not keyword]
                yield self._expression(node, ast.Call(node.func, node.args, kept), "keyword dropped")


def _is_named(function: ast.expr, *names: str) -> bool:
    """Whether a function is one of these, of whatever module."""
    match function:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name in names
    return False


def _is_seen(call: ast.Call, keyword: ast.keyword) -> bool:
    """Whether behaviour depends on an argument."""
    unseen = any(keyword.arg == name and _is_named(call.func, function) for function, name in _UNSEEN)
    return keyword.arg not in _UNTYPED_KEYWORDS and not unseen


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_for_types(node: ast.stmt) -> bool:
    """Whether a statement only concerns type checkers or documentation."""
    match node:
        case ast.ClassDef(bases=bases):
            return any(isinstance(base, ast.Name) and base.id in _TYPING_BASES for base in bases)
        case (
            ast.Import()
            | ast.ImportFrom()
            | ast.If(test=ast.Name(id="TYPE_CHECKING"))
            | ast.Assign(targets=[ast.Name(id="__all__")])
            | ast.Assign(value=ast.Subscript(value=ast.Name(id="Literal" | "Callable")))
            | ast.Assign(value=ast.BinOp(left=ast.Name(), op=ast.BitOr(), right=ast.Name() | ast.Subscript()))
        ):
            return True
    return False

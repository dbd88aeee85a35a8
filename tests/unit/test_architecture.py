"""The rules of the house (docs/explanation/architecture.md), checked on the code itself."""

import ast
import functools
import graphlib
import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import envpack
from tests.tables import every_row

PACKAGE = Path(envpack.__file__).parent

# Rooms from bottom to top, each with the rooms that it may import from. A new arrow is a decision.
ROOMS = {
    "support": "",
    "settings": "support",
    "requirements": "support",
    "conda": "support settings requirements",
    "repository": "support settings requirements",
    "lock": "support settings requirements conda",
    "environment": "support settings requirements conda lock",
    "archive": "support settings environment",
    "stub": "support settings conda",
    "store": "support",
    "inspection": "support settings requirements repository lock environment archive stub",
    "deployment": "support settings repository environment archive store",
    "server": "support settings repository inspection",
    "verification": "support settings requirements repository archive stub store inspection deployment server",
    "workflow": "support settings requirements conda repository lock environment archive "
    "stub store inspection deployment server verification",
    "local": "support settings repository stub store inspection server workflow",
    "fleet": "support settings store workflow",
    "development": "support settings requirements repository server verification workflow local",
    "testing": "support settings repository store server verification local",
    "cli": "support settings workflow fleet development testing",
}
ORDER = list(ROOMS)
RANK = {room: rank for rank, room in enumerate(ORDER)}


def test_the_checkout_holds_no_large_file():
    """A wheel of 101 MB was committed once, with ``git add --all``."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=PACKAGE.parent, text=True)
    files = [PACKAGE.parent / name for name in listed.split("\0") if name]
    assert files
    assert [file.name for file in files if file.is_file() and file.stat().st_size > 200_000] == []


def _module_files():
    for file in PACKAGE.rglob("*.py"):
        name = ".".join(("envpack", *file.relative_to(PACKAGE).with_suffix("").parts))
        yield name.removesuffix(".__init__"), file


@functools.cache
def _trees():
    """The syntax of all modules, by name; only the process that runs these tests reads them."""
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in _module_files()}


@functools.cache
def _modules():
    return {name: tree for name, tree in _trees().items() if name not in ("envpack", "envpack.__main__")}


def _room(module):
    return module.split(".")[1]


@functools.cache
def _names_of_face(package):
    """Names that a package offers, each with the module that defines it."""
    return {
        alias.name: node.module
        for node in ast.walk(_trees()[package])
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


@functools.cache
def _imports(tree):
    """Modules of ours that a module imports, with names of a package's face traced to the module that defines them."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "envpack":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                face = _names_of_face(node.module) if node.module in _trees() else {}
                found.append(whole if whole in _trees() else face.get(alias.name, node.module))
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] == "envpack"]
    return found


def _imported_rooms(tree):
    """The rooms that a module names in its imports; what a face takes from elsewhere is the face's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "envpack":
            named = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            yield from set(named) & set(ORDER)


def _is_package(module):
    return (PACKAGE / Path(*module.split(".")[1:]) / "__init__.py").is_file()


def test_every_module_is_in_a_room():
    assert {_room(module) for module in _modules()} == set(RANK)


def test_only_allowed_arrows_lead_from_room_to_room():
    found = {room: set() for room in ORDER}
    for module, tree in _modules().items():
        found[_room(module)] |= set(_imported_rooms(tree))
    allowed = {room: set(names.split()) for room, names in ROOMS.items()}
    assert {
        room: rooms - {room} - allowed[room] for room, rooms in found.items() if rooms - {room} - allowed[room]
    } == {}
    assert {room: allowed[room] - rooms for room, rooms in found.items() if allowed[room] - rooms} == {}, (
        "no longer used"
    )


def test_imports_go_one_way():
    wrong = [
        f"{module} imports {imported}"
        for module, tree in _modules().items()
        for imported in _imports(tree)
        if imported in _modules() and RANK[_room(imported)] > RANK[_room(module)]
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        module: {imported for imported in _imports(tree) if imported in _modules() and imported != module}
        for module, tree in _modules().items()
        if not _is_package(module)
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


# Modules that run in a model's Python, with the packages of its environment.
_ELSEWHERE = ("local.python.", "development.python.", "repository.adoption.code.", "verification.gpu_probe_model")

# Python 3.14 has the first, others require the second; distributed requires the third, python-dxf the fourth.
_COME_ALONG = {"compression", "backports", "dask", "www_authenticate"}


def test_what_is_no_dependency_is_looked_for_before_it_is_used():
    """Without watchfiles, which an extra brought, `envpack dev` was a bug in envpack."""
    project = tomllib.loads(PACKAGE.with_name("pyproject.toml").read_text())["project"]
    required = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    known = importlib.metadata.packages_distributions()
    here = {name: tree for name, tree in _modules().items() if not name.removeprefix("envpack.").startswith(_ELSEWHERE)}
    looked_for = _COME_ALONG | {found for tree in here.values() for found in _looked_for(tree)}
    wrong = [
        f"{module} imports {found}"
        for module, tree in here.items()
        for found in _packages_of(tree)
        if not required.intersection(map(canonicalize_name, known.get(found, ()))) and found not in looked_for
    ]
    assert wrong == []


def _packages_of(tree):
    """The packages of others that a module imports, but not for its types alone."""
    types = {node for place in ast.walk(tree) if _is_for_types(place) for node in ast.walk(place)}
    for node in set(ast.walk(tree)) - types:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        yield from {name.split(".")[0] for name in names} - {"envpack", *sys.stdlib_module_names}


def _is_for_types(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _looked_for(tree):
    """The packages whose absence a module handles."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and "ImportError" in " ".join(map(ast.unparse, node.handlers)):
            yield from _packages_of(ast.Module(node.body, []))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("find_spec"):
            yield from (place.value.split(".")[0] for place in node.args if isinstance(place, ast.Constant))


def test_names_that_begin_with_an_underscore_stay_in_their_module():
    wrong = [
        f"{module} imports {alias.name} of {node.module}"
        for module, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("envpack")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert wrong == []


def test_the_core_never_prints():
    wrong = [
        module
        for module, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        if _room(module) != "cli"
    ]
    assert wrong == []


# Each of these is done in one place: what the code would say, and the modules that may say it.
ONE_PLACE = {
    "start programs": (
        {"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_output", "os.system"},
        # A server outlives the call that starts it, so its supervisor is started elsewhere; so does a model's process.
        {"envpack.support.processes", "envpack.server.supervisor", "envpack.local.starting"},
    ),
    "replace files and folders": (
        {"os.replace", "os.rename", "os.renames", "shutil.move", "tempfile.mkstemp"},
        {"envpack.support.replacement"},
    ),
    "find the user's folders": (
        {"platformdirs.user_cache_path", "platformdirs.user_data_path", "platformdirs.user_config_path"},
        {"envpack.support.folders"},
    ),
}


def _calls(tree):
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            yield f"{node.func.value.id}.{node.func.attr}"


def test_links_in_a_circle_are_no_bug():
    """`pathlib.Path.resolve` raises a RuntimeError for them."""
    wrong = [
        f"{module}:{node.lineno}"
        for module, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "resolve"
        if not node.args
    ]
    assert wrong == []


@every_row("what", ONE_PLACE)
def test_one_place_each(what):
    calls, places = ONE_PLACE[what]
    found = {module for module, tree in _modules().items() if calls & set(_calls(tree))}
    assert found <= places
    assert found, f"nothing does {what} any more; remove the rule"


def test_errors_for_users_are_defined_in_one_place():
    kinds = {"EnvpackError", *(error.__name__ for error in _subclasses(envpack.EnvpackError))}
    wrong = [
        f"{module} defines {node.name}"
        for module, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and module != "envpack.support.errors"
        if kinds & {base.id for base in node.bases if isinstance(base, ast.Name)}
    ]
    assert wrong == []


def test_no_constructor_has_more_than_six_positional_parameters():
    wrong = [
        f"{module}.{node.name}"
        for module, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _positional_parameters(node) > 6
    ]
    assert wrong == []


def _positional_parameters(node):
    """How many arguments a call of the class may give by position."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return len(statement.args.args) - 1
    for decorator in map(ast.unparse, node.decorator_list):
        if decorator == "dataclass" or (decorator.startswith("dataclass(") and "kw_only=True" not in decorator):
            fields = [ast.unparse(statement) for statement in node.body if isinstance(statement, ast.AnnAssign)]
            return fields.index("_: KW_ONLY") if "_: KW_ONLY" in fields else len(fields)
    return 0


def _subclasses(kind):
    return {kind, *(found for direct in kind.__subclasses__() for found in _subclasses(direct))}


def test_packing_imports_nothing_that_builds():
    code = "import sys; from envpack.archive.tarball import pack_archive; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "envpack.environment.inventory" in loaded
    assert not {"envpack.environment.build", "envpack.lock.resolve", "rattler"} & loaded

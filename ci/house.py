"""Print what the house weighs: lines and files, rooms and what they import, names in faces, options of commands.

A room is a folder or a module directly in ``envpack/``. Imports for type checkers and within functions count, too.
"""

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click

from envpack.cli.main import cli

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "envpack"


def lines_of(file: Path) -> int:
    return len(file.read_bytes().splitlines())


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> Iterator[str]:
    """The rooms that a module imports from; ``__init__`` for the face of the package itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "envpack":
            _, *parts = node.module.split(".")
            if parts:
                yield parts[0]
            else:
                for alias in node.names:
                    inside = (PACKAGE / alias.name).is_dir() or (PACKAGE / f"{alias.name}.py").is_file()
                    yield alias.name if inside else "__init__"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("envpack."):
                    yield alias.name.split(".")[1]


def arrows(files: list[Path]) -> dict[str, set[str]]:
    """For each room the others that it imports from."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in files:
        found[room_of(file)] |= set(imported_rooms(ast.parse(file.read_bytes()))) - {room_of(file)}
    return dict(found)


def face_names(file: Path) -> int:
    """How many names a room offers in its ``__init__``, in place of the module that defines each."""
    nodes = ast.walk(ast.parse(file.read_bytes()))
    faces = (node for node in nodes if isinstance(node, ast.ImportFrom) and node.module)
    return sum(len(node.names) for node in faces if node.module.startswith(f"envpack.{room_of(file)}."))


def shared_modules(files: list[Path]) -> dict[str, set[str]]:
    """For each room its modules that other rooms import."""
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files}
    found: dict[str, set[str]] = defaultdict(set)
    for file in files:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("envpack."):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    module = whole if whole in names else node.module
                    room = module.split(".")[1]
                    if room_of(file) not in (room, "__init__"):
                        found[room].add(module)
    return found


def options_of(command: str) -> int:
    found = cli.get_command(click.Context(cli), command)
    return sum(isinstance(parameter, click.Option) for parameter in found.params)


def print_house() -> None:
    files = tracked("envpack/*.py", "envpack/**/*.py")
    sizes = {file: lines_of(file) for file in files}
    modules = [file for file in files if file.name != "__init__.py"]
    rooms = arrows(files)
    shared = {room: len(modules) for room, modules in shared_modules(files).items()}
    native = sum(map(lines_of, tracked("stub_src/*.cc", "stub_src/*.h", "stub_src/**/*.cc", "stub_src/**/*.h")))
    print(f"envpack/                {sum(sizes.values()):,} lines, {len(files)} files")
    print(f"  files above 400       {sum(size > 400 for size in sizes.values())}")
    print(f"  modules below 60      {sum(sizes[file] < 60 for file in modules)}")
    print(f"rooms                   {len(rooms)}, {sum(map(len, rooms.values()))} arrows")
    for room in ("cli", "workflow", "fleet", "store"):
        print(f"  {room:<21} {len(rooms[room])}: {' '.join(sorted(rooms[room]))}")
    faces = {room_of(file): face_names(file) for file in files if file in set(PACKAGE.glob("*/__init__.py"))}
    print(f"names in faces          {sum(faces.values())}, at most {max(faces.values())} in a room")
    print(f"modules others import   {sum(shared.values())}; above 12: ", end="")
    print(", ".join(f"{room} {count}" for room, count in sorted(shared.items()) if count > 12) or "none")
    print(f"options                 build {options_of('build')}, verify {options_of('verify')}")
    print(f"stub_src                {native:,} lines")


if __name__ == "__main__":
    print_house()

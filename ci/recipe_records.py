"""When each recipe last ran, and with what result: ci/recipes_ran.json."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from envpack.support.replacement import write_text

CHECKOUT = Path(__file__).resolve().parent.parent
_FILE = CHECKOUT / "ci" / "recipes_ran.json"


@dataclass(frozen=True)
class Ran:
    """One run that passed.

    Attributes:
        date: of the run, as YYYY-MM-DD.
        digest: of the files that ran; see `digest_of`.
        release: Triton release of the server.
        pythons: minor versions of the models.
        megabytes: size of the environments on disk.
        packages: packages that were chosen otherwise than a user's would be; ``""`` for none.
        seconds: of the commands ``test`` and ``verify``.
    """

    date: str
    digest: str
    release: str
    pythons: list[str]
    megabytes: int
    packages: str
    seconds: dict[str, float]


def digest_of(name: str) -> str:
    """A digest of the files of a recipe or a template, but for its README."""
    recipe = CHECKOUT / "recipes" / name
    folder = recipe if recipe.is_dir() else CHECKOUT / "templates" / name
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.suffix != ".pyc" and file.name != "README.md":
            digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def records() -> dict[str, Ran]:
    """What ran, by name."""
    content = json.loads(_FILE.read_text(encoding="utf-8")) if _FILE.is_file() else {}
    return {name: Ran(**entry) for name, entry in content.items()}


def record(name: str, ran: Ran) -> None:
    """Keep the result of one recipe in the place of its last one."""
    entries = {name: dataclasses.asdict(entry) for name, entry in sorted((records() | {name: ran}).items())}
    write_text(_FILE, json.dumps(entries, indent=1) + "\n")

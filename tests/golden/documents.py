"""The JSON of every command that works without a server, a compiler and an interpreter; `programs.py` has the others.

The commands run in one place, in this order, and later ones find what earlier ones made.
"""

from envpack.archive.folder import place_folder
from envpack.archive.tarball import pack_archive
from envpack.repository.model import open_model
from envpack.repository.placement import point_to_environment
from envpack.store.shared import open_store
from tests.conda_packages import index, make_conda_package
from tests.golden.environment import KEY, make_environment
from tests.golden.json_text import json_text
from tests.golden.repository import write_repository
from tests.golden.stub_targets import write_pythons

_PLAN = "build --repository repository --channel https://channel.example/conda --dry-run"
_STORE = "file://WORK/store"
# Files: the words of each command; WORK stands for the folder.
_COMMANDS = {
    "releases": ("releases",),
    "init": ("init --recipe", "init --template", "init new", "init --template bls models/caller"),
    "channel": ("channel ls channel",),
    "build": (_PLAN, f"{_PLAN} half --python 3.11 --triton 25.08 --format tar.gz --stub always --start warm"),
    "inspect": (
        *("inspect --repository repository", "inspect double --repository repository", "inspect repository --strict"),
        *("inspect environment", "inspect environment.tar.gz", "inspect environment --triton 24.10 --strict"),
    ),
    "layout": ("layout --repository placed --output tree", "layout double --repository placed --output tree"),
    "publish": (
        "publish file://WORK/published --repository placed --dry-run",
        "publish file://WORK/published --repository placed",
        "publish file://WORK/published double --repository placed --delete",
    ),
    "fetch": ("fetch file://WORK/published fetched", "fetch file://WORK/published repository"),
    "stub": (
        "stub --print-matrix --prefix pythons/3.8 --prefix pythons/3.12",
        "stub --print-matrix --prefix pythons/3.8 --triton 23.04 --triton 25.08 --skip *23*",
    ),
    "kubernetes": (
        "kubernetes build --repository repository --store s3://bucket/envpack --channel https://channel.example/c",
        "kubernetes verify --repository repository --envpack-image registry.example/envpack:1",
    ),
    "cache": (
        "cache ls",
        f"cache ls --store {_STORE}",
        "cache verify",
        f"cache verify --store {_STORE}",
        f"cache prune --store {_STORE} --days 0 --dry-run",
        "cache prune --days 0 --dry-run",
        "cache prune --days 0",
        "cache ls",
    ),
}


def texts(place):
    """One file for each command, with a document for each of its command lines."""
    _write_ingredients(place)
    return {f"{name}.json": json_text([_told(place, line) for line in lines]) for name, lines in _COMMANDS.items()}


def _told(place, line):
    words = line.replace("WORK", str(place.folder)).split()
    return {"command": line, **place.document(place.envpack(*words, "--json"))}


def _write_ingredients(place):
    """The repository, once as its author writes it and once built, and all else that the commands name."""
    work = place.folder
    write_repository(work / "repository")
    environment = make_environment(place.cache / "environments" / KEY)
    place_folder(environment, work / "environment")
    pack_archive(environment, work / "environment.tar.gz")
    placed = write_repository(work / "placed", only="double")
    place_folder(environment, placed / "double/python3.10")
    point_to_environment(open_model(placed / "double"), "$$TRITON_MODEL_DIRECTORY/python3.10")
    make_conda_package(work / "channel", "plain", "1.0", {"share/plain": b"x"})
    index(work / "channel")
    write_pythons(work / "pythons")
    for name in ("store", "models"):
        (work / name).mkdir()
    open_store(f"file://{work}/store", push=True).add_bytes("lock", "a-key", b"a lock\n", facts={"python": "3.10"})

"""The parts of the golden outputs. Each makes its texts, by file name; nothing else decides what is compared."""

import importlib
from pathlib import Path

from tests.golden.surroundings import real_surroundings, surroundings

FILES = Path(__file__).parent / "files"

# Part: the module whose function `texts` makes it in a folder. These take seconds and need nothing.
QUICK = {
    "help": "help_texts",
    "errors": "bad_inputs",
    "options": "option_sets",
    "keys": "keys",
    "digests": "digests",
    "kubernetes": "jobs",
    "json": "documents",
}
# This one needs what its module says is missing.
REAL = {"programs": "programs"}
PARTS = QUICK | REAL


def write_part(name, folder):
    """Write the files of one part into a folder."""
    module = importlib.import_module(f"tests.golden.{PARTS[name]}")
    folder.mkdir(parents=True)
    with (real_surroundings if name in REAL else surroundings)() as place:
        for file, text in module.texts(place).items():
            # A name that is not UTF-8 becomes the escape that JSON has for it.
            (folder / file).write_bytes(text.encode("utf-8", "backslashreplace"))

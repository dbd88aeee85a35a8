"""A recipe as a file, for machines that get nothing else: the Jobs of Kubernetes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import envpack
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError
from envpack.support.redaction import redact
from envpack.support.text import printable_line
from envpack.workflow.recipe import Recipe

_MOST = 16 << 20  # bytes


def recipe_text(recipe: Recipe) -> str:
    """A recipe as JSON, without paths of this machine.

    Raises:
        InputError: kind ``not-portable``: it depends on files of this machine, or contains a password.
    """
    reason = recipe.files_here
    asked = dataclasses.replace(recipe.requirements, source=None, files=(), places={}, warnings=())
    portable = dataclasses.replace(recipe, requirements=asked, lock_file=Path(recipe.name) / recipe.lock_file.name)
    document = {"envpack": envpack.__version__, "recipe": _converter().unstructure(portable)}
    text = json.dumps(document, indent=1, sort_keys=True)
    if redact(text) != text:
        reason = "its requirements contain an address with a password or a token"
    if reason:
        what = f"no other machine can build {recipe.name}: {reason}"
        fix = "build it on this machine with --store URL --set push=true"
        raise InputError("not-portable", what, fix, str(recipe.lock_file.parent))
    return text


def read_recipe(file: Path) -> Recipe:
    """Read a recipe that `recipe_text` wrote.

    Raises:
        InputError: kind ``bad-recipe``: it is none, or is one of another version of envpack.
    """
    from cattrs import BaseValidationError

    try:
        document = json.loads(read_text(file, most=_MOST))
        version = str(document["envpack"])
        if version != envpack.__version__:
            reason = f"the recipe is of envpack {printable_line(version)}, and this is {envpack.__version__}"
            raise _bad(file, reason, "use the same version on both sides")
        recipe: Recipe = _converter().structure(document["recipe"], Recipe)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, BaseValidationError) as error:
        raise _bad(file, "this is no recipe of envpack", "take one that envpack kubernetes build printed") from error
    return recipe


def _bad(file: Path, message: str, hint: str) -> InputError:
    return InputError("bad-recipe", message, hint, str(file))


def _converter() -> Any:
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, omit_if_default=True)
    converter.register_unstructure_hook(Path, str)
    converter.register_structure_hook(Path, lambda text, _: Path(text))
    return converter

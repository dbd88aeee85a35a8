"""The Pythons of the demo: 3.8, 3.10 and 3.12, or as many different ones as can be had."""

import re
import sys
import tomllib
from pathlib import Path

from envpack.cli.console import Console
from envpack.pythons import FetchError, available_interpreters, fetchable, interpreter_for, interpreter_here
from envpack.support.errors import EnvpackError

WANTED = {"preprocessing": "3.8", "core": "3.10", "postprocessing": "3.12"}
# The Pythons for which the index has both what the models require and wheels of it.
SUITABLE = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
# The first Python without NumPy 1, and the last without NumPy 2.
WITHOUT_NUMPY_1, WITHOUT_NUMPY_2 = "3.13", "3.8"


def choose(repository: Path) -> dict[str, str]:
    """The Python of each model; what cannot be had is replaced, and the output says by what and why.

    A repository that exists keeps its Pythons.
    """
    wanted = _written(repository / "envpack.toml") or WANTED
    console = Console()
    had, reasons = _get(list(dict.fromkeys(wanted.values())), console)
    if not had:
        error = next(iter(reasons.values()))
        sys.exit(f"error: the demo needs a Python with a shared libpython: {error.message}\n  fix: {error.hint}")
    chosen: dict[str, str] = {model: python for model, python in wanted.items() if python in had}
    for model, python in wanted.items():
        if model not in chosen:
            unused = [minor for minor in had if minor not in chosen.values()]
            chosen[model] = min(unused or had, key=lambda minor: abs(_number(minor) - _number(python)))
            print(f"  {model}: Python {chosen[model]} instead of {python}: {reasons[python].message}", flush=True)
    print(f"Pythons of the demo: {', '.join(f'{chosen[model]} for {model}' for model in wanted)}", flush=True)
    return {model: chosen[model] for model in wanted}


def _get(wanted: list[str], console: Console) -> tuple[list[str], dict[str, EnvpackError]]:
    """As many Pythons as are wanted, those of this machine first, then those that uv fetches; and why not others."""
    here = [interpreter.minor for interpreter in available_interpreters() if interpreter.library]
    had = [minor for minor in wanted if minor in here]
    reasons: dict[str, EnvpackError] = {}
    offered = _offered() if len(had) < len(wanted) else ()
    nearest = sorted(SUITABLE, key=lambda minor: min(abs(_number(minor) - _number(python)) for python in wanted))
    for minor in dict.fromkeys((*wanted, *(one for one in nearest if one in here), *nearest)):
        if minor not in had and len(had) < len(wanted):
            try:
                had.append(_find(minor, minor in offered, console))
            except EnvpackError as error:
                reasons[minor] = error
                if minor in offered:  # the network does not bring what uv's list has, so it will bring no other
                    offered = ()
    return had, reasons


def _find(minor: str, is_offered: bool, console: Console) -> str:
    found = interpreter_for(minor, progress=console) if is_offered else interpreter_here(minor)
    return found.minor


def _offered() -> tuple[str, ...]:
    """The minor versions that uv's list has for this machine."""
    try:
        return tuple(fetchable())
    except FetchError as error:
        print(f"no Python can be fetched: {error.reason}", flush=True)
        return ()


def _written(settings: Path) -> dict[str, str]:
    """The Pythons in the settings of a repository."""
    if not settings.is_file():
        return {}
    models = tomllib.loads(settings.read_text(encoding="utf-8")).get("models", {})
    return {model: models[model]["python"] for model in WANTED} if WANTED.keys() <= models.keys() else {}


def prepare(pythons: dict[str, str]) -> None:
    """Write the Pythons into the repository that is the working folder, and fit the requirements to them."""
    settings = Path("envpack.toml")
    text = settings.read_text(encoding="utf-8")
    for model, python in pythons.items():
        text = re.sub(rf'(?<=\[models\.{model}\]\npython = ")[\d.]+', python, text)
        _fit_numpy(Path(model, "requirements.txt"), python)
    settings.write_text(text, encoding="utf-8")


def _fit_numpy(requirements: Path, python: str) -> None:
    text = requirements.read_text(encoding="utf-8")
    lacks_1 = "numpy<2" in text and _number(python) >= _number(WITHOUT_NUMPY_1)
    lacks_2 = "numpy>=2" in text and _number(python) <= _number(WITHOUT_NUMPY_2)
    if lacks_1 or lacks_2:
        print(f"{requirements}: any NumPy, since Python {python} has no NumPy {1 if lacks_1 else 2}")
        requirements.write_text(re.sub(r"numpy(<|>=)2", "numpy", text), encoding="utf-8")


def _number(minor: str) -> int:
    return int(minor.partition(".")[2])

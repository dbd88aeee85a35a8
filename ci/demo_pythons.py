"""The Pythons of the demo: 3.8, 3.10 and 3.12, or as many different ones as can be had."""

import contextlib
import re
import sys
import time
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from envpack.cli.console import Console
from envpack.conda.choice import interpreter_for, interpreter_here
from envpack.conda.fetched import FetchError, fetchable
from envpack.settings.releases import all_releases, find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.errors import EnvpackError

WANTED = {"preprocessing": "3.8", "core": "3.10", "postprocessing": "3.12"}
# The Pythons for which the index has both what the models require and wheels of it.
SUITABLE = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
LONG = 4.0  # seconds
# The first Python without NumPy 1, and the last without NumPy 2.
WITHOUT_NUMPY_1, WITHOUT_NUMPY_2 = "3.13", "3.8"


@dataclass(frozen=True)
class Choice:
    """What the demo uses.

    Attributes:
        pythons: the Python of each model.
        triton: the release that the models are built for.
    """

    pythons: dict[str, str]
    triton: str

    @property
    def options(self) -> str:
        """The same for a command that builds another model."""
        # The server here is of the default release, whose own Python is another one.
        return "" if self.triton == DEFAULT_RELEASE else f" --triton {self.triton} --stub always"


def choose(repository: Path) -> Choice:
    """What the demo uses of what can be had; the output says what is replaced, by what and why.

    A repository that exists keeps its Pythons.
    """
    wanted = _written(repository / "envpack.toml") or WANTED
    release, had, reasons = _get_for_a_release(list(dict.fromkeys(wanted.values())), Console())
    if not had:
        first = next(iter(reasons.values()))
        own = reasons.get(f"3.{sys.version_info.minor}", first)  # the system's, which packages can complete
        sys.exit(f"error: the demo needs a Python with a shared libpython: {first.message}\n  fix: {own.hint}")
    chosen: dict[str, str] = {model: python for model, python in wanted.items() if python in had}
    for model, python in wanted.items():
        if model not in chosen:
            unused = [minor for minor in had if minor not in chosen.values()]
            chosen[model] = min(unused or had, key=lambda minor: abs(_number(minor) - _number(python)))
            print(f"  {model}: Python {chosen[model]} instead of {python}: {reasons[python].message}", flush=True)
    print(f"Pythons of the demo: {', '.join(f'{chosen[model]} for {model}' for model in wanted)}", flush=True)
    return Choice({model: chosen[model] for model in wanted}, release)


def _get_for_a_release(wanted: list[str], console: Console) -> tuple[str, list[str], dict[str, EnvpackError]]:
    """The release whose image runs Pythons that can be had, these Pythons, and why not others.

    Debian 13 and Ubuntu 24.04 have a newer glibc than the image of the default release: if no other Python can be
    fetched there, the models are built for a later one.
    """
    image, offered = find_release(DEFAULT_RELEASE), _offered()
    had, reasons, offered = _get(wanted, image.glibc, offered, console)
    too_new = next((error for error in reasons.values() if error.kind == "glibc-too-old"), None)
    if had or not too_new:
        return image.name, had, reasons
    later = (one for name, one in all_releases().items() if name > image.name)
    newer = next(one for one in later if one.glibc > image.glibc and one.stub_abi == image.stub_abi)
    print(f"{too_new.message}: the models are built for Triton {newer.name}", flush=True)
    had, reasons, _ = _get(wanted, newer.glibc, offered, console)
    return newer.name, had, reasons


def _get(
    wanted: list[str], glibc: str, offered: tuple[str, ...], console: Console
) -> tuple[list[str], dict[str, EnvpackError], tuple[str, ...]]:
    """As many Pythons as are wanted, those of this machine first; why not others; and what else uv can fetch."""
    here = [minor for minor in SUITABLE if _is_here(minor, glibc)]
    had = [minor for minor in wanted if minor in here]
    reasons: dict[str, EnvpackError] = {}
    nearest = sorted(SUITABLE, key=lambda minor: min(abs(_number(minor) - _number(python)) for python in wanted))
    for minor in dict.fromkeys((*wanted, *(one for one in nearest if one in here), *nearest)):
        if minor not in had and len(had) < len(wanted):
            started = time.monotonic()
            try:
                find = partial(interpreter_for, progress=console) if minor in offered else interpreter_here
                had.append(find(minor, glibc=glibc).minor)
            except EnvpackError as error:
                reasons[minor] = error
                if time.monotonic() - started > LONG:  # the network does not answer, for no other version either
                    offered = ()
    return had, reasons, offered


def _is_here(minor: str, glibc: str) -> bool:
    with contextlib.suppress(EnvpackError):
        return bool(interpreter_here(minor, glibc=glibc))
    return False


def _offered() -> tuple[str, ...]:
    """The minor versions that uv's list has for this machine."""
    try:
        return tuple(fetchable(LONG))
    except FetchError as error:
        print(f"no Python can be fetched: {error.reason}", flush=True)
        return ()


def _written(settings: Path) -> dict[str, str]:
    """The Pythons in the settings of a repository."""
    if not settings.is_file():
        return {}
    models = tomllib.loads(settings.read_text(encoding="utf-8")).get("models", {})
    return {model: models[model]["python"] for model in WANTED} if WANTED.keys() <= models.keys() else {}


def prepare(choice: Choice) -> None:
    """Write the choice into the repository that is the working folder, and fit the requirements to it."""
    settings = Path("envpack.toml")
    text = settings.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^triton = .*", f'triton = "{choice.triton}"', text)
    for model, python in choice.pythons.items():
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

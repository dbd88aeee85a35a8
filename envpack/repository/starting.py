"""How a model's instances start: the parameters in config.pbtxt that envpack's stub reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envpack.repository.config import ModelConfig
from envpack.repository.config_editor import get_string_parameter, remove_parameter, set_string_parameter
from envpack.support.errors import InputError

START_PARAMETER = "ENVPACK_START"
TEMPLATE_PARAMETER = "ENVPACK_TEMPLATE"
STARTS = ("cold", "warm")
_VALUES = {START_PARAMETER: STARTS, TEMPLATE_PARAMETER: ("import", "initialize")}


def configured_start(config: ModelConfig) -> str:
    """``"warm"`` or ``"cold"``, as a configuration names it; ``""`` if it leaves that to the server's variables."""
    return get_string_parameter(config, START_PARAMETER)


def with_start(text: str, start: str, where: str | Path) -> str:
    """The text of a configuration whose model starts warm or cold."""
    if start == "warm":
        return set_string_parameter(text, START_PARAMETER, start, where)
    return remove_parameter(text, START_PARAMETER, where) if start else text


def starting_faults(config: ModelConfig, file: Path) -> Iterator[InputError]:
    """An error for each of the parameters that has a value which the stub rejects."""
    for key, known in _VALUES.items():
        if key not in config.parameters:
            continue
        value = config.parameters[key].string_value
        if value not in known:
            what = f"the parameter {key} is {value!r}"
            yield InputError("bad-config", what, f"write {' or '.join(known)}, or remove the parameter", str(file))

"""What `envpack run` sends: samples, arrays, files as they are, or requests made up from the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.local import SEQUENCE_END, SEQUENCE_START, RawTensor, Request, raw
from envpack.server import ServedConfig, Tensor, encode
from envpack.support.bounded_reading import opened, read_bytes
from envpack.support.errors import InputError
from envpack.testing.arrays import MOST_BYTES, from_array, read_arrays
from envpack.verification import SAMPLES_FILE, Samples, generate_requests, read_samples

_ARRAYS = (".npy", ".npz")


@dataclass(frozen=True)
class Given:
    """What is sent to a model."""

    requests: tuple[Request, ...]
    # The samples that they are, with expected answers and tolerances; None if they come from elsewhere.
    samples: Samples | None = None


def read_requests(sources: Sequence[str], config: ServedConfig, model: str, folder: Path) -> Given:
    if not sources:
        own = folder / SAMPLES_FILE
        return _from_samples(own, config, model) if os.path.lexists(own) else Given(tuple(_made_up(config, model)))
    given = [_split(source, config) for source in sources]
    samples = [file for name, file in given if not name and file.suffix == ".json"]
    if samples and len(given) > 1:
        raise _bad(samples[0], "samples hold all inputs of a request, but --input is given more than once", "give one")
    if samples:
        return _from_samples(samples[0], config, model)
    inputs: dict[str, RawTensor] = {}
    for name, file in given:
        for tensor in _tensors(name, file, config):
            if tensor.name in inputs:
                raise _bad(file, f"the input {tensor.name!r} is given twice", "give each input once")
            inputs[tensor.name] = tensor
    return Given((Request(tuple(inputs.values()), model=model),))


def check_sources(sources: Sequence[str]) -> None:
    """Refuse files that cannot be read, before a model is loaded, which can take minutes."""
    for source in sources:
        _, _, named = source.partition("=")
        file = Path(named) if named and not Path(source).exists() else Path(source)
        try:
            with opened(file):
                pass
        except OSError as error:
            raise _bad(file, f"cannot be read: {error.strerror}", "give a file that you can read") from error


def _split(source: str, config: ServedConfig) -> tuple[str, Path]:
    """The input that is named, ``""`` for none, and the file."""
    names = [entry.name for entry in config.inputs]
    name, equals, rest = source.partition("=")
    if equals and name in names:
        return name, Path(rest)
    if equals and not Path(source).exists():
        raise _bad(Path(source), f"the model has no input {name!r}, only {', '.join(names)}", "name one of its inputs")
    return "", Path(source)


def _from_samples(file: Path, config: ServedConfig, model: str) -> Given:
    samples = read_samples(file, config)
    return Given(tuple(_request(sample.inputs, sample.parameters, model) for sample in samples.samples), samples)


def _made_up(config: ServedConfig, model: str) -> Iterator[Request]:
    for request in list(generate_requests(config))[:1]:
        yield _request(request.inputs, request.parameters, model)


def _request(inputs: Sequence[Tensor], parameters: Mapping[str, Any], model: str) -> Request:
    flags = SEQUENCE_START * bool(parameters.get("sequence_start"))
    flags |= SEQUENCE_END * bool(parameters.get("sequence_end"))
    return Request(tuple(map(raw, inputs)), correlation_id=parameters.get("sequence_id", 0), flags=flags, model=model)


def _tensors(name: str, file: Path, config: ServedConfig) -> Iterator[RawTensor]:
    known = {entry.name: entry for entry in config.inputs}
    if file.suffix in _ARRAYS:
        yield from _arrays(file, name, config)
        return
    strings = [entry.name for entry in config.inputs if entry.datatype == "BYTES" and name in ("", entry.name)]
    if not strings:
        which = f"the input {name!r} is" if name else "the model has"
        raise _bad(file, f"{which} no input of strings, which files can be sent to", "give .json, .npy or .npz")
    if len(strings) > 1:
        raise _bad(file, f"the model has {len(strings)} inputs of strings", "say which one: INPUT=FILE")
    try:
        content = read_bytes(file, most=MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise _bad(file, f"cannot be read: {reason}", "give a file that you can read") from error
    shape = tuple(1 if size < 0 else size for size in known[strings[0]].dims)
    yield RawTensor(strings[0], "BYTES", shape, encode("BYTES", (content,)))


def _arrays(file: Path, name: str, config: ServedConfig) -> Iterator[RawTensor]:
    inputs = {entry.name: entry for entry in config.inputs}
    for own, array in read_arrays(file).items():
        target = own or name or (config.inputs[0].name if len(config.inputs) == 1 else "")
        if target not in inputs:
            raise _bad(file, f"the model has no input {target!r}, only {', '.join(inputs)}", "say which: INPUT=FILE")
        yield from_array(target, array, inputs[target].datatype)


def _bad(file: Path, reason: str, hint: str) -> InputError:
    return InputError("bad-input", reason, hint, str(file))

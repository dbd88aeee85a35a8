"""What a test sees of a model, its tensors as NumPy arrays, and the interface of what runs the models.

NumPy is optional, so it is imported inside functions.
"""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from envpack.local.values import SEQUENCE_END, SEQUENCE_START, RawTensor, Request, Response
from envpack.server.log import stated
from envpack.server.tensors import CODES, decode, encode, read_served_config
from envpack.support.bounded_reading import opened
from envpack.support.errors import InputError
from envpack.support.installation import install_beside
from envpack.support.replacement import check_output, write_output

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


_TYPES = {name: f"<{code}" for name, code in CODES.items()} | {"BF16": "<H"}  # NumPy has no BF16: its bits
MOST_BYTES = 2 << 30  # of one file
# What numpy.load raises for damaged files, and for archives with a password.
_DAMAGED = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
_KINDS = {"b": "BOOL", "u": "UINT", "i": "INT", "f": "FP"}


def from_array(name: str, array: Any, datatype: str = "") -> RawTensor:
    """A tensor from an array; arrays of strings, bytes and objects become BYTES."""
    if not hasattr(array, "dtype"):
        array = _converted(name, array, datatype)
        if datatype == "BF16":
            return RawTensor(name, datatype, array.shape, encode(datatype, array.ravel().tolist()))
    if array.dtype.kind in "SUO":
        elements = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
        return RawTensor(name, "BYTES", array.shape, encode("BYTES", elements))
    kind = _KINDS.get(array.dtype.kind, "")
    own = kind if kind in ("", "BOOL") else f"{kind}{array.itemsize * 8}"
    if own not in _TYPES:
        raise _bad(name, f"arrays of {array.dtype} fit no type of a model", "convert the array")
    content = array.astype(_TYPES[own], order="C", copy=False).tobytes()
    return RawTensor(name, "BF16" if (own, datatype) == ("UINT16", "BF16") else own, array.shape, content)


def _converted(name: str, values: Any, datatype: str) -> Any:
    numpy = _numpy(name)
    types = {**_TYPES, "BYTES": object, "BF16": "<f4", "": None}
    try:
        return numpy.asarray(values, dtype=types[datatype])
    except (ValueError, TypeError, OverflowError) as error:
        raise _bad(name, f"no array of {datatype}: {error}", "correct the values") from error


def to_array(tensor: RawTensor) -> Any:
    """A tensor as an array; BYTES as an array of bytes objects, BF16 as its bits."""
    numpy = _numpy(tensor.name)
    if tensor.datatype == "BYTES":
        array = numpy.empty(tensor.size, dtype=object)
        array[:] = decode("BYTES", bytes(tensor.content))
        return array.reshape(tensor.shape)
    return numpy.frombuffer(tensor.content, dtype=_TYPES[tensor.datatype]).reshape(tensor.shape)


def read_arrays(file: Path) -> dict[str, Any]:
    """The arrays of an ``.npz`` file by name, or that of an ``.npy`` file under ``""``.

    Nothing in it is run, and no more than `MOST_BYTES` are read from an archive, after decompression.
    """
    numpy = _numpy(str(file))
    hint = "it must be an array that numpy.save wrote"
    try:
        with opened(file) as content:
            loaded = numpy.load(content, allow_pickle=False)
            if not isinstance(loaded, Mapping):
                return {"": loaded}
            size = sum(entry.file_size for entry in loaded.zip.infolist())  # type: ignore[attr-defined]
            if size > MOST_BYTES:
                raise _bad(str(file), f"cannot be read: its arrays have {size} bytes, more than {MOST_BYTES}", hint)
            return dict(loaded)
    except OSError as error:
        raise _bad(str(file), f"cannot be read: {error.strerror or error}", hint) from error
    except MemoryError as error:
        raise _bad(str(file), f"cannot be read: there is not enough memory: {error}", hint) from error
    except _DAMAGED as error:
        if str(error).startswith("Object arrays "):
            what = "cannot be read: it holds Python objects, which could run code"
            raise _bad(str(file), what, "save strings as array.astype('S') or array.astype('U')") from error
        raise _bad(str(file), f"cannot be read: {error}", hint) from error


def check_can_save(file: Path) -> None:
    """Refuse a file that `save_arrays` cannot write, before what is to be saved takes minutes to make."""
    if importlib.util.find_spec("numpy") is None:
        raise _without_numpy(str(file))
    check_output(file)


def save_arrays(tensors: tuple[RawTensor, ...], file: Path) -> None:
    numpy = _numpy(str(file))
    arrays = {tensor.name: to_array(tensor) for tensor in tensors}
    # Strings as NumPy's own type, which can be read without pickle.
    plain = {name: _strings(name, array) if array.dtype == object else array for name, array in arrays.items()}
    try:
        numpy.savez(content := io.BytesIO(), **plain)  # a pipe or a device cannot be sought in
        write_output(file, content.getvalue())
    except OSError as error:
        raise _bad(str(file), f"cannot be written: {error.strerror}", "give another file") from error


def _strings(name: str, array: Any) -> Any:
    if any(element.endswith(b"\0") for element in array.flat):
        text = "its strings cannot be saved: one ends with a zero byte, which NumPy removes"
        raise _bad(name, text, "use --json instead of --output")
    return array.astype("S")


def _numpy(where: str) -> Any:
    try:
        import numpy
    except ImportError:
        raise _without_numpy(where) from None
    return numpy


def _without_numpy(where: str) -> InputError:
    return _bad(where, "arrays need NumPy beside envpack", install_beside("numpy"))


def _bad(where: str, reason: str, hint: str) -> InputError:
    return InputError("bad-input", reason, hint, where)


class ModelError(Exception):
    """A model failed, or rejects a request. The text is the server's, with the model's traceback."""

    def __init__(self, text: str, fix: str = "") -> None:
        self.text, self.fix = stated(text), fix
        super().__init__(f"{self.text}\nfix: {fix}" if fix else self.text)


class Models(Protocol):
    """Runs the models of one repository."""

    def load(self, model: str) -> None:
        """Load a model, if it is not loaded; raises `ModelError`."""

    def forget(self, model: str) -> None:
        """Make the next `load` of a model load it anew."""

    def config(self, model: str) -> dict[str, Any]:
        """The completed configuration of a loaded model."""

    def infer(self, requests: Sequence[Request]) -> list[tuple[Response, ...]]:
        """Run requests at the same time, all to one model that is not decoupled; an error is in a response."""

    def stream(self, request: Request) -> Iterator[Response]:
        """Run a request that has any number of responses; closing the iterator cancels it."""

    def has_ended(self, model: str) -> bool:
        """Whether a model that was sent requests has ended, or takes so long that it was ended."""

    def position(self) -> int:
        """Where the log ends now."""

    def logged(self, model: str, since: int) -> list[str]:
        """What a model has logged since a `position`."""

    def printed(self, since: int) -> str:
        """What the server and the models have printed since a `position`, if it is not on this process's output."""

    def close(self) -> None:
        """Finalize the models, and stop everything."""

    def kill(self) -> None:
        """Stop everything at once, whatever the models do; `close` follows."""


__tracebackhide__ = True  # pytest shows the line of the test instead


class ModelUnderTest:
    """A loaded model, as the fixture ``triton_model`` returns it."""

    def __init__(self, name: str, models: Models, since: int) -> None:
        self.name = name
        self._models = models
        self._since = since

    @property
    def config(self) -> dict[str, Any]:
        """The configuration with which the model runs, completed as by a server."""
        return self._models.config(self.name)

    @property
    def logs(self) -> list[str]:
        """The messages that the model has logged since the test began, except verbose ones."""
        return self._models.logged(self.name, self._since)

    def request(
        self,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        id: str = "",  # noqa: A002 - the server's name
        parameters: Mapping[str, object] | None = None,
        outputs: Collection[str] = (),
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
        **arrays: Any,
    ) -> Request:
        """A request to the model, for `infer_batch`."""
        declared = {entry.name: entry.datatype for entry in read_served_config(self.config).inputs}
        tensors = (
            from_array(name, value, declared.get(name, "")) for name, value in {**(inputs or {}), **arrays}.items()
        )
        return Request(
            tuple(tensors),
            outputs=frozenset(outputs),
            id=id,
            correlation_id=sequence_id,
            flags=SEQUENCE_START * sequence_start | SEQUENCE_END * sequence_end,
            parameters=json.dumps(dict(parameters or {}), separators=(",", ":")),
            model=self.name,
        )

    def infer(self, inputs: Mapping[str, Any] | None = None, /, **options: Any) -> Arrays:
        """Send one request; returns the outputs by name. Takes what `request` takes."""
        (answer,) = self.infer_batch([self.request(inputs, **options)])
        return answer

    @overload
    def infer_batch(
        self, requests: Sequence[Request | Mapping[str, Any]], *, return_errors: Literal[False] = False
    ) -> list[Arrays]: ...

    @overload
    def infer_batch(
        self, requests: Sequence[Request | Mapping[str, Any]], *, return_errors: Literal[True]
    ) -> list[Arrays | ModelError]: ...

    def infer_batch(
        self, requests: Sequence[Request | Mapping[str, Any]], *, return_errors: bool = False
    ) -> list[Arrays] | list[Arrays | ModelError]:
        """Send requests at the same time; returns the outputs of each.

        The model gets those in one call of ``execute()`` that the server joins by the model's ``dynamic_batching``.
        """
        made = [request if isinstance(request, Request) else self.request(request) for request in requests]
        answers = [_single(responses) for responses in self._models.infer(made)] if made else []
        for answer in answers:
            if isinstance(answer, ModelError) and not return_errors:
                raise answer
        return [answer if isinstance(answer, ModelError) else _arrays(answer) for answer in answers]

    def stream(self, inputs: Mapping[str, Any] | None = None, /, **options: Any) -> Iterator[Arrays]:
        """Send one request; yields the outputs of each response as it comes. Takes what `request` takes.

        Closing the iterator cancels the request.
        """
        for response in self._models.stream(self.request(inputs, **options)):
            if response.error is not None:
                raise ModelError(response.error)
            yield _arrays(response)


TritonModel = Callable[[str], ModelUnderTest]
"""The type of the fixture ``triton_model``: returns a model by its name."""


def _single(responses: Sequence[Response]) -> Response | ModelError:
    if len(responses) != 1:
        return ModelError(f"expected a single response, got {len(responses)}")
    (response,) = responses
    return response if response.error is None else ModelError(response.error)


def _arrays(response: Response) -> Arrays:
    return {tensor.name: to_array(tensor) for tensor in response.outputs}

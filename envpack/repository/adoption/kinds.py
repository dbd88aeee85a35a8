"""Finds out what an artifact is, and fetches it where it is not a file.

The bytes of a pickled scikit-learn model are searched; nothing is unpickled.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from envpack.repository.adoption.artifact import OTHER_MODELS, Artifact, bad_artifact, python_env, requirements_in
from envpack.repository.adoption.mlflow_model import MLMODEL, read_mlflow_model
from envpack.repository.adoption.modules import imported, read_function
from envpack.requirements.format import has_name_of_requirements
from envpack.requirements.import_names import requirement_of
from envpack.support.bounded_reading import opened
from envpack.support.errors import EnvironmentBuildError, UsageError
from envpack.support.folders import real_path, whole_path
from envpack.support.installation import install_command, program_beside
from envpack.support.processes import run
from envpack.support.text import one_line, printable_line

_PLAIN = re.compile(rb"\x80[\x02-\x05]")
# By gzip, zlib, bz2, xz or lzma, as joblib does.
_COMPRESSED = re.compile(rb"\x1f\x8b|\x78[\x01\x5e\x9c\xda]|BZ|\xfd7|]\0")
_MOST = 1 << 30  # bytes of decompressed content that are searched
# How pickles write a class, from protocol 4 on and before, and the entry that scikit-learn adds to a model's state.
_CLASS = re.compile(rb"\x8c.([A-Za-z_][\w.]{0,200})\x94\x8c.([A-Za-z_][\w.]{0,200})\x94\x93", re.DOTALL)
# Shorter names would be in numbers, too. A text may stand before: then `q` and its number, which may be a letter, do.
_OLD_CLASS = re.compile(rb"(?<![^q]q)c(?![\w.]{0,200}q\wc)([A-Za-z_][\w.]{2,200})\n([A-Za-z_][\w.]{2,200})\n")
_VERSION = re.compile(rb"_sklearn_version(?:\x94|q.|r.{4})?(?:\x8c(.)|X(.{4}))(\d[\w.]{0,40})", re.DOTALL)
_FIRST_WITH_NUMPY_2 = (1, 4, 2)  # of scikit-learn; those before do not exclude it, and cannot be imported beside it
_GIVEN = {"numpy", "sklearn", "joblib", "copy_reg", "__builtin__", *sys.stdlib_module_names}


def read_estimator(file: Path, python: str) -> Artifact:
    """Read which packages a pickled model needs; what it expects and answers, only the model itself knows."""
    content = _content(file)
    if not _PLAIN.match(content):
        raise bad_artifact("what it holds in a compressed form is no pickle", "unpack it, and name the model", file)
    if content[-1:] != b"." and len(content) < _MOST:  # the last byte of every pickle
        raise bad_artifact("the pickle breaks off", "copy or write the file again", file)
    found = _VERSION.search(content)
    version = found[3][: int.from_bytes(found[1] or found[2], "little")].decode() if found else ""
    named = (*_CLASS.findall(content), *_OLD_CLASS.findall(content))
    classes = {module.decode(): name.decode() for module, name in named}
    says = {text: content.find(text) >= 0 for text in (b"numpy._core", b"numpy.core", b"feature_names_in_")}
    is_older = says[b"numpy.core"] or (
        version and tuple(map(int, re.findall(r"\d+", version)[:3])) < _FIRST_WITH_NUMPY_2
    )
    numpy = "numpy>=2" if says[b"numpy._core"] else "numpy<2" if is_older else "numpy"
    own = sorted(module for module in classes if module.partition(".")[0] not in _GIVEN)
    if "__main__" in classes:
        what = f"it contains {classes['__main__']} of the program that wrote it (__main__), which no server can import"
        raise bad_artifact(what, "move that class into a module beside the file, and write the file again", file)
    if not (version or own):
        raise bad_artifact("this pickle contains no model of scikit-learn", OTHER_MODELS, file)
    modules, others = imported(file.parent, own)
    for folder in file.parents[1:3]:  # no package of that name is installed in place of the project's own
        if above := imported(folder, own)[0].keys() - modules.keys():
            what = f"it needs {min(above)}, which is not beside it, but in {folder}"
            raise bad_artifact(what, f"copy the file there, and name that copy: {folder / file.name}", file)
    packages = [requirement_of(name) for name in others if name not in _GIVEN]
    lines = [f"scikit-learn=={version}" if version else "scikit-learn", numpy]
    lines += [*(["pandas"] if says[b"feature_names_in_"] else []), *packages]
    requirements = requirements_in(file.parent, python)
    note = f"the file does not say which version of {', '.join(packages)} it needs: the newest is taken"
    return Artifact(
        kind="sklearn",
        title=f"scikit-learn model{f', version {version}' if version else ''}",
        source=file,
        files={**modules, "model.joblib": file},
        requirements=requirements or python_env(python, list(dict.fromkeys(lines))),
        details={"needs": lines[:2]},
        notes=(note,) if packages and not requirements else (),
    )


def _content(file: Path) -> bytes | mmap.mmap:
    with opened(file) as stream:
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    if not _COMPRESSED.match(content):
        return content
    kinds = {b"BZ": bz2.BZ2Decompressor, b"\xfd7": lzma.LZMADecompressor, b"]\0": lzma.LZMADecompressor}
    try:
        return kinds.get(content[:2], partial(zlib.decompressobj, wbits=47))().decompress(content, _MOST)
    except (zlib.error, lzma.LZMAError, OSError) as error:
        raise bad_artifact(f"it cannot be decompressed: {error}", "write it again with joblib", file) from error


_URI = re.compile(r"[a-z][a-z0-9+.-]+:/.+")
_FILES = {".onnx", ".joblib", ".pkl", ".pickle"}
_FUNCTION = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")
_FETCH_LIMIT = 3600  # seconds
# MLflow's own are 7 and 120: it would be silent for minutes about a server that refuses, and longer if it hangs.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
# How an ONNX model names a file with weights that lie outside of it; the length of the name follows, seven bits a byte.
_LOCATION = re.compile(rb"\n\x08location\x12([\x80-\xff]?[\x01-\x7f])")
_HINT = "name a folder with MLmodel, a .joblib, .pkl or .onnx file, module:function, or a URI such as models:/NAME/1"


@contextlib.contextmanager
def fetched(text: str) -> Iterator[str]:
    """An artifact as a path or ``module:function``; the user's own MLflow fetches what a URI names, for the block."""
    if not _URI.fullmatch(text):
        yield text
        return
    if Path(text).suffix in _FILES:
        raise bad_artifact("a URI names a folder of MLflow, not a file", "download the file, and name it", text)
    with tempfile.TemporaryDirectory(prefix="envpack-artifact-") as folder:
        words = [_mlflow(text), "artifacts", "download", "--artifact-uri", text, "--dst-path", folder]
        try:  # It is the user's own program, whose server and credentials are in the user's variables.
            done = run(words, env={**_PATIENCE, **os.environ}, timeout=_FETCH_LIMIT)
        except subprocess.TimeoutExpired:
            raise _not_fetched(text, f"it took longer than {_FETCH_LIMIT} s") from None
        found = sorted(Path(folder).rglob(MLMODEL))
        if done.returncode or not found:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            why = printable_line(one_line(said[-1])) if done.returncode and said else f"there is no {MLMODEL}"
            raise _not_fetched(text, why, done.stderr)
        yield str(found[0].parent)


def _not_fetched(uri: str, why: str, details: str = "") -> EnvironmentBuildError:
    fix = "check the name and the version, and MLFLOW_TRACKING_URI"
    return EnvironmentBuildError("artifact-missing", f"MLflow did not fetch a model: {why}", fix, uri, details=details)


def _mlflow(uri: str) -> str:
    program = program_beside("mlflow") or shutil.which("mlflow")
    if program is None:
        what = "only MLflow can fetch this, and it is not installed"
        raise UsageError("mlflow-missing", what, f"{install_command('mlflow')}, or name a folder", uri)
    return str(program)


def inspect_artifact(text: str, *, python: str = "", native: bool = False) -> Artifact:
    """Read what a path, or ``module:function``, says of itself; ``python`` counts if it names none."""
    path, function = whole_path(Path(text)), _FUNCTION.fullmatch(text)
    if path.exists():
        found = _read(path, python, native=native)
    elif function:
        found = read_function(function["module"], function["name"], python)
    else:
        raise bad_artifact("there is no such file or folder", _HINT, text)
    if native and not found.platform:
        raise UsageError("usage", "--native is for ONNX files", "leave it out", text)
    return found


def _read(path: Path, python: str, *, native: bool) -> Artifact:
    if path.is_dir() or path.name == MLMODEL:
        return read_mlflow_model(path if path.is_dir() else path.parent)
    with opened(path) as content:
        start = content.read(2)
    if _PLAIN.match(start) or _COMPRESSED.match(start):
        return read_estimator(path, python)
    if start[:1] != b"\x08":  # the first field of an ONNX model
        in_model = "requirements belong in the folder of a model; `envpack init --template` lists templates for one"
        fix = in_model if has_name_of_requirements(path) else OTHER_MODELS
        raise bad_artifact("this is no model that envpack can read", fix, path)
    return Artifact(
        kind="onnx",
        title="ONNX model",
        source=path,
        files={**_weights(path), "model.onnx": path},
        requirements=requirements_in(path.parent, python) or python_env(python, ("numpy", "onnxruntime")),
        platform="onnxruntime_onnx" if native else "",
    )


def _length(bits: bytes) -> int:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(bits))


def _weights(file: Path) -> dict[str, Path]:
    """The files beside an ONNX model that hold weights of it, by the names that it has for them."""
    with opened(file) as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = {content[match.end() : match.end() + _length(match[1])] for match in _LOCATION.finditer(content)}
    folders = (real_path(file.parent), real_path(file).parent)  # the cache of Hugging Face links to one folder
    weights = {}
    for name in sorted(os.fsdecode(name) for name in found):
        place = file.parent / name
        is_outside = place.is_file() and not any(map(real_path(place).is_relative_to, folders))
        if is_outside or Path(name).is_absolute() or ".." in Path(name).parts:
            what = f"it names weights outside of its folder: {printable_line(name)}"
            raise bad_artifact(what, "export the model again, with all files in one folder", file)
        if not place.is_file():
            what = f"it has weights in {printable_line(name)}, which is not beside it"
            raise bad_artifact(what, "copy that file there, too", file)
        weights[name] = place
    return weights

"""Reads what the file of a pickled scikit-learn model says of itself. Its bytes are searched; nothing is unpickled."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from envpack.adoption.artifact import Artifact, bad_artifact, python_env, requirements_in
from envpack.requirements import package_of
from envpack.support.bounded_reading import opened

_PLAIN = re.compile(rb"\x80[\x02-\x05]")
_COMPRESSED = re.compile(rb"\x1f\x8b|\x78[\x01\x5e\x9c\xda]")  # by gzip or zlib, as joblib does
_WINDOW, _OVERLAP = 16 << 20, 1 << 12  # bytes that are searched at a time, and of them those that are searched again
# How pickles write a class, from protocol 4 on and before, and the entry that scikit-learn adds to a model's state.
_CLASS = re.compile(rb"\x8c.([A-Za-z_][\w.]{0,200})\x94\x8c.([A-Za-z_][\w.]{0,200})\x94\x93", re.DOTALL)
_OLD_CLASS = re.compile(rb"c([A-Za-z_][\w.]{0,200})\n([A-Za-z_][\w.]{0,200})\n")
_VERSION = re.compile(rb"_sklearn_version(?:\x94|q.|r.{4})?(?:\x8c(.)|X(.{4}))(\d[\w.]{0,40})", re.DOTALL)
_GIVEN = {"numpy", "sklearn", "joblib", "copy_reg", "__builtin__", *sys.stdlib_module_names}


def is_pickle(start: bytes) -> bool:
    """Whether the first two bytes are those of a pickle, compressed or not."""
    return bool(_PLAIN.match(start) or _COMPRESSED.match(start))


def read_estimator(file: Path, python: str) -> Artifact:
    """Read which packages a pickled model needs; what it expects and answers, only the model itself knows."""
    version, classes, numpy, pandas = "", dict[str, str](), "numpy", False
    for window in _windows(file):
        if found := _VERSION.search(window):
            version = found[3][: int.from_bytes(found[1] or found[2], "little")].decode()
        for module, name in (*_CLASS.findall(window), *_OLD_CLASS.findall(window)):
            classes.setdefault(module.decode(), name.decode())
        numpy = "numpy>=2" if b"numpy._core" in window else "numpy<2" if b"numpy.core" in window else numpy
        pandas = pandas or b"feature_names_in_" in window
    own = sorted({module.partition(".")[0] for module in classes} - _GIVEN)
    if "__main__" in classes:
        what = f"it contains {classes['__main__']} of the program that wrote it (__main__), which no server can import"
        raise bad_artifact(what, "move that class into a module beside the file, and write the file again", file)
    if not (version or own):
        raise bad_artifact("this pickle contains no model of scikit-learn", "log the model with MLflow", file)
    places = [place for name in own for place in (file.parent / name, file.with_name(f"{name}.py"))]
    modules = {place.name: place for place in places if place.is_file() or (place / "__init__.py").is_file()}
    packages = [package_of(name) for name in own if not {name, f"{name}.py"} & modules.keys()]
    lines = (
        f"scikit-learn=={version}" if version else "scikit-learn",
        numpy,
        *(["pandas"] if pandas else []),
        *packages,
    )
    requirements = requirements_in(file.parent, python)
    note = f"the file does not say which version of {', '.join(packages)} it needs: the newest is taken"
    return Artifact(
        kind="sklearn",
        title=f"scikit-learn model{f', version {version}' if version else ''}",
        source=file,
        files={**modules, "model.joblib": file},
        requirements=requirements or python_env(python, tuple(dict.fromkeys(lines))),
        notes=(note,) if packages and not requirements else (),
    )


def _windows(file: Path) -> Iterator[bytes]:
    """Consecutive parts of the content, each with the end of the part before it."""
    before = b""
    for part in _parts(file):
        yield before + part
        before = part[-_OVERLAP:]


def _parts(file: Path) -> Iterator[bytes]:
    with opened(file) as content:
        is_compressed = _COMPRESSED.match(content.read(2))
        content.seek(0)
        unpack, rest = zlib.decompressobj(wbits=47), b""  # gzip or zlib
        while block := rest or content.read(_WINDOW):
            try:
                yield unpack.decompress(block, _WINDOW) if is_compressed else block
            except zlib.error as error:
                raise bad_artifact(f"it cannot be decompressed: {error}", "write it again with joblib", file) from error
            rest = unpack.unconsumed_tail

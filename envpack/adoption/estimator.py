"""Reads what the file of a pickled scikit-learn model says of itself. Its bytes are searched; nothing is unpickled."""

from __future__ import annotations

import mmap
import re
import sys
import zlib
from pathlib import Path

from envpack.adoption.artifact import Artifact, bad_artifact, python_env, requirements_in
from envpack.adoption.modules import imported
from envpack.requirements.import_names import package_of
from envpack.support.bounded_reading import opened

_PLAIN = re.compile(rb"\x80[\x02-\x05]")
_COMPRESSED = re.compile(rb"\x1f\x8b|\x78[\x01\x5e\x9c\xda]")  # by gzip or zlib, as joblib does
_MOST = 1 << 30  # bytes of decompressed content that are searched
# How pickles write a class, from protocol 4 on and before, and the entry that scikit-learn adds to a model's state.
_CLASS = re.compile(rb"\x8c.([A-Za-z_][\w.]{0,200})\x94\x8c.([A-Za-z_][\w.]{0,200})\x94\x93", re.DOTALL)
# Shorter names would be in numbers, too.
_OLD_CLASS = re.compile(rb"c([A-Za-z_][\w.]{2,200})\n([A-Za-z_][\w.]{2,200})\n")
_VERSION = re.compile(rb"_sklearn_version(?:\x94|q.|r.{4})?(?:\x8c(.)|X(.{4}))(\d[\w.]{0,40})", re.DOTALL)
_GIVEN = {"numpy", "sklearn", "joblib", "copy_reg", "__builtin__", *sys.stdlib_module_names}


def is_pickle(start: bytes) -> bool:
    """Whether the first two bytes are those of a pickle, compressed or not."""
    return bool(_PLAIN.match(start) or _COMPRESSED.match(start))


def read_estimator(file: Path, python: str) -> Artifact:
    """Read which packages a pickled model needs; what it expects and answers, only the model itself knows."""
    content = _content(file)
    found = _VERSION.search(content)
    version = found[3][: int.from_bytes(found[1] or found[2], "little")].decode() if found else ""
    named = (*_CLASS.findall(content), *_OLD_CLASS.findall(content))
    classes = {module.decode(): name.decode() for module, name in named}
    says = {text: content.find(text) >= 0 for text in (b"numpy._core", b"numpy.core", b"feature_names_in_")}
    numpy = "numpy>=2" if says[b"numpy._core"] else "numpy<2" if says[b"numpy.core"] else "numpy"
    own = sorted(module for module in classes if module.partition(".")[0] not in _GIVEN)
    if "__main__" in classes:
        what = f"it contains {classes['__main__']} of the program that wrote it (__main__), which no server can import"
        raise bad_artifact(what, "move that class into a module beside the file, and write the file again", file)
    if not (version or own):
        raise bad_artifact("this pickle contains no model of scikit-learn", "log the model with MLflow", file)
    modules, others = imported(file.parent, own)
    packages = [package_of(name) for name in others if name not in _GIVEN]
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
        notes=(note,) if packages and not requirements else (),
    )


def _content(file: Path) -> bytes | mmap.mmap:
    with opened(file) as stream:
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    if not _COMPRESSED.match(content):
        return content
    try:
        return zlib.decompressobj(wbits=47).decompress(content, _MOST)  # gzip or zlib
    except zlib.error as error:
        raise bad_artifact(f"it cannot be decompressed: {error}", "write it again with joblib", file) from error

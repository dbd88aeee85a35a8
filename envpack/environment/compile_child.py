"""Compiles Python files to byte code; run by an environment's interpreter, of whatever version from 3.8 on.

``compile_child.py PREFIX LIST``: LIST is a file with one path relative to PREFIX on each line. It imports nothing of
envpack. Files that are no Python of this version (test data, templates) are left without byte code.
"""

import sys

del sys.path[0]  # names of modules beside this file must not hide those of Python

import os  # noqa: E402
import py_compile  # noqa: E402
import warnings  # noqa: E402
from concurrent.futures import ProcessPoolExecutor  # noqa: E402


def compile_one(path):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - this runs on Python 3.8
    """Compile one file, given relative to the current folder; the byte code names it by that path."""
    warnings.simplefilter("ignore")
    try:
        py_compile.compile(
            path, dfile=path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
    except Exception as error:  # also RecursionError, ValueError and whatever else a parser may say
        return error.errno if isinstance(error, OSError) else 0
    return 0


def main(prefix, listed):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile all files; the status is 1 if one could not be written, with the error's number on standard output."""
    with open(listed, encoding="utf-8") as lines:  # noqa: PTH123
        paths = lines.read().splitlines()
    os.chdir(prefix)
    with ProcessPoolExecutor() as pool:
        failed = [code for code in pool.map(compile_one, paths, chunksize=16) if code]
    if failed:
        sys.exit("[Errno {}] {}".format(failed[0], os.strerror(failed[0])))  # noqa: UP032


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])  # type: ignore[no-untyped-call]

"""Compiles Python files to byte code; run by an environment's interpreter, of whatever version from 3.8 on.

``compile_child.py PREFIX LIST``: LIST is a file with one path relative to PREFIX on each line. It imports nothing of
envpack. Files that are no Python of this version (test data, templates) are left without byte code.

Each file is compiled in a process of its own, forked from this one. What a process has compiled before shows in its
byte code (objects are marked by whether anything else refers to them), and the same file must give the same bytes.
"""

import sys

del sys.path[0]  # names of modules beside this file must not hide those of Python

import os  # noqa: E402
import py_compile  # noqa: E402
import warnings  # noqa: E402


def compile_one(path):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - this runs on Python 3.8
    """Compile one file, which the byte code names by this path, relative to the current folder; an error's number."""
    try:
        py_compile.compile(
            path, dfile=path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
    except OSError as error:
        return error.errno
    except BaseException:  # also RecursionError, ValueError and whatever else a parser may say
        return 0
    return 0


def start(path):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile one file in a new process."""
    if os.fork() == 0:
        code = 1
        try:
            code = compile_one(path)  # type: ignore[no-untyped-call]
        finally:
            os._exit(code)


def main(prefix, listed):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile all files; the status is 1 if one could not be written, with what the system says of it."""
    warnings.simplefilter("ignore")
    with open(listed, encoding="utf-8") as lines:  # noqa: PTH123
        waiting = lines.read().splitlines()
    os.chdir(prefix)
    running, most, failed = 0, os.cpu_count() or 1, 0
    while waiting or running:
        if waiting and running < most:
            start(waiting.pop())  # type: ignore[no-untyped-call]
            running += 1
        else:
            failed = os.wait()[1] >> 8 or failed
            running -= 1
    if failed:
        sys.exit("[Errno {}] {}".format(failed, os.strerror(failed)))  # noqa: UP032


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])  # type: ignore[no-untyped-call]

"""Compiles Python files to byte code; run by an environment's interpreter, of whatever version from 3.8 on.

``compile_child.py PREFIX LIST``: LIST is a file with one path relative to PREFIX on each line, and an empty line
between groups of them. It imports nothing of envpack. Files that are no Python of this version (test data, templates)
are left without byte code.

Byte code depends on which strings its process has met before. So each group is compiled in a process of its own that
starts where all others do: a group gives the same bytes whatever else is compiled, and in whichever order.
"""

import sys

del sys.path[0]  # names of modules beside this file must not hide those of Python

import errno  # noqa: E402
import os  # noqa: E402
import py_compile  # noqa: E402
import warnings  # noqa: E402


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


def compile_group(paths):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile files in a process of its own, whose status is the error number of the first that cannot be written."""
    if os.fork():
        return
    code = errno.EIO
    try:
        code = next(filter(None, map(compile_one, paths)), 0)
    finally:
        os._exit(code)


def compile_groups(groups):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile groups of files, as many at once as there are cores; the error numbers of what failed."""
    cores, running, failed = len(os.sched_getaffinity(0)), 0, []
    for group in [*groups, *[None] * cores]:
        if running == cores or (group is None and running):
            _, status = os.wait()
            running -= 1
            failed.append(os.WEXITSTATUS(status) if os.WIFEXITED(status) else errno.EIO)
        if group is not None:
            running += 1
            compile_group(group)  # type: ignore[no-untyped-call]
    return [code for code in failed if code]


def main(prefix, listed):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile all files; the status is 1 if one could not be written, with the error's number on standard error."""
    with open(listed, encoding="utf-8") as lines:  # noqa: PTH123
        groups = [group.splitlines() for group in lines.read().split("\n\n")]
    os.chdir(prefix)
    failed = compile_groups(groups)  # type: ignore[no-untyped-call]
    if failed:
        sys.exit("[Errno {}] {}".format(failed[0], os.strerror(failed[0])))  # noqa: UP032


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])  # type: ignore[no-untyped-call]

"""Compiles Python files to byte code; run by the interpreter of an environment, of any version from 3.6 on.

``compile_child.py PREFIX LIST``: LIST is a file of paths relative to PREFIX, with a zero byte between paths and two
between groups. The program imports nothing of envpack. Files that this version of Python cannot parse (test data,
templates) get no byte code, nor do those whose byte code would vary. With Python 3.6 none does: its byte code is bound
to the time stamp of the source.

Byte code depends on the strings that its process has interned before. So each group is compiled in a process of its own
that is forked from the same state: a group gives the same bytes in any order and with any other groups.
"""

import sys

del sys.path[0]  # modules beside this file must not hide those of Python

import errno  # noqa: E402
import gc  # noqa: E402
import marshal  # noqa: E402
import os  # noqa: E402
import py_compile  # noqa: E402
import signal  # noqa: E402
import warnings  # noqa: E402


def compile_file(path):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - this runs on Python 3.6
    warnings.simplefilter("ignore")
    try:
        made = py_compile.compile(
            path, dfile=path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
        if sys.version_info < (3, 11) and has_varying_order(code_in(made)):
            os.unlink(made)  # noqa: PTH108
    except Exception as error:  # parsers raise RecursionError, ValueError and others
        return error.errno if isinstance(error, OSError) else 0
    return 0


def code_in(file):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    with open(file, "rb") as content:  # noqa: PTH123
        return marshal.loads(content.read()[16:])  # noqa: S302 - it was just written


def has_varying_order(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Whether a constant has a set that Python before 3.11 orders by hashes, which vary: that of None is an address."""
    if isinstance(value, frozenset):
        return any(isinstance(item, tuple) and contains_address(item) for item in value)  # type: ignore[no-untyped-call]
    inner = value if isinstance(value, tuple) else getattr(value, "co_consts", ())
    return any(map(has_varying_order, inner))


def contains_address(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Whether the hash of a constant depends on an address."""
    inner = value if isinstance(value, (tuple, frozenset)) else ()
    return value in (None, Ellipsis) or any(map(contains_address, inner))


def compile_group(paths):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile files in a new process; its status is the error number of the first failed write."""
    if os.fork():
        return
    code = errno.EIO
    try:
        code = next(filter(None, map(compile_file, paths)), 0)
    finally:
        os._exit(code)


def compile_groups(groups):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile groups of files on all cores; returns the error numbers of failed groups."""
    cores, running, failed = len(os.sched_getaffinity(0)), 0, []
    for group in [*groups, *[None] * cores]:
        if running == cores or (group is None and running):
            _, status = os.wait()
            running -= 1
            killed = errno.ENOMEM if os.WTERMSIG(status) == signal.SIGKILL else errno.EIO
            failed.append(os.WEXITSTATUS(status) if os.WIFEXITED(status) else killed)
        if group is not None:
            running += 1
            compile_group(group)  # type: ignore[no-untyped-call]
    return [code for code in failed if code]


def main(prefix, listed):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compile all files; if one cannot be written, exit with status 1 and its error number on standard error."""
    if not hasattr(py_compile, "PycInvalidationMode"):
        return
    # Byte code marks a name as shared if something else in the process has it, also garbage. Which names the cache of
    # attributes has depends on where they are in memory; from Python 3.13 on all names are marked.
    gc.collect()
    gc.disable()
    if sys.version_info < (3, 13):
        sys._clear_type_cache()  # noqa: SLF001 - public by its documentation
    sys.pycache_prefix = None  # the imports above were from source, whether or not this environment has their byte code
    with open(listed, "rb") as paths:  # noqa: PTH123
        groups = [group.split("\0") for group in os.fsdecode(paths.read()).split("\0\0")]
    os.chdir(prefix)
    failed = compile_groups(groups)  # type: ignore[no-untyped-call]
    if failed:
        sys.exit("[Errno {}] {}".format(failed[0], os.strerror(failed[0])))  # noqa: UP032


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])  # type: ignore[no-untyped-call]

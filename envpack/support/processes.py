"""Starts programs and waits for them. Only servers, which outlive a call, are started elsewhere.

The user's shell must not change the result of a build, so a program that builds gets only the variables that are listed
here: never ``PYTHON*`` or ``PIP_*`` variables; the pip settings that select an index reach uv under uv's names.
Installers trust the certificates of the system, unless the user chooses others.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from envpack.support.certificates import trusted_certificates
from envpack.support.errors import EnvironmentBuildError, InputError, StorageError, refused_by_system, system_limit
from envpack.support.folders import cache_root

_KEPT = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TMPDIR", "NETRC"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    "RATTLER_AUTH_FILE",
    *("UV_ASTRAL_MIRROR_URL", "UV_CACHE_DIR", "UV_CONFIG_FILE", "UV_DEFAULT_INDEX", "UV_EXCLUDE_NEWER"),
    *("UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_HTTP_CONNECT_TIMEOUT", "UV_HTTP_RETRIES", "UV_HTTP_TIMEOUT"),
    *("UV_INSECURE_HOST", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_INDEX_URL", "UV_KEYRING_PROVIDER", "UV_NATIVE_TLS"),
    *("UV_OFFLINE", "UV_PYTHON_CACHE_DIR", "UV_PYTHON_DOWNLOADS", "UV_PYTHON_DOWNLOADS_JSON_URL"),
    *("UV_PYTHON_INSTALL_MIRROR", "UV_SYSTEM_CERTS"),
}
_KEPT_PREFIXES = ("LC_", "XDG_", "UV_INDEX_", "UV_CONCURRENT_")
# What the key rings of desktops and clouds need, for a uv that the user lets ask one.
_OF_KEYRINGS = ("DBUS_", "KEYRING_", "PYTHON_KEYRING_", "AWS_", "AZURE_", "ARTIFACTS_", "VSS_", "GOOGLE_", "CLOUDSDK_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_OF_POETRY = "POETRY_HTTP_BASIC_"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

# A pip setting becomes the first of uv's variables, unless one of them is set already.
_PIP_SETTINGS = (
    ("PIP_INDEX_URL", ("UV_DEFAULT_INDEX", "UV_INDEX_URL")),
    ("PIP_EXTRA_INDEX_URL", ("UV_EXTRA_INDEX_URL", "UV_INDEX")),
    ("PIP_CERT", ("SSL_CERT_FILE",)),
    ("PIP_CLIENT_CERT", ("SSL_CLIENT_CERT",)),
)


def clean_environment(host: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables for installers: the user's network and cache settings, and none that change Python's behaviour."""
    host = os.environ if host is None else host
    prefixes = _KEPT_PREFIXES + (_OF_KEYRINGS if host.get("UV_KEYRING_PROVIDER") == "subprocess" else ())
    kept = {name: value for name, value in host.items() if name in _KEPT or name.startswith(prefixes)}
    if "*" in (host.get("NO_PROXY"), host.get("no_proxy")):  # which uv and the engine do not apply to IP addresses
        kept = {name: value for name, value in kept.items() if name.lower() not in _PROXIES}
    for name in host:  # Poetry's accounts of indexes, for those that a poetry.lock names
        if name.startswith(_OF_POETRY):
            kept.setdefault(f"UV_INDEX_{name.removeprefix(_OF_POETRY)}", host[name])
    for pip_name, uv_names in _PIP_SETTINGS:
        if host.get(pip_name) and not any(name in kept for name in uv_names):
            kept[uv_names[0]] = host[pip_name]
    if certificates := trusted_certificates({**host, **kept}):
        kept["SSL_CERT_FILE"] = certificates
    home = os.path.expanduser("~")  # noqa: PTH111 - Path raises an error
    if home == "~" or (os.path.exists(home) and not os.access(home, os.X_OK)):  # noqa: PTH110
        # Without a home, as users of containers are that no file names, some do not start or write to their folder. In
        # that of another user, such as root's in a container, they fail at each file that they look for.
        with contextlib.suppress(InputError):
            kept["HOME"] = str(cache_root())
    kept.setdefault("PATH", _DEFAULT_PATH)
    kept["PYTHONNOUSERSITE"] = "1"
    return kept


def library_variable(python: Path) -> dict[str, str]:
    """The variable for an interpreter that needs one to find its library, as those of a cluster's modules do."""
    return {"LD_LIBRARY_PATH": ":".join(str(python.parent.parent / name) for name in ("lib", "lib64"))}


def bare_environment() -> dict[str, str]:
    """Variables for probing an interpreter: only PATH, a UTF-8 locale and ``PYTHONNOUSERSITE``."""
    return {"PATH": _DEFAULT_PATH, "LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}


# In this order: a program such as Ninja ends its compilers on SIGTERM, but cannot on SIGKILL.
_SET_DEATH_SIGNAL = 1  # of prctl()
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
# What the start of a program fails with if its file cannot be run; other error numbers are limits of the system.
_NO_PROGRAM = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENOEXEC}
_MOST_OUTPUT, _TICK = 64 << 20, 0.1  # bytes of a program, and seconds after which they are counted
_GRACE_PERIOD = 10.0  # seconds after SIGTERM in which a program can end the processes that it has started


def is_no_program(error: OSError) -> bool:
    """Whether a program was not started because its file cannot be run, and not for want of ``/dev/null``."""
    return error.errno in _NO_PROGRAM and error.filename != os.devnull


_OF_LIMITS = {signal.SIGKILL, signal.SIGXFSZ, signal.SIGXCPU}  # by which the system ends what exceeds a limit


@dataclass(frozen=True)
class CompletedProcess:
    """A program that has ended."""

    returncode: int  # exit status; a negative number is the signal that ended it
    stdout: str  # standard output, decoded as UTF-8 with replacement characters
    stderr: str  # standard error, decoded likewise

    def last_lines(self, count: int = 12) -> str:
        """The last lines of standard error, or of standard output if that is empty, for an error message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return "\n".join(lines[-count:])

    def refused_by_system(self, storage: Path) -> StorageError | None:
        """The error if the system ended it, or refused it room in ``storage`` or something else; None otherwise."""
        return ended_by_limit(self.returncode) or refused_by_system(self.stdout + self.stderr, storage)


def ended_by_limit(status: int) -> StorageError | None:
    """The error (kind ``system-limit``) if a program ended as the system ends what exceeds a limit."""
    return system_limit(f"a program ended {how_ended(status)}") if -status in _OF_LIMITS else None


_PROGRAMS: ContextVar[RunningPrograms | None] = ContextVar("programs", default=None)


class RunningPrograms:
    """The programs that `run` has started in one `stoppable` block or `context`; they belong to that around it, too."""

    def __init__(self) -> None:
        self._outer = _PROGRAMS.get()
        self._change = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        """End all programs. Calls of `run` that wait for one, and all later calls, raise KeyboardInterrupt."""
        with self._change:
            self._stopped = True
            for number in _STOP_SIGNALS:
                for child in self._running:
                    _signal_group(child, number)
                self._change.wait_for(lambda: not self._running, _GRACE_PERIOD)

    def raise_if_stopped(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt
        if self._outer:
            self._outer.raise_if_stopped()

    def context(self) -> Context:
        """A copy of the thread's context, for another thread, whose programs are among these."""
        context = copy_context()
        context.run(_PROGRAMS.set, self)
        return context

    @contextlib.contextmanager
    def tracking(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """Let `stop` end this program during the block."""
        with self._change:
            self.raise_if_stopped()
            self._running.add(child)
        try:
            with self._outer.tracking(child) if self._outer else contextlib.nullcontext():
                yield
        finally:
            with self._change:
                self._running.discard(child)
                self._change.notify_all()
        self.raise_if_stopped()


@contextlib.contextmanager
def stoppable() -> Iterator[RunningPrograms]:
    """Let another thread stop the programs of the block, and of threads that run in a copy of its context."""
    programs = RunningPrograms()
    token = _PROGRAMS.set(programs)
    try:
        yield programs
    finally:
        _PROGRAMS.reset(token)


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if the surrounding `stoppable` block is stopped; for loops that wait without `run`."""
    if programs := _PROGRAMS.get():
        programs.raise_if_stopped()


def run(
    command: Sequence[str | Path],  # program and arguments; never passed through a shell
    *,
    # The complete environment of the program. There is no default, so that no variable is inherited by accident.
    env: Mapping[str, str],
    cwd: Path | None = None,  # working folder, by default the caller's
    timeout: float | None = None,  # seconds
    text: str = "",  # what the program reads from its standard input
) -> CompletedProcess:
    """Run a program to its end and capture its output.

    If the caller is interrupted, the program and all processes that it has started are ended before this returns. One
    that prints more than 64 MiB is killed, and raises an OSError with its path.
    """
    with _started(command, env, subprocess.PIPE if text else subprocess.DEVNULL, subprocess.PIPE, cwd) as child:
        stdout, stderr = _output_of(child, text.encode(), timeout)
    return CompletedProcess(child.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def _output_of(child: subprocess.Popen[bytes], text: bytes, timeout: float | None) -> tuple[bytes, bytes]:
    until = None if timeout is None else time.monotonic() + timeout
    given: bytes | None = text or None
    while True:
        tick = _TICK if until is None else min(_TICK, until - time.monotonic())
        try:
            return child.communicate(given, tick)
        except subprocess.TimeoutExpired as late:
            if len(late.output or b"") + len(late.stderr or b"") > _MOST_OUTPUT:
                _signal_group(child, signal.SIGKILL)
                program = os.fsdecode(cast("Sequence[str]", child.args)[0])
                raise OSError(errno.EMSGSIZE, f"it prints more than {_MOST_OUTPUT >> 20} MiB", program) from None
            if until is not None and time.monotonic() >= until:
                raise
        given = None  # which is given once


def follow(command: Sequence[str | Path], *, env: Mapping[str, str], on_line: Callable[[str], None]) -> int:
    """Run a program, and pass on each line that it writes at once; a negative exit status is a signal's number."""
    with _started(command, env, subprocess.DEVNULL, subprocess.STDOUT) as child:
        for line in child.stdout or ():
            on_line(line.decode("utf-8", "replace").rstrip("\n"))
        return child.wait()


@contextlib.contextmanager
def _started(
    command: Sequence[str | Path], env: Mapping[str, str], stdin: int, stderr: int, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that ends, with all its processes, if the block fails or is stopped."""
    programs = _PROGRAMS.get()
    with subprocess.Popen(
        [str(part) for part in command],
        env=dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        process_group=0,  # so that signals reach all its processes
    ) as child:
        try:
            with programs.tracking(child) if programs else contextlib.nullcontext():
                yield child
        except BaseException:
            _end(child)
            raise


def run_in_foreground(command: Sequence[str | Path], *, env: Mapping[str, str], output: int | None = None) -> int:
    """Run a program that uses the caller's terminal, and return its exit status.

    Ctrl-C reaches the program too. It is given time to end before KeyboardInterrupt is raised here.
    """
    with subprocess.Popen([str(part) for part in command], env=dict(env), stdout=output) as child:
        try:
            return child.wait()
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_PERIOD)
            child.kill()
            raise


def end_with(parent: int) -> None:
    """Have the kernel send this process SIGTERM when its parent ends; exit if that has happened already."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in _STOP_SIGNALS:
        _signal_group(child, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_GRACE_PERIOD)  # until every process of the group has closed its output
            return


def how_ended(status: int) -> str:
    """How a program ended, as in `subprocess.Popen.returncode`: ``with status 3``, ``by SIGKILL``, ``by signal 64``."""
    if status >= 0:
        return f"with status {status}"
    return f"by {signal.Signals(-status).name if -status in set(signal.Signals) else f'signal {-status}'}"


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


@dataclass(frozen=True)
class ErrorPattern:
    """A way in which a program fails."""

    kind: str  # kind of the error
    pattern: str  # regular expression for the program's output; an empty one matches everything and ends a table
    message: str  # of the error; the fields of `error_from_output` and the named groups of ``pattern`` in braces
    hint: str  # what the user can do, with the same fields


def error_from_output(
    patterns: Iterable[ErrorPattern], output: str, *, storage: Path, where: str = "", details: str = "", **fields: str
) -> EnvironmentBuildError | StorageError:
    """The error for a program's output: what the system refused, else of the first pattern, with fields filled in."""
    if refused := refused_by_system(output, storage):
        return refused
    pattern, match = next((entry, match) for entry in patterns if (match := re.search(entry.pattern, output)))
    values = fields | match.groupdict()
    what = pattern.message.format(**values)
    return EnvironmentBuildError(pattern.kind, what, pattern.hint.format(**values), where, details=details)

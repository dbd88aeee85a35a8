"""A dask cluster: its address, and a connection to it; workers of this machine, or a scheduler elsewhere."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, TypeVar

import envpack
from envpack.support.errors import ServerError, UsageError
from envpack.support.installation import install_command
from envpack.support.pool import found_within, in_background
from envpack.support.progress import Progress

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

_MOST_LOCAL = 256
_HINT = "write it as local:2, tcp://host:8786 or tls://host:8786"


@dataclass(frozen=True)
class Address:
    """Where a cluster is."""

    workers: int = 0  # number of workers to start on this machine, 0 for a scheduler that runs already
    scheduler: str = ""  # address of that scheduler, "" for workers of this machine

    def __str__(self) -> str:
        return self.scheduler or f"local:{self.workers}"


def parse_address(text: str) -> Address:
    """Read the address of a cluster.

    >>> parse_address("local:2")
    Address(workers=2, scheduler='')
    >>> str(parse_address("tls://scheduler:8786"))
    'tls://scheduler:8786'
    """
    if local := re.fullmatch(r"local:([0-9]{1,3})", text):
        workers = int(local[1])
        if not 1 <= workers <= _MOST_LOCAL:
            raise _bad(text, f"has {workers} workers; between 1 and {_MOST_LOCAL} are possible")
        return Address(workers=workers)
    remote = re.fullmatch(r"(?:tcp|tls)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", text)
    if remote is None or not 1 <= int(remote[1]) <= 65535:
        raise _bad(text, "is not the address of a cluster")
    return Address(scheduler=text)


def _bad(text: str, reason: str) -> UsageError:
    return UsageError("bad-cluster-address", f"{text!r} {reason}", _HINT)


_CONNECT = 10  # seconds
_SETTINGS = {
    "distributed.comm.timeouts.connect": f"{_CONNECT}s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.scheduler.worker-ttl": "60s",  # until a worker of this machine that does not answer is lost
}
_ANNOUNCED = 30.0  # seconds
_FIRST_WORKER = 60  # seconds; a cluster may start its workers only now
_OBJECT = re.compile(r"^in <[^<>]{1,200} object at 0x[0-9a-f]{1,16}>: ")  # which dask puts in front of a cause
_REMINDER = 10  # seconds between two messages that a scheduler has not answered


@contextlib.contextmanager
def connected(address: Address, progress: Progress) -> Iterator[Client]:
    """Connect to a cluster whose workers all have this version of envpack, and have announced what they have."""
    dask = _distributed(address)
    import dask as configuration

    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(configuration.config.set(_SETTINGS))
        security = None
        where: Any = address.scheduler
        if str(where).startswith("tls:"):
            _require_certificates(dask.Security(), address)
        if address.workers:
            security = dask.Security.temporary()  # other users of this machine must not give us work
            where = stack.enter_context(_local_cluster(address, security))
        try:
            made = answer(
                # Its own limit is for the connection, and a scheduler that stands still has one.
                lambda: dask.Client(where, timeout=_CONNECT, set_as_default=False, security=security),
                address,
                progress,
                seconds=3 * _CONNECT,
            )
            client = stack.enter_context(made)
        except (OSError, TimeoutError, ValueError, RuntimeError, ServerError) as error:
            said = error.message if isinstance(error, ServerError) else str(error)
            texts = filter(None, (str(error.__cause__ or ""), said, f"no connection within {_CONNECT} s"))
            what = f"the scheduler does not answer: {_OBJECT.sub('', next(texts).splitlines()[0])}"
            fix = "check the address, the network, and for tls:// the certificates that dask's configuration names"
            raise ServerError("scheduler-unreachable", what, fix, str(address)) from error
        _admit_workers(client, address, progress)
        yield client


def _require_certificates(security: Any, address: Address) -> None:
    """Refuse certificates that dask would miss, or fail to read, in ways of its own."""
    try:
        if security.get_connection_args("client").get("ssl_context"):
            return
        what = "dask's configuration names no certificates for tls://"
    except (OSError, ValueError) as error:
        what = f"the certificates that dask's configuration names cannot be read: {error}"
    fix = (
        "name files of this machine as ca-file and client below distributed.comm.tls in ~/.config/dask/distributed.yaml"
    )
    raise ServerError("scheduler-unreachable", what, fix, str(address))


def _local_cluster(address: Address, security: Any) -> Any:
    """Workers of this machine, which only this process can reach. Ctrl-C goes to this process alone."""
    distributed: Any = _distributed(address)
    resource_tracker.ensure_running()  # it would receive signals again
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # threads and processes inherit it
    try:
        return distributed.LocalCluster(
            n_workers=address.workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            security=security,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            memory_limit=0,  # dask measures its own process, not those of tasks
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def answer(call: Callable[[], T], address: Address, progress: Progress, *, seconds: float = 60) -> T:
    """What a call of dask returns that waits for the scheduler, and would wait for ever for one that stands still."""
    asked = in_background(call, "scheduler")
    started = time.monotonic()
    while (left := started + seconds - time.monotonic()) > 0:
        if wait([asked], min(_REMINDER, left)).done:
            return asked.result()
        progress.detail(f"the scheduler has not answered for {time.monotonic() - started:.0f} s")
    raise lost(address, f"the scheduler did not answer within {seconds:.0f} s")


def lost(address: Address, what: str) -> ServerError:
    fix = "run the same command again; what was finished is not made again"
    return ServerError("scheduler-lost", what, fix, str(address))


def worker_facts(client: Client) -> dict[str, dict[str, Any]]:
    """What the scheduler knows of each worker, by the worker's address."""
    facts: dict[str, dict[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    return facts


def abilities_of(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    return {address: frozenset(found["resources"]) for address, found in facts.items()}


def _admit_workers(client: Client, address: Address, progress: Progress) -> None:
    from envpack.fleet.worker import Announcement, describe, version_ability

    def facts() -> dict[str, dict[str, Any]]:
        return answer(lambda: worker_facts(client), address, progress)

    if not found_within(_FIRST_WORKER, facts):
        what = f"the cluster got no worker within {_FIRST_WORKER} s"
        fix = "start workers: dask worker ADDRESS --nworkers 2 --nthreads 1"
        raise ServerError("no-workers", what, fix, str(address))
    versions = answer(lambda: client.run(describe, on_error="return"), address, progress)
    others = {worker: found for worker, found in versions.items() if found != envpack.__version__}
    if others:
        worker, found = min(others.items())
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        has = f"envpack {found}" if isinstance(found, str) else "no envpack that fits"
        what = f"worker {worker} has {has}, not {envpack.__version__}{more}"
        fix = f"install triton-envpack=={envpack.__version__} on all workers"
        raise ServerError("worker-version", what, fix, str(address))
    answer(lambda: client.register_plugin(Announcement()), address, progress)
    own = version_ability(envpack.__version__)
    # Another client may have asked the workers only now.
    found_within(_ANNOUNCED, lambda: all(own in found for found in abilities_of(facts()).values()))


def _distributed(address: Address) -> Any:
    try:
        import distributed
    except ImportError as error:
        what = f"{address} needs dask, which is not installed"
        raise UsageError("dask-missing", what, install_command("dask")) from error
    return distributed


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask logs what this package reports in a line of its own, and warns of versions that need not be the same."""
    # Dask gives some of its loggers a level of their own.
    loggers = [logging.getLogger(name) for name in ("asyncio", "distributed", "distributed.client", "tornado")]
    loggers += [logging.getLogger(f"tornado.{name}") for name in ("application", "general")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Mismatched versions found")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)

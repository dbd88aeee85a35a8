"""What a worker does for an order: the ordinary steps of a build, a lock or a stub, without placing the result."""

from __future__ import annotations

import hashlib
from pathlib import Path

from envpack.archive import Selection
from envpack.conda import read_conda_settings
from envpack.fleet.tasks import BuildOrder, LockOrder, Product, StubOrder, Task, VerifyOrder
from envpack.lock import LOCK_NAME, LockOptions, format_lock, parse_lock
from envpack.releases import find_release
from envpack.repository import Model, parse_config
from envpack.store import SharedStore, open_store, parse_location
from envpack.stub import target_from_interpreter
from envpack.support.cache_locations import cache_root
from envpack.support.errors import InputError
from envpack.support.progress import Progress
from envpack.workflow import BuildRequest, ChosenPython, LockRequest, made_ingredients, resolve_lock, stub_for


def carry_out_order(task: Task, scratch: Path, progress: Progress) -> Product:
    """Make what a task orders; it is in the cache of this machine and, if the task names one, in the store."""
    store = open_store(task.store, push=True) if task.store else None
    order = task.order
    match order:
        case BuildOrder():
            return _build(order, task.names[0], scratch, progress, store)
        case LockOrder():
            return _lock(order, task.names[0], scratch, progress, store)
        case StubOrder():
            return _stub(order, progress, store)
        case VerifyOrder():
            return _verify(order, progress)


def _build(order: BuildOrder, name: str, scratch: Path, progress: Progress, store: SharedStore | None) -> Product:
    source = _lock_request(order, name, scratch)
    request = BuildRequest(
        model=source.model,
        source=source,
        release=find_release(order.release, abi=order.abi or None),
        release_named=True,
        served_from="",
        archive_format="dir",
        selection=Selection(),
        packer="envpack",
        strip=order.strip,
        stub=order.stub,
        toolchain=order.toolchain,
        link_mode="auto",
        backends=None,
        copy_library=None,
        start="",
        force=False,
    )
    with made_ingredients(request, progress, store) as (environment, stub):
        digests = {"environment": environment.content}
        if stub is not None:
            digests["stub"] = hashlib.sha256(stub.read_bytes()).hexdigest()
        return Product(made=environment.fresh, digests=digests)


def _lock(order: LockOrder, name: str, scratch: Path, progress: Progress, store: SharedStore | None) -> Product:
    request = _lock_request(order, name, scratch)
    before = parse_lock(order.lock, request.lock_file) if order.lock else None
    text = format_lock(resolve_lock(request, before, order.update, progress, store))
    return Product(made=text != order.lock, digests={"lock": hashlib.sha256(text.encode()).hexdigest()}, lock=text)


def _stub(order: StubOrder, progress: Progress, store: SharedStore | None) -> Product:
    target = target_from_interpreter(order.python)
    releases = (find_release(order.release, abi=order.abi or None),) if order.release else None
    progress.begin(f"stub for Python {order.python}")
    stub = stub_for(
        target,
        releases,
        toolchain=order.toolchain,
        glibc=order.glibc,
        progress=progress,
        store=store,
    )
    progress.end("compiled" if stub.fresh else "up to date")
    return Product(made=stub.fresh, digests={"stub": hashlib.sha256(stub.path.read_bytes()).hexdigest()})


def _verify(order: VerifyOrder, progress: Progress) -> Product:
    from envpack.verification import verify, verify_published

    if "://" in order.repository:
        location = parse_location(order.repository)
        return Product(
            made=True, verdict=verify_published(location, order.models, options=order.options, progress=progress)
        )
    repository = Path(order.repository)
    absent = [name for name in order.models if not (repository / name).is_dir()]
    if absent:
        raise InputError(
            f"the worker's machine has no model {absent[0]} there",
            kind="repository-not-shared",
            where=order.repository,
            hint="publish the repository and verify its address, or keep it on a file system that all workers mount",
        )
    return Product(made=True, verdict=verify(repository, order.models, options=order.options, progress=progress))


def _lock_request(order: BuildOrder | LockOrder, name: str, scratch: Path) -> LockRequest:
    """The request as the caller's machine has it, with this machine's settings and cache."""
    folder = scratch / name
    folder.mkdir()
    if order.lock:
        (folder / LOCK_NAME).write_text(order.lock, encoding="utf-8")
    return LockRequest(
        model=Model(name, folder, parse_config("", folder), is_ensemble=False, backend="python"),
        requirements=order.requirements,
        target=order.target,
        options=LockOptions(
            channels=order.channels,
            settings=read_conda_settings(),
            cache=cache_root().absolute(),
            sources=order.sources,
            python_preference=order.python_preference,
        ),
        python=ChosenPython(order.target.python, "the caller"),
    )

"""What commands ask of the workflow, in plain words: the one place that knows the records in which they ask.

Inside of `noted`, a command line runs as always up to the border of the workflow, where its request is written down
instead of being carried out.
"""

import contextlib
from unittest import mock

from envpack.repository.model import open_model
from envpack.workflow import build, lock, recipes, stubs
from envpack.workflow.build import BuiltModel
from envpack.workflow.lock import LockedModel
from envpack.workflow.recipe import TakenOver
from envpack.workflow.requests import build_request, lock_request
from envpack.workflow.stubs import stub_store


class AskedError(SystemExit):
    """Ends a command that has asked; it ends a process, so the command line does not explain it."""


@contextlib.contextmanager
def noted(requests):
    """Append the requests of commands to a list, and build, lock and compile nothing."""

    def build_model(project, name, _console, *, store):
        model = open_model(project.repository / name)
        asked = {} if model.is_ensemble else _build(build_request(project, model))
        requests.append({"model": name, **asked, **_store(store)})
        return BuiltModel(name=name)

    def lock_model(project, name, *, update, progress, store, resolved, known):
        model = open_model(project.repository / name)
        asked = {} if model.is_ensemble else _lock(*lock_request(project, model))
        requests.append({"model": name, **asked, "update": update, **_store(store)})
        return LockedModel(name, None, 0, (), changed=False)

    def build_one_stub(cell, _output, said, _console, *, jobs):
        how = {"toolchain": cell.toolchain, "glibc": cell.glibc, "jobs": jobs}
        requests.append({**_stub(cell.target, cell.releases), **how, **_store(stub_store(said))})
        raise AskedError

    def build_matrix(cells, output, *, progress, store, **how):
        stubs = [{"folder": cell.identifier, **_stub(cell.target, cell.releases)} for cell in cells]
        how = {"toolchain": cells[0].toolchain, "glibc": cells[0].glibc, **how}
        requests.append({"stubs": stubs, "output": output, **how, **_store(store)})
        return ()

    def look_ahead(_project, _names, _store):
        pass

    stand_ins = {recipes: [look_ahead], build: [build_model], lock: [lock_model], stubs: [build_one_stub, build_matrix]}
    with contextlib.ExitStack() as replaced, contextlib.suppress(AskedError):
        for module, functions in stand_ins.items():
            for function in functions:
                replaced.enter_context(mock.patch.object(module, function.__name__, function))
        yield


def _build(request):
    source, placement = request.source, request.placement
    said = placement.said
    made_from = _prefix(source) if isinstance(source, TakenOver) else _lock(source, request.python)
    return {
        **made_from,
        "triton": placement.release.name,
        "triton is named": placement.release_named,
        "format": placement.archive_format,
        "exclude": placement.selection.exclude,
        "include": placement.selection.include,
        "packer": said.packer,
        "strip": source.strip,
        "served from": placement.served_from,
        "link mode": said.link_mode,
        "stub": said.stub,
        "toolchain": source.toolchain,
        "layout": "model" if placement.backends is None else "backend",
        "backends": placement.backends,
        "copy library": said.copy_library,
        "start": said.start,
        "starts warm": placement.starts_warm,
        "force": said.force,
    }


def _prefix(source):
    return {"from": "prefix", "prefix": source.prefix, "python": source.python, "platform": source.platform}


def _lock(recipe, python):
    asked = recipe.requirements
    return {
        "from": asked.source or "nothing",
        "conda": asked.conda,
        "pip": asked.pip,
        "python": recipe.target.python,
        "python is of": python.source,
        "platform": recipe.target.platform,
        "glibc": recipe.target.glibc,
        "cuda": recipe.target.cuda,
        "channels": recipe.channels,
        "sources": recipe.sources,
        "python preference": recipe.python_preference,
        "lockfile": recipe.lock_file,
    }


def _stub(target, releases):
    triton = [release.name for release in releases] if releases else "all"
    return {"python": target.minor, "platform": target.platform, "library": target.library, "triton": triton}


def _store(store):
    return {"store": str(store.location), "push": store.push} if store else {"store": "none"}


def plain(value):
    """A request as values of JSON."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)

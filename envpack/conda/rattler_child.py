"""The program that runs the conda engine (py-rattler) in a process of its own.

``python rattler_child.py REQUEST RESULT``; both files are JSON. REQUEST has the process id of the caller, its
``sys.path``, and the name and the arguments of one of `_OPERATIONS`; RESULT has what that returns. The folder of
REQUEST is this process's own, and its caller removes it. The engine can crash while its process exits, after all work
is done. Therefore the program flushes the result and exits at once, and the caller reads the result file and ignores
the exit status. The program imports nothing of envpack, so that it runs with any import path of the caller.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, NoReturn, cast

_PR_SET_PDEATHSIG = 1
_MOST_SECONDS = 60.0  # to find out which match specs cannot be met together
_MOST_CULPRITS = 5


Result = dict[str, Any]


async def _index(folder: str) -> Result:
    from rattler.index import index_fs

    await index_fs(Path(folder), max_parallel=2)
    return {}


async def _resolve(index_cache: str, patience: tuple[int, int], **request: Any) -> Result:
    """The ``packages`` for match specs, or the ``culprits`` among them; a download may take ``patience`` seconds."""
    folder, scratch, (seconds, longer) = Path(index_cache), Path(sys.argv[1]).parent / "index", patience
    while True:
        try:
            return await _Resolver(folder, seconds, **request).result()
        except Exception as error:
            if "304 Not Modified" in str(error) and folder != scratch:
                # The engine fails on servers that answer "not modified" for an index in its cache; without the cache it
                # works. Other processes may be using that one.
                folder = scratch
            elif "operation timed out" in str(error) and "sending request" not in str(error) and seconds != longer:
                seconds = longer
            else:
                raise


class _Resolver:
    def __init__(
        self,
        index_cache: Path,
        seconds: int,
        *,
        specs: list[list[str]],  # python first; of each list, the first whose channel has the package counts
        channels: list[str],
        subdir: str,
        virtual_packages: list[tuple[str, str, str]],  # name, version, build
        prefer: list[dict[str, Any]],  # packages that are kept where they still fit
    ) -> None:
        import rattler

        self._alternatives = specs
        self._gateway = rattler.Gateway(cache_dir=index_cache, client=_client(seconds))
        self._channels = [rattler.Channel(channel) for channel in channels]
        self._platforms = [rattler.Platform(subdir), rattler.Platform("noarch")]
        self._virtual_packages = [
            rattler.GenericVirtualPackage(rattler.PackageName(name), rattler.Version(version), build)
            for name, version, build in virtual_packages
        ]
        self._preferred = list(map(_record, prefer))
        self._specs: list[Any] = []

    async def result(self) -> Result:
        from rattler.exceptions import InvalidMatchSpecError, SolverError

        for number, alternatives in enumerate(self._alternatives):
            try:
                self._specs.append(await self._available(alternatives))
            except InvalidMatchSpecError as error:
                return _failure(error, [number])
        try:
            return {"packages": [_package(record) for record in await self._solve(range(len(self._specs)))]}
        except SolverError as error:
            culprits = await self._culprits()
            failure = await self._failure_of([0, *culprits]) if culprits else None
            return _failure(failure or error, culprits)

    async def _available(self, alternatives: list[str]) -> Any:
        """The first match spec whose channel has a package of its name; the first of all if none has."""
        import rattler

        # Not strict: users write what conda understands, such as `numpy=1.26.*` or `numpy 1.26 py310*`.
        specs = [rattler.MatchSpec(text, strict=False) for text in alternatives]
        if len(specs) == 1:
            return specs[0]
        for text, spec in zip(alternatives, specs, strict=True):
            channel = rattler.Channel(text.rpartition("::")[0])
            found = await self._gateway.query([channel], self._platforms, [spec.name.normalized], recursive=False)
            if any(found):
                return spec
        return specs[0]

    async def _solve(self, numbers: Iterable[int]) -> list[Any]:
        import rattler

        records: list[Any] = await rattler.solve(
            self._channels,
            [self._specs[number] for number in numbers],
            gateway=self._gateway,
            platforms=self._platforms,
            virtual_packages=self._virtual_packages,
            locked_packages=self._preferred,
        )
        return records

    async def _failure_of(self, numbers: Iterable[int]) -> Exception | None:
        from rattler.exceptions import SolverError

        try:
            await self._solve(numbers)
        except SolverError as error:
            return cast("Exception", error)
        return None

    async def _culprits(self) -> list[int]:
        """The fewest match specs that cannot be met together with Python; empty if that takes too long to find.

        The shortest list of specs from the first on that fails ends in one of them; then the same before that one.
        """
        end, found = time.monotonic() + _MOST_SECONDS, list[int]()
        if await self._failure_of([0]):
            return [0]
        before = list(range(1, len(self._specs)))
        while not (found and await self._failure_of([0, *found])):
            works, fails = 0, len(before)
            while fails - works > 1:
                if time.monotonic() > end:
                    return []
                half = (works + fails) // 2
                if await self._failure_of([0, *before[:half], *found]):
                    fails = half
                else:
                    works = half
            if not fails or len(found) == _MOST_CULPRITS:
                return []
            found.insert(0, before[fails - 1])
            before = before[: fails - 1]
        return found


def _failure(error: Exception, culprits: list[int]) -> Result:
    """The result if a request fails; ``culprits`` are numbers of match specs, as few as possible; empty if unknown."""
    return {"error": str(error) or repr(error), "error_type": type(error).__name__, "culprits": culprits}


async def _install(
    packages: list[dict[str, Any]], prefix: str, subdir: str, prefix_placeholder: str, package_cache: str, patience: int
) -> Result:
    """Install exactly these packages; files contain ``prefix_placeholder`` in the place of ``prefix``."""
    import rattler

    folders = {
        package["name"].lower(): Path(package_cache, f"{package['name']}-{package['version']}-{package['build']}")
        for package in packages
    }

    class Links(rattler.InstallerReporter):
        def on_link_start(self, operation: int, package_name: str) -> int:  # noqa: ARG002 - the engine's names
            fault = _fault_of(package_name, folders[package_name])
            if fault:  # the engine ignores an exception, and writes where a path leads
                _finish({"error": fault, "error_type": "BadPackage"})
            return 0

    await rattler.install(
        list(map(_record, packages)),
        target_prefix=prefix,
        platform=rattler.Platform(subdir),
        cache_dir=Path(package_cache),
        alternative_target_prefix=prefix_placeholder,
        client=_client(patience),
        execute_link_scripts=False,
        show_progress=False,
        reporter=cast("Any", Links)(),
    )
    return {}


def _fault_of(name: str, folder: Path) -> str:
    """What of an extracted package cannot be installed, ``""`` for nothing; the engine reports unreadable metadata."""
    try:
        index = json.loads((folder / "info/index.json").read_bytes())
        if index["name"].lower() != name:
            return f"{folder.name}: its info/index.json is that of {index['name']!r}"
        own = f"conda-meta/{folder.name}.json"
        faults = (_fault_of_path(path, own) for path in _paths(folder / "info"))
        return next((f"{folder.name}: {fault}" for fault in faults if fault), "")
    except OSError as error:  # nothing has looked at the paths that the engine is about to write
        return f"{folder.name}: its extracted files cannot be read: {error.strerror}"
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""


def _paths(info: Path) -> list[str]:
    if not (info / "paths.json").exists():  # a package of before 2017
        return (info / "files").read_text(encoding="utf-8").splitlines()
    return [entry["_path"] for entry in json.loads((info / "paths.json").read_bytes())["paths"]]


def _fault_of_path(path: str, own_record: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or parts == ["."]:
        return f"its path {path!r} leads out of the environment"
    tidy = os.path.normpath(path)
    is_record = tidy.startswith("conda-meta/") and tidy.endswith(".json") and tidy != own_record
    if is_record or tidy == "conda-meta" or tidy.startswith("conda-meta/history/"):
        return f"its path {path!r} is where the engine records what is installed"
    return ""


def _package(record: Any) -> dict[str, Any]:
    """The fields of `envpack.requirements.model.CondaPackage`."""
    return {
        "name": record.name.normalized,
        "version": str(record.version),
        "build": str(record.build),
        "subdir": str(record.subdir),
        "url": str(record.url),
        "sha256": record.sha256.hex() if record.sha256 else "",
        "md5": record.md5.hex() if record.md5 else "",
        "size": record.size or 0,
        "license": record.license or "",
        "depends": list(record.depends),
        "constrains": list(record.constrains),
    }


def _record(package: dict[str, Any]) -> Any:
    from rattler import PackageRecord, RepoDataRecord

    channel, subdir, file = package["url"].rsplit("/", 2)
    record = PackageRecord(
        package["name"],
        package["version"],
        package["build"],
        0,
        subdir,
        depends=package["depends"],
        constrains=package["constrains"],
        sha256=bytes.fromhex(package["sha256"]) or None,
        md5=bytes.fromhex(package["md5"]) or None,
        size=package["size"] or None,
        license=package["license"] or None,
    )
    return RepoDataRecord(record, file, package["url"], channel)


def _client(seconds: int) -> Any:
    """A client with the user's proxies, mirrors, certificates and credentials, as for pixi, and a time limit."""
    from rattler import Client, Config

    return Client.from_config(Config.load_from_default_locations("pixi"), timeout=seconds)


_OPERATIONS: dict[str, Callable[..., Coroutine[Any, Any, Result]]] = {
    "index": _index,
    "resolve": _resolve,
    "install": _install,
}


def main(request_file: Path) -> NoReturn:
    request = json.loads(request_file.read_text(encoding="utf-8"))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # when the parent ends, nothing reads the result
    if os.getppid() != request["parent"]:
        os._exit(1)
    sys.path[:] = request["import_path"]
    try:
        result = asyncio.run(_OPERATIONS[request["operation"]](**request["arguments"]))
    except Exception as error:
        result = _failure(error, [])
    _finish(result)


def _finish(result: Result) -> NoReturn:
    with Path(sys.argv[2]).open("w", encoding="utf-8") as stream:
        json.dump(result, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

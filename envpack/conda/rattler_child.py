"""The program that uses the conda engine (py-rattler), run in a process of its own.

``python rattler_child.py REQUEST RESULT``: both are JSON files. The engine can crash while its process ends, after all
work is done; so the result is written and flushed before an immediate exit, and whoever started this program judges by
the result file alone. It imports nothing of envpack, so that it runs whatever the caller's import path is.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


async def index(request: dict[str, Any]) -> dict[str, Any]:
    """Write the index of the channel folder ``request["folder"]``."""
    from rattler.index import index_fs

    await index_fs(Path(request["folder"]), max_parallel=2)
    return {}


async def solve(request: dict[str, Any]) -> dict[str, Any]:
    """Solve ``request["specs"]`` against ``request["channels"]``; ``request["prefer"]`` are packages to stay with."""
    try:
        records = await _solved(request)
    except Exception as error:
        if "304 Not Modified" not in str(error):
            raise
        # The engine stumbles over servers that say "not modified" of an index that it has kept: without it, it works.
        shutil.rmtree(request["index_cache"], ignore_errors=True)
        records = await _solved(request)
    return {"packages": [_facts(record) for record in records]}


async def _solved(request: dict[str, Any]) -> list[Any]:
    import rattler

    found: list[Any] = await rattler.solve(
        [rattler.Channel(channel) for channel in request["channels"]],
        request["specs"],
        gateway=_gateway(request),
        platforms=[request["subdir"], "noarch"],
        virtual_packages=_virtual_packages(request["virtual_packages"]),
        locked_packages=[_record(package) for package in request["prefer"]],
    )
    return found


async def install(request: dict[str, Any]) -> dict[str, Any]:
    """Install exactly ``request["packages"]`` into ``request["prefix"]``; files that name it name ``stand_in``."""
    import rattler

    await rattler.install(
        [_record(package) for package in request["packages"]],
        target_prefix=request["prefix"],
        platform=rattler.Platform(request["subdir"]),
        cache_dir=Path(request["package_cache"]),
        alternative_target_prefix=request["stand_in"],
        client=_client(),
        execute_link_scripts=False,
        show_progress=False,
    )
    return {}


def _facts(record: Any) -> dict[str, Any]:
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


def _gateway(request: dict[str, Any]) -> Any:
    from rattler import Gateway

    return Gateway(cache_dir=Path(request["index_cache"]), client=_client())


def _client() -> Any:
    """The client with the user's proxies, mirrors, certificates and credentials, as pixi has them."""
    from rattler import Client, Config

    return Client.from_config(Config.load_from_default_locations("pixi"))


def _virtual_packages(wanted: list[list[str]]) -> list[Any]:
    from rattler import GenericVirtualPackage, PackageName, Version

    return [GenericVirtualPackage(PackageName(name), Version(version), build) for name, version, build in wanted]


_OPERATIONS = {"index": index, "solve": solve, "install": install}


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when the one that started it is killed: nobody wants its work any more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main(request_file: Path, result_file: Path) -> None:
    """Do what the request says and write ``{"ok": …}`` or ``{"error": text, "type": name}``; never returns."""
    request = json.loads(request_file.read_text(encoding="utf-8"))
    end_with_parent(request["parent"])
    sys.path[:] = request["import_path"]
    result: dict[str, Any]
    try:
        result = {"ok": asyncio.run(_OPERATIONS[request["operation"]](request))}
    except Exception as error:
        result = {"error": str(error) or repr(error), "type": type(error).__name__}
    with result_file.open("w", encoding="utf-8") as stream:
        json.dump(result, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

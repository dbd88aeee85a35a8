"""Container engines of this machine: one client for Docker and podman, and a shell in a container."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.containers.daemon import Daemon as Daemon, daemon_errors as daemon_errors, find_daemon as find_daemon
    from envpack.containers.shell import ContainerShell as ContainerShell

__getattr__, __all__ = lazy_imports(__name__, __file__)

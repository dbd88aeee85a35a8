"""The command line that a server is verified with, the same in every runtime."""

from __future__ import annotations

from collections.abc import Sequence

STOP_SECONDS = 15


def server_command(
    program: str,
    repositories: Sequence[str],
    backends: str,
    address: str,
    port: int,
    arguments: Sequence[str] = (),
) -> list[str]:
    """Start Triton with no model loaded, HTTP only.

    Explicit model control, so that models can be loaded one by one and each says what is wrong with it. Verbose, since
    only then the log tells which stub a model gets.

    Args:
        program: the ``tritonserver`` program.
        repositories: model repositories, as the server sees them.
        backends: folder of the backends, as the server sees it.
        address: what to listen on.
        port: HTTP port.
        arguments: further arguments. They come last, so they win.

    """
    return [
        program,
        *(f"--model-repository={repository}" for repository in repositories),
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        f"--http-address={address}",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--log-verbose=1",
        f"--exit-timeout-secs={STOP_SECONDS}",
        *arguments,
    ]

"""`envpack verify --on CLUSTER`: each model, or group of models, in a server of one worker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.cli.cluster_view import on_cluster
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.store import Location
    from envpack.verification import Verdict, VerifyOptions


def verdict_of_cluster(
    address: str,
    repository: Path | Location,
    models: Sequence[str],
    options: VerifyOptions,
    group: int,
    console: Console,
) -> tuple[Verdict, dict[str, Any]]:
    """Verify models on the workers of a cluster.

    Returns:
        The verdict on all, and what ``--json`` says of the cluster.
    """
    from envpack.fleet import verify_tasks
    from envpack.verification import combine_verdicts

    started = time.monotonic()
    done = on_cluster(address, lambda: verify_tasks(repository, models, options, group=group), console)
    done.raise_first_error(console)
    parts = [found.product.verdict for found in done.done if found.product.verdict]
    whole = repository if isinstance(repository, Path) and not models else None
    return combine_verdicts(parts, folder=whole, seconds=time.monotonic() - started), done.as_json()

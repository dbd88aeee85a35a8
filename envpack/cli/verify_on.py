"""`envpack verify --on CLUSTER`: each model, or group of models, in a server of one worker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from envpack.cli.cluster_view import on_cluster
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.settings import Project
    from envpack.workflow import Verdict


def verdict_of_cluster(
    cluster: str, project: Project, address: str, models: Sequence[str], console: Console
) -> tuple[Verdict, dict[str, Any]]:
    """Verify models of a repository, or of a published one, on the workers of a cluster.

    Returns:
        The verdict on all, and what ``--json`` says of the cluster.
    """
    from envpack.fleet import verify_tasks
    from envpack.workflow import combine_verdicts

    started, place = time.monotonic(), address or str(project.repository)
    done = on_cluster(cluster, lambda: verify_tasks(project, place, models), console)
    done.raise_first_error(console)
    parts = [found.product.verdict for found in done.done if found.product.verdict]
    whole = project.repository if not address and not models else None
    return combine_verdicts(parts, folder=whole, seconds=time.monotonic() - started), done.as_json()

"""Work on many machines: tasks that a dask cluster carries out, and that no machine does twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.fleet.client import carry_out_all
    from envpack.fleet.cluster import parse_address
    from envpack.fleet.kubernetes_build import build_jobs
    from envpack.fleet.kubernetes_verify import Published, verification_job
    from envpack.fleet.orders import build_tasks, lock_tasks, stub_tasks, verify_tasks
    from envpack.fleet.overlay import read_overlay
    from envpack.fleet.pods import jobs_yaml
    from envpack.fleet.tasks import Done, Task, combined
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)

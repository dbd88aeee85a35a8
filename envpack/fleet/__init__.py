"""Work on many machines: tasks that a dask cluster carries out, and that no machine does twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.fleet.address import Address as Address, parse_address as parse_address
    from envpack.fleet.client import carry_out_all as carry_out_all
    from envpack.fleet.kubernetes import (
        DEFAULT_IMAGE as DEFAULT_IMAGE,
        DEFAULT_SECRET as DEFAULT_SECRET,
        BuildJobOptions as BuildJobOptions,
        build_jobs as build_jobs,
        jobs_yaml as jobs_yaml,
    )
    from envpack.fleet.orders import (
        build_task as build_task,
        build_tasks as build_tasks,
        lock_tasks as lock_tasks,
        stub_tasks as stub_tasks,
    )
    from envpack.fleet.tasks import Done as Done, Product as Product, Task as Task, combined as combined
    from envpack.fleet.verify_orders import verify_tasks as verify_tasks

__getattr__, __all__ = lazy_imports(__name__, __file__)

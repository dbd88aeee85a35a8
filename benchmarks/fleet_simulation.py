"""What a large fleet costs: a simulation of `envpack build --all --on CLUSTER --store URL`, from measured task times.

    python benchmarks/fleet_simulation.py [--models 10000] [--workers 1,2,10,50,100,200,500,1000]

It prints, for each number of workers, the time until all environments and stubs are in the store, the speed-up against
one worker, how busy workers and store are, and what limits the speed-up; then the store's traffic and what the caller
adds. The same options give the same output. The defaults were measured on two busy cores,
see docs/explanation/fleet.md.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SEED = 1
_MEGA = 1e6


@dataclass(frozen=True)
class Costs:
    """Times in seconds, sizes in bytes.

    Attributes:
        models: how many models.
        sharing: models for each different environment.
        stubs: how many models with an environment of their own need a stub of their own; stubs are shared as widely.
        build: median time of a worker for an environment, without store and start.
        spread: standard deviation of its logarithm.
        stub: time for a stub.
        start: of a task's process.
        dispatch: of the scheduler for a task; it does one after the other.
        new_bytes: what an environment adds to the store, after packages that it shares.
        bandwidth: of the store, to all machines together, in bytes a second.
        link: of one machine to the store.
        plan: of the caller for a model, before the first task.
        fetch: of the caller for an environment, without the transfer.
        fetched_bytes: an environment as the store has it.
        place: of the caller for a model.
    """

    models: int
    sharing: float
    stubs: int
    build: float
    spread: float
    stub: float
    start: float
    dispatch: float
    new_bytes: float
    bandwidth: float
    link: float
    plan: float
    fetch: float
    fetched_bytes: float
    place: float

    @property
    def environments(self) -> int:
        """How many different environments the models need."""
        return math.ceil(self.models / self.sharing)

    def tasks(self) -> Iterator[float]:
        """Seconds of work of each task, in a random order that is always the same."""
        chance = random.Random(_SEED)
        times = [self.build * math.exp(chance.gauss(0, self.spread)) for _ in range(self.environments)]
        times += [self.stub] * self.stubs
        chance.shuffle(times)
        return iter(times)


@dataclass(frozen=True)
class Run:
    """What a number of workers took.

    Attributes:
        seconds: until the last task ended.
        workers_busy: share of the workers' time in which they worked.
        store_busy: share of the time in which the store transferred.
        scheduler_busy: share of the time in which the scheduler dispatched.
    """

    seconds: float
    workers_busy: float
    store_busy: float
    scheduler_busy: float

    @property
    def limit(self) -> str:
        """What keeps more workers from helping."""
        shares = {"workers": self.workers_busy, "store": self.store_busy, "scheduler": self.scheduler_busy}
        name, share = max(shares.items(), key=lambda entry: entry[1])
        return name if share >= 0.8 else "the last tasks"


def simulate(costs: Costs, workers: int) -> Run:
    """Give each task to the worker that is free first; scheduler and store serve one request after the other."""
    free = [0.0] * workers
    scheduler = store = ended = 0.0
    busy = transferred = dispatched = 0.0
    events: list[tuple[float, float]] = []  # when an upload can begin, and when its task began
    work = costs.tasks()
    seconds = next(work, None)
    while seconds is not None or events:
        if seconds is not None and (not events or (free and free[0] <= events[0][0])) and free:
            ready = heapq.heappop(free)
            scheduler = max(scheduler, ready) + costs.dispatch
            dispatched += costs.dispatch
            heapq.heappush(events, (scheduler + costs.start + seconds, scheduler))
            seconds = next(work, None)
            continue
        finished, began = heapq.heappop(events)
        store = max(store, finished) + costs.new_bytes / costs.bandwidth
        transferred += costs.new_bytes / costs.bandwidth
        end = max(store, finished + costs.new_bytes / costs.link)
        busy += end - began - max(0.0, store - finished - costs.new_bytes / costs.link)
        heapq.heappush(free, end)
        ended = max(ended, end)
    return Run(ended, busy / (ended * workers), transferred / ended, dispatched / ended)


def caller_seconds(costs: Costs) -> tuple[float, float]:
    """What the caller does alone: before the first task, and after the last one to place all models on its own disk."""
    transfer = costs.fetched_bytes / min(costs.link, costs.bandwidth)
    return costs.models * costs.plan, costs.environments * (costs.fetch + transfer) + costs.models * costs.place


def report(costs: Costs, workers: Sequence[int]) -> str:
    """The tables."""
    alone = simulate(costs, 1)
    lines = [
        f"{costs.models} models, {costs.environments} environments, {costs.stubs} stubs",
        "",
        f"{'workers':>8}{'hours':>9}{'speed-up':>10}{'workers':>9}{'store':>7}{'scheduler':>11}  limit",
    ]
    for count in workers:
        run = simulate(costs, count)
        shares = f"{run.workers_busy:>9.0%}{run.store_busy:>7.0%}{run.scheduler_busy:>11.1%}"
        lines.append(f"{count:>8}{run.seconds / 3600:>9.2f}{alone.seconds / run.seconds:>10.1f}{shares}  {run.limit}")
    before, after = caller_seconds(costs)
    tasks = costs.environments + costs.stubs
    best = min(simulate(costs, count).seconds for count in workers)
    saturated = costs.bandwidth * alone.seconds / (tasks * costs.new_bytes)
    return "\n".join(
        (
            *lines,
            "",
            f"to the store: {tasks * costs.new_bytes / 1e9:.0f} GB",
            f"from it, to each machine that places all models: {costs.environments * costs.fetched_bytes / 1e9:.0f} GB",
            f"workers that saturate the store: {saturated:.0f}",
            f"workers that saturate the scheduler: {alone.seconds / tasks / costs.dispatch:.0f}",
            f"the caller plans for {before:.0f} s",
            f"without --store-only, it places them in {after / 3600:.2f} h, {after / best:.0f} times the fastest run",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--models", type=int, default=10_000)
    add("--workers", default="1,2,10,50,100,200,500,1000", help="numbers of workers, with commas")
    add("--sharing", type=float, default=4.0, help="models for each different environment")
    add("--stubs", type=int, default=40, help="different stubs")
    add("--build", type=float, default=16.0, help="seconds for an environment")
    add("--spread", type=float, default=0.6, help="standard deviation of the logarithm of that")
    add("--stub", type=float, default=45.0, help="seconds for a stub")
    add("--start", type=float, default=0.5, help="seconds to start a task")
    add("--dispatch", type=float, default=0.002, help="seconds of the scheduler for a task")
    add("--new", type=float, default=40.0, help="MB that an environment adds to the store")
    add("--bandwidth", type=float, default=1000.0, help="MB/s of the store to all machines")
    add("--link", type=float, default=100.0, help="MB/s of one machine")
    add("--plan", type=float, default=0.0015, help="seconds of the caller for a model, before the first task")
    add("--fetch", type=float, default=2.5, help="seconds of the caller for an environment")
    add("--fetched", type=float, default=80.0, help="MB of an environment in the store")
    add("--place", type=float, default=0.35, help="seconds of the caller for a model")
    given = vars(parser.parse_args())
    workers = [int(count) for count in given.pop("workers").split(",")]
    sizes = {"new_bytes": given.pop("new"), "bandwidth": given.pop("bandwidth"), "link": given.pop("link")}
    sizes["fetched_bytes"] = given.pop("fetched")
    print(report(Costs(**given, **{name: size * _MEGA for name, size in sizes.items()}), workers))


if __name__ == "__main__":
    main()

"""Kill the processes of busy models again and again, under the real server of a release.

    python ci/kills.py --kills 1000
    python ci/kills.py --kills 200 --release 23.04 --seed 7 --no-bls
    python ci/kills.py --kills 20 --holding

Three models answer requests without a pause: one computes and logs, one asks the first (BLS), one is decoupled and is
read by the second as a stream; with --no-bls only the first, since the server of 23.04 ends with a segmentation fault
once in some thousands of BLS requests, with any stub. Every few milliseconds one of their processes is killed,
wherever it is; with --holding only where it holds a mutex of the server's. Each must be replaced, and answer. At the
end, the models are unloaded. The exit status is 1 if a model was not replaced; the program prints the stub's reason.
It is also 1 if a process or a region is left behind. The program prints the threads, descriptors and memory of the
server before and after, for people to compare.
"""

import argparse
import os
import random
import signal
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from envpack.server.kserve import Client, RequestError  # noqa: E402
from envpack.server.process import ProcessRuntime, ProcessServer  # noqa: E402
from envpack.server.tensors import Tensor  # noqa: E402
from envpack.settings.releases import find_release  # noqa: E402
from envpack.settings.table import DEFAULT_RELEASE  # noqa: E402
from envpack.verification.stub_processes import instances  # noqa: E402
from tests.cache import kept_cache  # noqa: E402
from tests.server.model_environments import NUMPYS, ModelEnvironments  # noqa: E402
from tests.server.releases.conftest import load, place  # noqa: E402
from tests.server.releases.spread import SPREAD  # noqa: E402
from tests.server.releases.wheels import server_of  # noqa: E402

CODE = {
    "script": "pb_utils.Logger.log_info('busy')\nreturn sum(range(2000))",
    "other": "return [fetch(bls_call('script', 'return 1').exec()) for _ in range(3)]",
    "stream": "sender = request.get_response_sender()\nfor i in range(3): sender.send(reply(i))\nsender.send(flags=1)",
}
READS = f"return [fetch(r) for r in bls_call('stream', {CODE['stream']!r}).exec(decoupled=True)]"
ANSWER_SECONDS = 20
LAST_LINES = 40  # of a server that ended
LONGEST_PAUSE = 0.05
REASON = "is not restarted"
REGION_HEAD = 1 << 16  # bytes in which mutexes are looked for
OWNER, ROBUST = 0x3FFFFFFF, 0x90


class Clients:
    """Threads that send requests to the models until they are stopped, and count the answers."""

    def __init__(self, url: str, models: Collection[str]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._url = url
        self._stopping = threading.Event()
        every = [("script", CODE["script"]), ("other", CODE["other"]), ("other", READS)]
        work = [each for each in every if each[0] in models]
        self._threads = [threading.Thread(target=self._send, args=each, daemon=True) for each in work]
        for thread in self._threads:
            thread.start()

    def _send(self, model: str, code: str) -> None:
        client = Client(self._url, timeout=ANSWER_SECONDS)
        while not self._stopping.is_set():
            try:
                client.infer(model, [Tensor("CODE", "BYTES", (1,), (code.encode(),))])
                self.outcomes["answered"] += 1
            except RequestError as error:
                has_cause = "was killed by signal" in error.message
                outcome = "failed with the cause" if has_cause else error.message[:120]
                self.outcomes["timed out" if error.timed_out else outcome] += 1

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def answers(client: Client, model: str) -> bool:
    """Whether a model answers again, now or within some seconds. Its clients may have died with it."""
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        try:
            client.infer(model, [Tensor("CODE", "BYTES", (1,), (CODE[model].encode(),))])
        except RequestError as error:
            if "was killed by signal" not in error.message:
                return False
        else:
            return True
    return False


def worker_of(server: ProcessServer, model: str) -> int | None:
    """The process that runs a model, or will: its stub has none while it replaces one."""
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        for instance in instances(server, model):
            if instance.worker != instance.stub:
                return instance.worker.pid
        time.sleep(0.001)
    return None


def stop_holding(server: ProcessServer, pid: int, dice: random.Random) -> bool:
    """Stop a process while one of its threads holds a robust mutex of a region; False if none does, and it goes on."""
    time.sleep(dice.uniform(0, LONGEST_PAUSE / 10))
    os.kill(pid, signal.SIGSTOP)
    threads = {int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()}
    for region in (Path("/dev/shm", name) for name in server.shared_memory()):
        if not region.exists():  # the server has ended
            continue
        head = region.read_bytes()[:REGION_HEAD]
        words = struct.unpack(f"<{len(head) // 4}I", head)
        # As glibc lays a mutex out: the word with the owner and two bits, a count, the owner, the users, the kind.
        for word, _, owner, _, kind in zip(*(words[at:] for at in range(5)), strict=False):
            if owner in threads and word & OWNER == owner and kind & 0xFF == ROBUST:
                return True
    os.kill(pid, signal.SIGCONT)
    return False


def kill_often(
    server: ProcessServer, client: Client, kills: int, dice: random.Random, models: Sequence[str], *, holding: bool
) -> str:
    """Kill processes. Returns what went wrong, or an empty text."""
    for number in range(1, kills + 1):
        time.sleep(dice.uniform(0, LONGEST_PAUSE))
        model = dice.choice(models)
        pid = worker_of(server, model)
        if pid is None:
            return f"{model} had no process before kill {number}"
        while holding and not server.ended() and not stop_holding(server, pid, dice):
            pass
        os.kill(pid, signal.SIGKILL)
        if model != "stream" and not answers(client, model):
            return f"{model} did not answer after kill {number}"
        if number % 100 == 0:
            print(f"{number} kills", flush=True)
    return ""


def in_use(pid: int) -> dict[str, int]:
    """Threads, descriptors and resident memory (MiB) of the server."""
    folder = Path(f"/proc/{pid}")
    counts = {name: len(list((folder / name).iterdir())) for name in ("task", "fd")}
    pages = int((folder / "statm").read_text().split()[1])
    return {**counts, "MiB": pages * os.sysconf("SC_PAGE_SIZE") >> 20}


def left_behind(server: ProcessServer) -> list[int | str]:
    """Process ids of the server's children and of orphans, and names of regions."""
    return [*(process.pid for process in (*server.children(), *server.orphans())), *server.shared_memory()]


def run(release: str, kills: int, seed: int, start: str, models: Sequence[str], *, holding: bool) -> int:
    parts = ModelEnvironments(kept_cache())
    python = dict(SPREAD).get(release, "3.10")
    environment = parts.environment(python, NUMPYS[python][-1])
    if not find_release(release).takes_folders:
        environment = parts.archive(environment)
    with tempfile.TemporaryDirectory() as folder:
        for name in models:
            place(Path(folder), name, environment, parts.stub(python))
        variables = {"ENVPACK_RESTARTS": "1000000", "ENVPACK_START": start}
        runtime = ProcessRuntime(server_of(find_release(release), parts.folder), environment=variables)
        with runtime.start(Path(folder)) as server:
            client = Client(server.url, timeout=60)
            if failures := load(client, models):
                print(failures)
                return 1
            clients = Clients(server.url, models)
            time.sleep(1)
            before = in_use(server.pid)
            begun = time.monotonic()
            wrong = kill_often(server, client, kills, random.Random(seed), models, holding=holding)
            seconds = time.monotonic() - begun
            clients.stop()
            if server.ended():
                print(f"{release}: the server ended; {dict(clients.outcomes)}")
                print(*server.log().splitlines()[-LAST_LINES:], sep="\n")
                return 1
            print(f"{release}: {kills} kills in {seconds:.0f} s; {dict(clients.outcomes)}")
            print(f"the server: {before} before, {in_use(server.pid)} after")
            for line in server.log().splitlines():
                if REASON in line:
                    print(line)
            if wrong:
                print(wrong)
                server.stop(force=True)
                return 1
            for name in models:
                client.unload(name)
            until = time.monotonic() + ANSWER_SECONDS
            while (left := left_behind(server)) and time.monotonic() < until:
                time.sleep(0.05)
            print(f"left behind: {left or 'nothing'}")
            return 1 if left or clients.outcomes["timed out"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="number of kills (default: %(default)s)")
    parser.add_argument("--release", default=DEFAULT_RELEASE, help="Triton release in a wheel (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices (default: %(default)s)")
    parser.add_argument("--start", choices=["cold", "warm"], default="cold", help="how the models start")
    parser.add_argument("--no-bls", action="store_true", help="only the model that asks no other")
    parser.add_argument("--holding", action="store_true", help="kill only what holds a mutex of the server's")
    given = parser.parse_args()
    models = ["script"] if given.no_bls else list(CODE)
    return run(given.release, given.kills, given.seed, given.start, models, holding=given.holding)


if __name__ == "__main__":
    raise SystemExit(main())

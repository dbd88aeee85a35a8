"""Compares the duration of `envpack verify` with that of a minimal shell script.

    python benchmarks/verify.py                     a process, and a container if a daemon runs or can be started
    python benchmarks/verify.py --rounds 5
    python benchmarks/verify.py --other ../before/.venv/bin/envpack    this checkout and another one, on one model

The script starts the same server on the same repository (docker run, or the program itself), polls /v2/health/ready
with curl until the server is ready, sends one request with curl, and stops the server. It checks nothing else. Rounds
are interleaved. Prints median seconds, and their ratio: ours divided by the script's.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ci.containers.daemon import DaemonMissingError, docker_daemon
from ci.containers.image import ensure_image
from envpack.server.launch import find_server, link_backends

MODEL = """
import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy() * 2)]) for r in requests
        ]
"""
CONFIG = """backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
STEP = """  step {{
    model_name: "{name}" model_version: -1
    input_map {{ key: "X" value: "{source}" }} output_map {{ key: "Y" value: "{target}" }}
  }}
"""
REQUEST = '{"inputs": [{"name": "X", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}'
GOALS = {"one model, process": 5.0, "one model, container": 8.0, "three Pythons and an ensemble, process": 15.0}
ENVPACK = (sys.executable, "-m", "envpack")


def make_repository(folder: Path, pythons: dict[str, str]) -> Path:
    """Build one model for each Python, and an ensemble of them if there are several."""
    for name, python in pythons.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text(MODEL)
        (folder / name / "config.pbtxt").write_text(CONFIG)
        (folder / name / "requirements.txt").write_text("numpy\n")
        words = ["build", name, "--python", python, "--stub", "always", "--repository", str(folder), "--quiet"]
        subprocess.run([*ENVPACK, *words], check=True)
    if len(pythons) > 1:
        tensors = ["X", *(f"after_{name}" for name in list(pythons)[:-1]), "Y"]
        steps = "".join(
            STEP.format(name=name, source=source, target=target)
            for name, source, target in zip(pythons, tensors, tensors[1:], strict=False)
        )
        (folder / "whole/1").mkdir(parents=True)
        text = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
        (folder / "whole/config.pbtxt").write_text(f"{text}ensemble_scheduling {{\n{steps}}}\n")
    return folder


def ours(repository: Path, *words: str, program: tuple[str, ...] = ENVPACK) -> float:
    """Duration of the command in seconds."""
    started = time.perf_counter()
    done = subprocess.run(
        [*program, "verify", "--repository", str(repository), "--json", *words], capture_output=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(done.stdout.decode() + done.stderr.decode())
    assert json.loads(done.stdout)["verdict"]["ok"]
    return seconds


def poll_and_infer(address: str, model: str) -> None:
    """Wait until the server is ready, and send one request, as the script does."""
    while subprocess.run(["curl", "-sf", f"{address}/v2/health/ready"], capture_output=True, check=False).returncode:
        time.sleep(0.1)
    url = f"{address}/v2/models/{model}/infer"
    subprocess.run(["curl", "-sf", "-d", REQUEST, url], check=True, capture_output=True)


def by_hand_in_process(repository: Path, model: str) -> float:
    server = find_server()
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        link_backends(server, Path(folder) / "backends")
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        started = time.perf_counter()
        command = [server.executable, f"--model-repository={repository}", f"--backend-directory={folder}/backends"]
        more = ["--http-address=127.0.0.1", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
        variables = {**os.environ, "LD_LIBRARY_PATH": server.library_path}
        process = subprocess.Popen(
            [*command, *more], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        poll_and_infer(f"http://127.0.0.1:{port}", model)
        process.terminate()
        process.wait()
        return time.perf_counter() - started


def by_hand_in_container(repository: Path, model: str, address: str, image: str) -> float:
    docker = ["docker", "-H", address]
    started = time.perf_counter()
    run = ["run", "-d", "--rm", "-p", "127.0.0.1::8000", "-v", f"{repository}:/models:ro", image]
    done = subprocess.run(
        [*docker, *run, "tritonserver", "--model-repository=/models"], capture_output=True, text=True, check=True
    )
    name = done.stdout.strip()
    port = subprocess.run([*docker, "port", name, "8000"], capture_output=True, text=True, check=True).stdout.split()[0]
    poll_and_infer(f"http://{port}", model)
    subprocess.run([*docker, "stop", name], check=True, capture_output=True)
    return time.perf_counter() - started


def compare(
    title: str, rounds: int, mine: Callable[[], float], peer: Callable[[], float], name: str = "script"
) -> None:
    pairs = [(mine(), peer()) for _ in range(rounds)]
    our_seconds, peer_seconds = (statistics.median(column) for column in zip(*pairs, strict=True))
    goal = f"   goal {GOALS[title]:g} s" if title in GOALS else ""
    least = min(pair[0] for pair in pairs)
    print(
        f"{title:42} {our_seconds:5.1f} s (least {least:.1f})   {name} {peer_seconds:5.1f} s"
        f"   ratio {our_seconds / peer_seconds:.2f}{goal}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other", metavar="PROGRAM", help="envpack of another checkout; nothing else is measured")
    options = parser.parse_args()
    rounds = options.rounds
    if options.other:
        compare_with(options.other, rounds)
        return
    with tempfile.TemporaryDirectory(prefix="envpack-bench-") as folder:
        single = make_repository(Path(folder) / "single", {"double": "3.10"})
        three = make_repository(Path(folder) / "three", {"first": "3.8", "second": "3.10", "third": "3.12"})
        process = ("--runtime", "process")
        compare(
            "one model, process", rounds, lambda: ours(single, *process), lambda: by_hand_in_process(single, "double")
        )
        compare(
            "three Pythons and an ensemble, process",
            rounds,
            lambda: ours(three, *process),
            lambda: by_hand_in_process(three, "whole"),
        )
        try:
            with contextlib.ExitStack() as stack:
                in_containers(stack.enter_context(docker_daemon()), single, three, rounds)
        except DaemonMissingError as error:
            print(f"in a container: not measured: {error}")


def compare_with(program: str, rounds: int) -> None:
    """Compare with another envpack; a first run of each warms the caches."""
    process = ("--runtime", "process")
    with tempfile.TemporaryDirectory(prefix="envpack-bench-") as folder:
        single = make_repository(Path(folder) / "single", {"double": "3.10"})

        def mine() -> float:
            return ours(single, *process)

        def other() -> float:
            return ours(single, *process, program=(program,))

        mine(), other()
        compare("one model, process", rounds, mine, other, "other")


def in_containers(address: str, single: Path, three: Path, rounds: int) -> None:
    import docker

    if shutil.which("docker") is None:
        print("in a container: not measured: the script needs Docker's command line")
        return
    with contextlib.closing(docker.DockerClient(base_url=address)) as client:
        image = ensure_image(client)
    os.environ["DOCKER_HOST"] = address
    words = ("--runtime", "docker", "--image", image)
    for title, repository, model in (
        ("one model, container", single, "double"),
        ("three Pythons and an ensemble, container", three, "whole"),
    ):
        compare(
            title,
            rounds,
            lambda repository=repository: ours(repository, *words),
            lambda repository=repository, model=model: by_hand_in_container(repository, model, address, image),
        )


if __name__ == "__main__":
    main()

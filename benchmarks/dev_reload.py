"""How long `envpack dev` takes from a saved file to a model that serves.

    python benchmarks/dev_reload.py --rounds 10

A small NumPy model is served by the real server, in the process runtime. Each round writes its `model.py` and sends
requests until one gets the new answer. The figures are medians in seconds, for a model that cannot complete its
configuration and for one that does, and the ratio of the two.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from envpack.server.kserve import Client, RequestError
from envpack.server.tensors import Tensor

_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
{more}
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.float32(FACTOR) * r.inputs()[0].as_numpy())])
            for r in requests
        ]
"""
_COMPLETES = """    @staticmethod
    def auto_complete_config(config):
        return config

"""
_CONFIG = """
backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] } ]
"""


def seconds(more: str, rounds: int, python: str) -> list[float]:
    """The time of each round for one model."""
    with tempfile.TemporaryDirectory(prefix="envpack-dev-") as name:
        model = Path(name) / "small"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(_CONFIG)
        (model / "requirements.txt").write_text("numpy\n")
        code = _MODEL.replace("{more}", more)
        (model / "1/model.py").write_text(code.replace("FACTOR", "1"))
        command = [sys.executable, "-m", "envpack", "dev", "--repository", name]
        command += ["--python", python] if python else []
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"})
        try:
            assert running.stderr is not None
            ready = next(line for line in running.stderr if "ready in" in line)
            client = Client(ready.split(" at ")[1].strip())
            return [_round(client, model / "1/model.py", code, factor) for factor in range(2, rounds + 2)]
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()


def _round(client: Client, file: Path, code: str, factor: int) -> float:
    """Save the model once; the time until a request gets the new answer."""
    time.sleep(2)  # the instance of the round before has been unloaded
    started = time.monotonic()
    file.write_text(code.replace("FACTOR", str(factor)))
    while _answer(client) != factor:
        time.sleep(0.005)
    return time.monotonic() - started


def _answer(client: Client) -> object:
    try:
        (output,) = client.infer("small", [Tensor("X", "FP32", (2,), (1, 2))])
    except RequestError:
        return None
    return output.data[0]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--python", default="", help="by default the release's")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    plain = seconds("", given.rounds, given.python)
    completing = seconds(_COMPLETES, given.rounds, given.python)
    ratio = statistics.median(completing) / statistics.median(plain)
    if given.json:
        print(json.dumps({"plain": plain, "completing": completing, "ratio": ratio}))
        return
    for name, found in (("without auto_complete_config()", plain), ("with auto_complete_config()", completing)):
        print(f"{name}: {statistics.median(found):.2f} s, {min(found):.2f} to {max(found):.2f} s")
    print(f"ratio: {ratio:.1f}")


if __name__ == "__main__":
    main()
